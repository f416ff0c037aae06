"""Products like ones just computed, by the shortest way.

Most programs multiply arrays of few forms, over and over. A `Repeat` sees by one look at a and b
(and out) that they are as before, so that what was checked and planned for those holds for these.
All other products take the long way, `calls.Bound`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmlab.linalg import execution

if TYPE_CHECKING:
    from gemmlab.linalg.calls import Call


class Repeat:
    """A planned product alpha·a·b on the stream that is current."""

    def __init__(
        self, call: Call, arrays: Sequence[Any], alpha: Any, precision: str | None
    ) -> None:
        a, b, _, out = arrays
        framework = call.framework
        self._call, self._alpha, self._precision = call, alpha, precision
        self._device, self._stream = call.device, call.stream
        self._current_stream, self._address = framework.stream, framework.address
        self._like_a, self._like_b = framework.alike(a), framework.alike(b)
        self._like_out = None if out is None else framework.alike(out)
        self.plan = call.plan

    def run(self, a: Any, b: Any, out: Any, alpha: Any, precision: str | None) -> Any:
        """Enqueue the product; the result, or None where anything differs from what was planned.

        What is compared by identity is never equal by chance: then the long way compares values.
        """
        if (
            precision is not self._precision
            or alpha is not self._alpha
            or not self._like_a(a)
            or not self._like_b(b)
            or (out is not None if self._like_out is None else not self._like_out(out))
            or self._current_stream(self._device) != self._stream
            or not execution.is_current(self._device)
        ):
            return None
        address = self._address
        if out is None:
            return self._call((a, b, None, None), (address(a), address(b), 0, 0))
        addresses = (address(a), address(b), 0, address(out))
        if not self._call.writes_apart(addresses, c_is_out=False):
            return None
        return self._call((a, b, None, out), addresses)
