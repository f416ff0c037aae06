"""Executes single instructions of native warps on the NumPy tier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.launch.coordinates import SpecialRegisters
from gemmlab.emulator.native.core import Core
from gemmlab.emulator.native.fallback import Fallback
from gemmlab.emulator.native.layout import FALLBACK_FUEL, REGISTER_BYTES, view


class WarpMachine(Machine):
    """The NumPy tier's machine, restricted to the running warp of a core."""

    def __init__(self, core: Core) -> None:
        self.core, self.whole_launch = core, core.launch
        self.fallbacks: dict[int, tuple[Any, list[np.ndarray], list[np.ndarray]]] = {}
        alone = replace(core.launch, block=(WARP, 1, 1))
        super().__init__(alone, np.zeros(1, np.int64), Tally.of(core.launch.program))

    def memories(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the core's shared and local memory."""
        nbytes = -(-self.launch.shared_bytes // 16) * 16
        return self.core.shared[:nbytes].reshape(1, nbytes), self._local(0)

    def _local(self, warp: int) -> np.ndarray:
        nbytes = self.core["local_bytes"]
        first = warp * WARP * nbytes
        return self.core.local[first : first + WARP * nbytes].reshape(1, 1, WARP, nbytes)

    def special(self, name: str) -> Value:
        launch, warps = self.whole_launch, self.core["num_warps"]
        extent = replace(self.extent, warps=warps)
        values = three_axes(SpecialRegisters(launch, self.blocks, extent)[name])
        return values if values.shape[1] == 1 else values[:, self.first_warp : self.first_warp + 1]

    def execute(self, index: int, lanes: int) -> None:
        """Execute one instruction for some lanes of the warp. Raises EmulationError."""
        function, reads, writes = self._code_and_registers(index)
        self.blocks[0], self.first_warp = self.core["block"], self.core["warp"]
        self.space_local.data = self.space_frame.data = self._local(self.first_warp)
        on = (lanes >> np.arange(WARP) & 1).astype(bool).reshape(1, 1, WARP)
        self.live[:] = on
        mask = None if on.all() else Mask(on, self.extent)
        with np.errstate(all="ignore"):
            results = function(self, mask, *reads)
            self.bulk.complete_all()
        if self.mbarriers.has_changed:
            self.mbarriers.has_changed, self.core["timeouts"] = False, 0
        for slot, value in zip(writes, results, strict=True):
            slot[:] = three_axes(value)
        self.core["fuel"] -= FALLBACK_FUEL

    def _code_and_registers(self, index: int) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
        """Return an instruction's function and views of the registers it reads and writes."""
        if index not in self.fallbacks:
            fallback, first = (
                Fallback(self.launch.program, index),
                self.core.metadata.fallbacks[index],
            )
            slots = []
            for k, name in enumerate([*fallback.reads, *fallback.writes]):
                dtype = self.launch.program.dtypes[name]
                lanes = view(self.core.memory, first + REGISTER_BYTES * k, dtype, WARP)
                slots.append(lanes.reshape(1, 1, WARP))
            count = len(fallback.reads)
            self.fallbacks[index] = fallback.function, slots[:count], slots[count:]
        return self.fallbacks[index]
