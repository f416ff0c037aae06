"""Checks of ldmatrix and stmatrix: the lane with the address of a 16-byte row accesses the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value
from gemmlab.emulator.checks.shadow import PLAIN
from gemmlab.emulator.memory.spaces import Access, offsets_of
from gemmlab.emulator.tensor_cores.matrices import MatrixSpace

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor

ALL_LANES = np.uint32(0xFFFFFFFF)


def watch_matrices(monitor: Monitor) -> None:
    space = monitor.machine.space_matrices
    watched = WatchedMatrixSpace(space.data, space.nbytes, space.chunk)
    watched.monitor = monitor
    monitor.machine.space_matrices = watched


class WatchedMatrixSpace(MatrixSpace):
    """Shared memory for ldmatrix and stmatrix."""

    monitor: Monitor

    def load_matrices(
        self, access: Access, address: Value, count: int, transposed: bool, mask: Mask | None
    ) -> list[np.ndarray]:
        result = super().load_matrices(access, address, count, transposed, mask)
        rows, starts = self._named(access, address, count, mask)
        monitor = self.monitor
        monitor.shadow.load_initialized(
            rows[:, None], monitor.pieces(starts, CHUNK), access.instruction
        )
        # .sync.aligned: a later write by any lane of the warp is ordered after the reads.
        on = monitor.machine.active(mask)
        monitor.warp_barrier(on, np.broadcast_to(ALL_LANES, on.shape))
        return result

    def store_matrices(
        self,
        access: Access,
        address: Value,
        registers: Sequence[Value],
        transposed: bool,
        mask: Mask | None,
    ) -> None:
        rows, starts = self._named(access, address, len(registers), mask)
        monitor = self.monitor
        cells = monitor.pieces(starts, CHUNK)
        old = monitor.values(self.data, cells)
        super().store_matrices(access, address, registers, transposed, mask)
        changed = (old != monitor.values(self.data, cells)).any(axis=2)
        monitor.shadow.store(rows[:, None], cells, access.instruction, PLAIN, changed)

    def _named(
        self, access: Access, address: Value, count: int, mask: Mask | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The lanes that hold row addresses, flat, and the byte offsets of the rows in `data`."""
        on = self.monitor.machine.active(mask) & (np.arange(WARP) < 8 * count)
        block = np.arange(len(self.data))[:, None, None] * self.data.shape[1]
        starts: np.ndarray = self.chunk.spread(block + offsets_of(access, address))[on]
        return np.flatnonzero(on), starts
