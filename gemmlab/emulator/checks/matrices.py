"""Checks of ldmatrix and stmatrix: the lane with the address of a 16-byte row accesses the row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.checks.shadow import PLAIN
from gemmlab.emulator.checks.warps import ALL
from gemmlab.emulator.memory.spaces import offsets_of
from gemmlab.emulator.observer import Observer, Request

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor


class MatrixAccesses(Observer):
    """Observes the shared memory of ldmatrix and stmatrix."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.old: np.ndarray  # contents of the rows before the current access

    def accessing(self, request: Request) -> None:
        if request.kind == "store":
            self.old = self.monitor.values(self.monitor.shared, self._cells(request))

    def accessed(self, request: Request, result: Any) -> None:
        monitor, index, cells = self.monitor, request.access.instruction, self._cells(request)
        rows = monitor.rows(request.mask)[:, None]
        if request.kind == "store":
            changed = (self.old != monitor.values(monitor.shared, cells)).any(axis=2)
            monitor.shadow.store(rows, cells, index, PLAIN, changed)
            return
        monitor.shadow.load_initialized(rows, cells, index)
        # .sync.aligned: a later write by any lane of the warp is ordered after the reads.
        warps = monitor.machine.active(request.mask).any(axis=2, keepdims=True)
        on = monitor.machine.live & warps
        monitor.warp_barrier(on, np.broadcast_to(ALL, on.shape))

    def _cells(self, request: Request) -> np.ndarray:
        """The granules of the rows, (rows, granules per row)."""
        data, machine = self.monitor.shared, self.monitor.machine
        block = np.arange(len(data))[:, None, None] * data.shape[1]
        starts = machine.chunk.spread(block + offsets_of(request.access, request.address))
        return self.monitor.pieces(starts[machine.active(request.mask)], CHUNK)
