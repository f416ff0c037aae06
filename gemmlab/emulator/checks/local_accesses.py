"""Checks the loads and stores of local memory, which each thread has for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.emulator.checks.state import State
from gemmlab.emulator.checks.undefined import Undefined
from gemmlab.emulator.memory.chunk import offsets_of
from gemmlab.emulator.memory.spaces import LocalSpace
from gemmlab.emulator.observer import Observer, Request


class LocalAccesses(Observer):
    """Records which granules the threads of one chunk have written."""

    def __init__(self, state: State, undefined: Undefined, space: LocalSpace) -> None:
        self.state, self.undefined, self.space = state, undefined, space
        self.written = np.zeros(space.data.size // state.granule, bool)

    def accessed(self, request: Request, result: Any) -> None:
        access, mask, state = request.access, request.mask, self.state
        offsets = state.machine.chunk.spread(offsets_of(access, request.address))
        starts = offsets.reshape(-1) if mask is None else offsets[mask.array]
        first = state.rows(mask) * self.space.data.shape[3]
        cells = state.pieces(starts + first, access.width)
        if request.kind == "store":
            self.written[cells] = True
            self.undefined.store(access.instruction, "local", mask, cells)
            return
        written = self.written.take(cells)
        unwritten = None if written.all() else ~written
        self.undefined.load(access.instruction, "local", mask, cells, unwritten)
