"""Generic addressing: the upper bits of an address select the state space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.memory.addresses import ATOMIC_WINDOWS, WINDOW_BITS, WINDOWS
from gemmlab.emulator.memory.atomics import Operation
from gemmlab.emulator.memory.chunk import Chunk, Space
from gemmlab.emulator.memory.spaces import GlobalSpace, SharedSpace
from gemmlab.emulator.program import Access
from gemmlab.errors import OutOfBoundsError


@dataclass
class GenericSpace:
    """Generic addressing: the window of each lane's address selects the space."""

    spaces: dict[str, Space]  # one for each of WINDOWS
    chunk: Chunk

    def load(self, access: Access, address: Value, mask: Mask | None) -> tuple[Value, ...]:
        result: tuple[Value, ...] | None = None
        for name, inner, part in self._split(access, address, mask):
            values = self.spaces[name].load(access, inner, part)
            if result is None or part is None:
                result = values
            else:
                result = tuple(
                    np.where(part.array, v, r) for v, r in zip(values, result, strict=True)
                )
        assert result is not None
        return result

    def store(
        self, access: Access, address: Value, values: Sequence[Value], mask: Mask | None
    ) -> None:
        for name, inner, part in self._split(access, address, mask):
            self.spaces[name].store(access, inner, values, part)

    def update(
        self,
        access: Access,
        address: Value,
        operation: Operation,
        operands: Sequence[Value],
        mask: Mask | None,
    ) -> tuple[np.ndarray, ...]:
        result = (np.zeros(self.chunk.extent.shape, access.dtype),) * access.num_elements
        for name, inner, part in self._split(access, address, mask):
            if name not in ATOMIC_WINDOWS:
                message = "atomic operations need global or shared memory"
                bad = np.ones((1, 1, 1), bool)
                offsets = three_axes(address).view(np.int64)
                self.chunk.report(OutOfBoundsError, message, access, bad, offsets, part)
            space = self.spaces[name]
            assert isinstance(space, (GlobalSpace, SharedSpace))
            values = space.update(access, inner, operation, operands, part)
            result = tuple(
                v if part is None else np.where(part.array, v, r)
                for v, r in zip(values, result, strict=True)
            )
        return result

    def _split(
        self, access: Access, address: Value, mask: Mask | None
    ) -> list[tuple[str, Value, Mask | None]]:
        """For each window that occurs: its space, the addresses in that space, and the lanes."""
        window = three_axes(address) >> np.uint64(WINDOW_BITS)
        active = window if mask is None else self.chunk.spread(window)[mask.array]
        found = np.unique(active)
        parts: list[tuple[str, Value, Mask | None]] = []
        for number in found.tolist():
            if number >= len(WINDOWS):
                bad = window == np.uint64(number)
                message = "generic address outside all state spaces"
                offsets = three_axes(address).view(np.int64)
                self.chunk.report(OutOfBoundsError, message, access, bad, offsets, mask)
            inner = address - np.uint64(number << WINDOW_BITS)
            part = mask
            if len(found) > 1:
                on = self.chunk.spread(window == np.uint64(number))
                on = on if mask is None else on & mask.array
                part = Mask(on, self.chunk.extent)
            parts.append((WINDOWS[number], inner, part))
        return parts
