"""The short path of `matmul`: repeat a recent product of this thread.

Most programs repeatedly multiply arrays of a few forms. A `Repeat` matches each operand against the
form of an earlier one; if all match, the earlier checks and plan still apply. All other products
take the long path, `entry.compute`. Its first part is shorter for factors that differ from earlier
ones in sizes alone (`similar`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from gemmlab.linalg import operands
from gemmlab.linalg.arrays import ArrayDescriptor, Describer, Framework, is_float32
from gemmlab.linalg.frameworks import stream_handle
from gemmlab.linalg.operands import Arrays
from gemmlab.linalg.planned import ProductPlan, Saving, no_saving

_MOST_SHAPES = 256  # pairs of shapes for which products are kept
_MOST_ALIKE = 32  # products kept per pair; trying one takes the host about 0.2 µs


class Planned(Protocol):
    """A planned product, on a GPU or on the host."""

    @property
    def plan(self) -> ProductPlan: ...

    @property
    def saving(self) -> Saving: ...


class Repeatable(Planned, Protocol):
    """A product on a GPU, planned for operands with given forms on one stream."""

    framework: Framework
    device: int
    stream: int

    @property
    def tier(self) -> str: ...

    def writes_apart(self, addresses: Sequence[int], c_is_out: bool) -> bool:
        """Whether the address range of `out` intersects no other operand's; c may be `out`."""

    def __call__(self, arrays: Arrays, addresses: Sequence[int], given_stream: int | None) -> Any:
        """Enqueue the product of arrays at these addresses; return the result."""


class Repeat:
    """A planned product for operands like those of its first call."""

    def __init__(
        self,
        planned: Repeatable,
        matchers: Sequence[Any],
        packed: tuple[bool, bool],
        alpha: Any,
        beta: Any,
        precision: str | None,
    ) -> None:
        """matchers: tests whether another a, b, c and out have the same form; None for operands
        that were not given. packed: whether a and b are packed."""
        self.planned = planned
        self._current_stream, self._address = planned.framework.stream, planned.framework.address
        self._alpha, self._beta, self._precision = alpha, beta, precision
        self._a_is_packed, self._b_is_packed = packed
        self._match_a, self._match_b, self._match_c, self._match_out = matchers
        self._has_c, self._has_no_out = self._match_c is not None, self._match_out is None

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
        """Enqueue the product and return the result; None if anything differs from the plan."""
        planned, address = self.planned, self._address
        if (
            precision is not self._precision
            or (alpha is not self._alpha and not _equal(alpha, self._alpha))
            or (beta is not self._beta and not _equal(beta, self._beta))
            or (out is None) is not self._has_no_out
            or (c is None) is self._has_c
            or (self._current_stream(planned.device) if stream is None else stream)
            != planned.stream
            or not self._match_a(a)
            or not self._match_b(b)
        ):
            return None
        if self._a_is_packed:
            a = a.array
        if self._b_is_packed:
            b = b.array
        # An array at address 0 is empty or has no memory; the long path distinguishes the two.
        at_a, at_b, at_c, at_out = address(a), address(b), 0, 0
        if not (at_a and at_b):
            return None
        if self._match_c is not None and not (self._match_c(c) and (at_c := address(c))):
            return None
        if self._match_out is not None and not (self._match_out(out) and (at_out := address(out))):
            return None
        addresses = (at_a, at_b, at_c, at_out)
        if at_out and not planned.writes_apart(addresses, c is out):
            return None
        return planned((a, b, c, out), addresses, stream)


def _equal(scalar: Any, known: Any) -> bool:
    """Whether two scalars have the same type and value; another type may be an array."""
    return type(scalar) is type(known) and scalar == known


class Similar(NamedTuple):
    """How to describe factors that differ in sizes alone from those of a product without options.

    key: their `operands.key_of`.
    """

    framework: Framework
    describe: Describer
    a: ArrayDescriptor
    b: ArrayDescriptor
    key: Any


class _Recent(threading.local):
    def __init__(self) -> None:
        self.product: Planned | None = None  # the last one
        self.repeats: dict[Any, tuple[Repeat, ...]] = {}  # by the shapes of a and b
        self.similar: Similar | None = None  # to the last product without options


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
    only_faster: bool = False,
) -> Any:
    """Compute the product by the short path; None if no recent product matches.

    only_faster: a product that runs in `ieee` does not match.
    """
    try:
        key = a.shape, b.shape
        repeats = _recent.repeats.get(key)
    except Exception:  # not an array; the long path raises the error
        return None
    if repeats is None:
        return None
    handle = None if stream is None else stream_handle(stream)
    for repeat in repeats:
        if only_faster and repeat.planned.tier == "ieee":
            continue
        result = repeat.run(a, b, c, out, alpha, beta, precision, handle)
        if result is not None:
            _recent.product = repeat.planned
            if repeat is not repeats[0]:
                others = (other for other in repeats if other is not repeat)
                _recent.repeats[key] = (repeat, *others)
            return result
    return None


def similar() -> Similar | None:
    """Return how to describe factors like those of this thread's last product without options."""
    return _recent.similar


def keep_similar(
    framework: Framework, arrays: Arrays, descriptors: Sequence[ArrayDescriptor | None]
) -> None:
    """Let `similar` describe factors like a and b of these arrays."""
    a, b, *_ = descriptors
    assert a is not None and b is not None
    _recent.similar = None
    if a.device == b.device and is_float32(a.dtype) and is_float32(b.dtype):
        describe = framework.describer(*arrays[:2])
        key = operands.key_of(descriptors, None)
        _recent.similar = describe and Similar(framework, describe, a, b, key)


def keep(repeat: Repeat, a: Any, b: Any) -> None:
    """Keep a repeat for this thread's products of arrays with the shapes of a and b."""
    repeats = _recent.repeats
    if len(repeats) >= _MOST_SHAPES:
        repeats.clear()
    key = a.shape, b.shape
    repeats[key] = (repeat, *repeats.get(key, ())[: _MOST_ALIKE - 1])


def remember(product: Planned) -> None:
    """Record this thread's last product."""
    _recent.product = product


def saving() -> Saving:
    """Return the saving of this thread's last product."""
    return no_saving if _recent.product is None else _recent.product.saving


def last_plan() -> ProductPlan | None:
    """Return the plan of this thread's last product; None before the first."""
    return None if _recent.product is None else _recent.product.plan
