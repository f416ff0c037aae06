"""The memory that one host thread runs blocks in, shared between native code and Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.machine import patience_of
from gemmlab.emulator.launch.launch import Launch
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.native.code import Code, routines
from gemmlab.emulator.native.layout import (
    COPY,
    CORE,
    GROW_RING,
    LOOPS,
    OVER_BUDGET,
    RECORD,
    SITE,
    WARP_STATE,
    align,
    view,
)
from gemmlab.emulator.native.traced_kernel import variable_names
from gemmlab.emulator.native.ufuncs import loop_of

# Called by native code with the core, the instruction and the lanes; returns 0 on failure.
Callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32)

MIN_CAPACITY = 8  # initial size of a ring of pending copies
MAX_BUDGET = 1 << 62  # instructions: a 64-bit limit that no launch reaches


def _aligned(nbytes: int) -> np.ndarray:
    """Return zeroed memory aligned to 64 bytes."""
    raw = np.zeros(nbytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + nbytes]


class Executor(Protocol):
    """Executes single instructions of a core's running warp on the NumPy tier."""

    tally: Tally

    def execute(self, index: int, lanes: int) -> None: ...


class Core:
    """The memory for running one block after another."""

    def __init__(
        self,
        launch: Launch,
        code: Code,
        next_block: np.ndarray,
        timer: np.ndarray,
        refresh: Callable[[], None],
        executor: Callable[[Core], Executor],
    ) -> None:
        """refresh: called when the allocations have changed. executor: makes the core's executor
        for the first instruction that needs it."""
        self.metadata = metadata = code.metadata
        self.launch, self.first_site = launch, min(code.sites.values(), default=0)
        self.num_sites = len(code.sites)
        num_warps = -(-launch.threads // WARP)
        local_bytes = align(launch.local_bytes, 16)
        self.memory = _aligned(metadata.core_bytes)
        self.shared = _aligned(align(launch.shared_bytes, 64) + 64)
        self.local = _aligned(local_bytes * WARP * num_warps + 64)
        self.warps = _aligned(metadata.warp_bytes * num_warps)
        names = variable_names(launch.program)
        # Keeps alive the arrays to which the pointers below refer.
        self.tables = tables = dict(
            next_block=next_block,
            timer=timer,
            parameters=launch.parameters,
            variables=np.array([launch.variables[name] for name in names], np.uint64),
            shared=self.shared,
            local_memory=self.local,
            warps=self.warps,
            slow=code.slow,
            ready=code.ready,
            products=code.products,
            uniform=code.uniform,
            uniform_starts=code.uniform_starts,
        )
        for name, table in tables.items():
            self[name] = table.ctypes.data
        for name, value in dict(
            fast=code.fast,
            num_code_blocks=len(code.program.blocks),
            num_blocks=launch.grid[0] * launch.grid[1] * launch.grid[2],
            block=-1,
            num_warps=num_warps,
            threads=launch.threads,
            parameter_bytes=launch.parameters.size,
            arena=launch.memory.data.ctypes.data - GLOBAL_BASE,
            shared_bytes=launch.shared_bytes,
            shared_zeroed=launch.shared_bytes,
            dynamic_bytes=launch.dynamic_bytes,
            local_bytes=local_bytes,
            local_zeroed=local_bytes * WARP,
            warp_stride=metadata.warp_bytes,
            patience=patience_of(launch.program),
            budget=min(launch.max_instructions, MAX_BUDGET),
            lockstep=int(metadata.lockstep),
            zeroed=metadata.warp_bytes - WARP_STATE.size if metadata.zeroed else 0,
        ).items():
            self[name] = value
        self.update_allocations()
        self.refresh, self.new_executor = refresh, executor
        self.rings: dict[int, np.ndarray] = {}  # rings of pending copies, by warp
        self.executor: Executor | None = None
        self.error: BaseException | None = None  # raised in the callback
        self.seconds = 0.0  # in which no block has ended, if that is the fault
        self.callback = Callback(self._fall_back)
        # ctypes.cast would leave the callback in a reference cycle.
        self["callback"] = ctypes.c_void_p.from_buffer(self.callback).value or 0
        self.field("functions", np.uint64, len(routines()))[:] = routines()
        loops = [pointer for name in LOOPS for pointer in loop_of(name)]
        self.field("loops", np.uint64, len(loops))[:] = loops
        self.field("nctaid", np.uint32, 3)[:] = launch.grid
        self.field("ntid", np.uint32, 3)[:] = launch.block
        words = self.memory.view(np.int64)
        records = np.fromiter(metadata.records, np.int64) // 8
        words[records + RECORD["pattern"] // 8] = 1  # matches no pattern, since patterns start at 0
        whole = [-1 if nbytes == 8 else 0xFFFFFFFF for nbytes in metadata.records.values()]
        words[records + RECORD["wrap"] // 8] = whole
        self._number_threads(launch)

    def _number_threads(self, launch: Launch) -> None:
        warps = self.warps.reshape(-1, self.metadata.warp_bytes).view(np.uint32)
        threads = np.arange(len(warps) * WARP).reshape(-1, WARP)
        x, y, _ = launch.block
        tids = {"tid_x": threads % x, "tid_y": threads // x % y, "tid_z": threads // (x * y)}
        for name, tid in tids.items():
            first = WARP_STATE[name] // 4
            warps[:, first : first + WARP] = tid
        warps[:, WARP_STATE["number"] // 4] = np.arange(len(warps))
        warps[:, WARP_STATE["once"] // 4] = 1

    def update_allocations(self) -> None:
        """Update the bounds of the allocations, which malloc and free change."""
        self.edges = self.launch.memory.edges
        starts, ends = (edges + GLOBAL_BASE for edges in self.edges)
        self.tables |= dict(starts=starts, ends=ends)
        self["starts"], self["ends"] = starts.ctypes.data, ends.ctypes.data
        self["num_allocations"] = len(starts)
        sites = self.site_table()
        sites[:, [SITE["low"] // 8, SITE["high"] // 8]] = 0

    def site_table(self) -> np.ndarray:
        """Return the counts: one row per site, one column per field of SITE."""
        table = self.memory[self.first_site :][: self.num_sites * SITE.size]
        return table.view(np.int64).reshape(-1, SITE.size // 8)

    def _fall_back(self, _: int, index: int, lanes: int) -> int:
        """Execute one instruction for some lanes of the running warp. Returns 0 on failure."""
        try:
            if self.executor is None:
                self.executor = self.new_executor(self)
            if index == GROW_RING:
                self.grow_ring()
            else:
                self.executor.execute(index, lanes)
            if self.launch.memory.edges is not self.edges:
                self.refresh()
        except BaseException as error:  # exceptions must not propagate through native code
            self.error = error
            return 0
        return 1

    def close(self) -> None:
        """Break reference cycles, so that memory is freed at once and not by the garbage
        collector."""
        del self.callback, self.refresh, self.executor

    def executed(self) -> int:
        """Return the instructions that the busiest warp has executed."""
        return int(self._executed().max())

    def _executed(self) -> np.ndarray:
        warps = self.warps.reshape(-1, self.metadata.warp_bytes).view(np.int64)
        return warps[:, WARP_STATE["executed"] // 8]

    def give_up(self, seconds: float) -> None:
        """Record that the busiest warp does not end. seconds: how long no block has ended."""
        self["fault"], self["warp"] = OVER_BUDGET, int(self._executed().argmax())
        self["fault_lanes"] = int(view(self.warp(self["warp"]), WARP_STATE["live"], np.uint32)[0])
        self.seconds = seconds

    def grow_ring(self) -> None:
        """Double the running warp's ring of pending copies, which is full."""
        number = self["warp"]
        warp = self.warp(number)
        first, room = (view(warp, WARP_STATE[x]) for x in ("first_copy", "capacity"))
        old = self.rings.get(number, np.zeros((0, COPY.size), np.uint8))
        size = max(2 * len(old), MIN_CAPACITY)
        ring = _aligned(size * COPY.size).reshape(size, COPY.size)
        ring[: len(old)] = np.roll(old, -int(first[0]), axis=0)
        self.rings[number], first[0], room[0] = ring, 0, size
        view(warp, WARP_STATE["ring"])[0] = ring.ctypes.data

    def warp(self, number: int) -> np.ndarray:
        """Return the memory of one warp."""
        nbytes = self.metadata.warp_bytes
        return self.warps[number * nbytes : (number + 1) * nbytes]

    def field(self, name: str, dtype: Any = np.int64, count: int = 1) -> np.ndarray:
        return view(self.memory, CORE[name], dtype, count)

    def __setitem__(self, name: str, value: int) -> None:
        self.field(name)[0] = value

    def __getitem__(self, name: str) -> int:
        return int(self.field(name)[0])
