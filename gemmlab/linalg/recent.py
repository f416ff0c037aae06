"""What a thread has multiplied lately, and the short way to do it again.

Most programs multiply arrays of few forms, over and over. A `Repeat` sees by one look at each array
that it is like the one before, so that what was checked and planned then holds now. All other
products take the long way, `calls.Bound`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmlab.linalg.frameworks import stream_handle
from gemmlab.linalg.planned import Plan

if TYPE_CHECKING:
    from gemmlab.linalg.calls import Call

_MOST_SHAPES = 256  # of which products are kept
_MOST_ALIKE = 4  # of one shape, tried in turn: each costs the host about 0.2 µs


class Repeat:
    """A planned product, of arrays like those that it was first computed of."""

    def __init__(
        self,
        call: Call,
        looks: Sequence[Any],
        packed: tuple[bool, bool],
        alpha: Any,
        beta: Any,
        precision: str | None,
    ) -> None:
        """looks: what tells of another a, b, c and out whether it is like the first one; None for
        what was not given. packed: whether a and b are."""
        self._call, self.plan = call, call.plan
        self._current_stream, self._address = call.framework.stream, call.framework.address
        self._alpha, self._beta, self._precision = alpha, beta, precision
        self._a_is_packed, self._b_is_packed = packed
        self._like_a, self._like_b, self._like_c, self._like_out = looks
        self._adds, self._is_new = self._like_c is not None, self._like_out is None

    def run(
        self,
        a: Any,
        b: Any,
        c: Any,
        out: Any,
        alpha: Any,
        beta: Any,
        precision: str | None,
        stream: int | None,
    ) -> Any:
        """Enqueue the product; the result, or None where anything differs from what was planned."""
        call, address = self._call, self._address
        if (
            precision is not self._precision
            or (alpha is not self._alpha and not _equal(alpha, self._alpha))
            or (beta is not self._beta and not _equal(beta, self._beta))
            or (out is None) is not self._is_new
            or (c is None) is self._adds
            or (self._current_stream(call.device) if stream is None else stream) != call.stream
            or not self._like_a(a)
            or not self._like_b(b)
        ):
            return None
        if self._a_is_packed:
            a = a.array
        if self._b_is_packed:
            b = b.array
        # An array at address 0 is empty, or has no memory: the long way finds out which.
        at_a, at_b, at_c, at_out = address(a), address(b), 0, 0
        if not (at_a and at_b):
            return None
        if self._like_c is not None and not (self._like_c(c) and (at_c := address(c))):
            return None
        if self._like_out is not None and not (self._like_out(out) and (at_out := address(out))):
            return None
        addresses = (at_a, at_b, at_c, at_out)
        if at_out and not call.writes_apart(addresses, c is out):
            return None
        return call((a, b, c, out), addresses, stream)


def _equal(factor: Any, known: Any) -> bool:
    """Whether a factor is that number. One of another type may be an array: it is not compared."""
    return type(factor) is type(known) and factor == known


class _Recent(threading.local):
    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.repeats: dict[Any, tuple[Repeat, ...]] = {}  # by the shapes of a and b


_recent = _Recent()


def again(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    alpha: Any,
    beta: Any,
    precision: str | None,
    stream: Any,
) -> Any:
    """The product by the short way; None where that is closed."""
    try:
        key = a.shape, b.shape
        repeats = _recent.repeats.get(key)
    except Exception:  # of an object that is no array; the long way says so
        return None
    if repeats is None:
        return None
    handle = None if stream is None else stream_handle(stream)
    for repeat in repeats:
        result = repeat.run(a, b, c, out, alpha, beta, precision, handle)
        if result is not None:
            _recent.plan = repeat.plan
            if repeat is not repeats[0]:
                others = (other for other in repeats if other is not repeat)
                _recent.repeats[key] = (repeat, *others)
            return result
    return None


def keep(repeat: Repeat, a: Any, b: Any) -> None:
    """For products of arrays like a and b by this thread."""
    repeats = _recent.repeats
    if len(repeats) >= _MOST_SHAPES:
        repeats.clear()
    key = a.shape, b.shape
    repeats[key] = (repeat, *repeats.get(key, ())[: _MOST_ALIKE - 1])


def remember(plan: Plan | None) -> None:
    """As the plan of this thread's last product."""
    _recent.plan = plan


def last_plan() -> Plan | None:
    return _recent.plan
