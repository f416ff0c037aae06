"""Checks the loads and stores of local memory, which each thread has for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab.emulator.memory.spaces import LocalSpace, offsets_of
from gemmlab.emulator.observer import Observer, Request

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor


class LocalAccesses(Observer):
    """Records which granules the threads of one chunk have written."""

    def __init__(self, monitor: Monitor, space: LocalSpace) -> None:
        self.monitor, self.space = monitor, space
        self.written = np.zeros(space.data.size // monitor.granule, bool)

    def accessed(self, request: Request, result: Any) -> None:
        access, mask, monitor = request.access, request.mask, self.monitor
        offsets = monitor.machine.chunk.spread(offsets_of(access, request.address))
        starts = offsets.reshape(-1) if mask is None else offsets[mask.array]
        first = monitor.rows(mask) * self.space.data.shape[3]
        cells = monitor.pieces(starts + first, access.width)
        if request.kind == "store":
            self.written[cells] = True
            monitor.undefined.store(access.instruction, "local", mask, cells)
            return
        written = self.written.take(cells)
        unwritten = None if written.all() else ~written
        monitor.undefined.load(access.instruction, "local", mask, cells, unwritten)
