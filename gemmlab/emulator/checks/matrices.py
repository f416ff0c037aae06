"""Checks of ldmatrix and stmatrix: the lane with the address of a 16-byte row accesses the row."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.checks.shadow import PLAIN
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.checks.warps import ALL
from gemmlab.emulator.memory.chunk import offsets_of
from gemmlab.emulator.observer import Observer, Request


class MatrixAccesses(Observer):
    """Observes the shared memory of ldmatrix and stmatrix."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.old: np.ndarray  # contents of the rows before the current access

    def accessing(self, request: Request) -> None:
        if request.kind == "store":
            self.old = self.state.values(self.state.shared, self._cells(request))

    def accessed(self, request: Request, result: Any) -> None:
        state, index, cells = self.state, request.access.instruction, self._cells(request)
        rows = state.rows(request.mask)[:, None]
        if request.kind == "store":
            changed = (self.old != state.values(state.shared, cells)).any(axis=2)
            state.shadow.store(rows, cells, index, PLAIN, changed)
            return
        state.shadow.load_initialized(rows, cells, index)
        # .sync.aligned: a later write by any lane of the warp is ordered after the reads.
        warps = state.machine.active(request.mask).any(axis=2, keepdims=True)
        on = state.machine.live & warps
        state.warp_barrier(on, np.broadcast_to(ALL, on.shape))

    def _cells(self, request: Request) -> np.ndarray:
        """The granules of the rows, (rows, granules per row)."""
        data, machine = self.state.shared, self.state.machine
        block = np.arange(len(data))[:, None, None] * data.shape[1]
        starts = machine.chunk.spread(block + offsets_of(request.access, request.address))
        return self.state.pieces(starts[machine.active(request.mask)], CHUNK)
