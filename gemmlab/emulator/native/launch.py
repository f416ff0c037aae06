"""Run a launch in native code on threads of the host. Returns counters or raises the first
fault."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters.rules import SiteCounts
from gemmlab.emulator.execution.machine import Launch, patience_of
from gemmlab.emulator.execution.tally import Tally
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.native.code import Code, routines, runtime_library
from gemmlab.emulator.native.fallback import Callback, WarpMachine
from gemmlab.emulator.native.faults import explain
from gemmlab.emulator.native.kernel import Plan, variable_names
from gemmlab.emulator.native.layout import (
    COPY,
    CORE,
    DONE,
    FAULT,
    FUEL,
    GROW_RING,
    LOOPS,
    NEEDS_SLOW,
    RECORD,
    SITE,
    WARP_STATE,
    align,
    counts_offset,
    tally_offset,
    view,
)
from gemmlab.emulator.native.ufuncs import loop_of
from gemmlab.errors import EmulationError

# If blocks can wait for each other, one thread interleaves blocks with up to this many lanes, as on
# the NumPy tier.
RESIDENT_LANES = 8192
MIN_CAPACITY = 8  # initial size of a ring of pending copies
MAX_BUDGET = 1 << 62  # instructions: a 64-bit limit that no launch reaches


def _aligned(nbytes: int) -> np.ndarray:
    """Return zeroed memory aligned to 64 bytes."""
    raw = np.zeros(nbytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + nbytes]


class Core:
    """The memory for running one block after another."""

    def __init__(
        self,
        launch: Launch,
        code: Code,
        next_block: np.ndarray,
        timer: np.ndarray,
        refresh: Callable[[], None],
    ) -> None:
        self.plan = plan = code.plan
        self.launch, self.first_site = launch, min(code.sites.values(), default=0)
        self.num_sites = len(code.sites)
        num_warps = -(-launch.threads // WARP)
        local_bytes = align(launch.local_bytes, 16)
        self.memory = _aligned(plan.core_bytes)
        self.shared = _aligned(align(launch.shared_bytes, 64) + 64)
        self.local = _aligned(local_bytes * WARP * num_warps + 64)
        self.warps = _aligned(plan.warp_bytes * num_warps)
        names = variable_names(launch.program)
        # Keeps the arrays alive that the pointers below refer to.
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
            warp_stride=plan.warp_bytes,
            patience=patience_of(launch.program),
            budget=min(launch.max_instructions, MAX_BUDGET),
            lockstep=int(plan.lockstep),
            zeroed=plan.warp_bytes - WARP_STATE.size if plan.zeroed else 0,
        ).items():
            self[name] = value
        self.update_allocations()
        self.refresh = refresh  # called when the allocations have changed
        self.rings: dict[int, np.ndarray] = {}  # rings of pending copies, by warp
        self.machine: WarpMachine | None = None  # created for the first instruction that needs it
        self.error: BaseException | None = None  # raised in the callback
        self.callback = Callback(self._fall_back)
        # ctypes.cast would leave the callback in a reference cycle.
        self["callback"] = ctypes.c_void_p.from_buffer(self.callback).value or 0
        self.field("functions", np.uint64, len(routines()))[:] = routines()
        loops = [pointer for name in LOOPS for pointer in loop_of(name)]
        self.field("loops", np.uint64, len(loops))[:] = loops
        self.field("nctaid", np.uint32, 3)[:] = launch.grid
        self.field("ntid", np.uint32, 3)[:] = launch.block
        words = self.memory.view(np.int64)
        records = np.fromiter(plan.records, np.int64) // 8
        words[records + RECORD["pattern"] // 8] = 1  # matches no pattern, since patterns start at 0
        whole = [-1 if nbytes == 8 else 0xFFFFFFFF for nbytes in plan.records.values()]
        words[records + RECORD["wrap"] // 8] = whole
        self._number_threads(launch, plan)

    def _number_threads(self, launch: Launch, plan: Plan) -> None:
        warps = self.warps.reshape(-1, plan.warp_bytes).view(np.uint32)
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
            if self.machine is None:
                self.machine = WarpMachine(self.launch, self)
            if index == GROW_RING:
                self.grow_ring()
            else:
                self.machine.execute(index, lanes)
            if self.launch.memory.edges is not self.edges:
                self.refresh()
        except BaseException as error:  # exceptions must not propagate through native code
            self.error = error
            return 0
        return 1

    def close(self) -> None:
        """Break reference cycles, so that memory is freed at once and not by the garbage
        collector."""
        del self.callback, self.refresh, self.machine

    def grow_ring(self) -> None:
        """Double the running warp's ring of pending copies, which is full."""
        number = self["warp"]
        warp = self.warp(number, self.plan)
        first, room = (view(warp, WARP_STATE[x]) for x in ("first_copy", "capacity"))
        old = self.rings.get(number, np.zeros((0, COPY.size), np.uint8))
        size = max(2 * len(old), MIN_CAPACITY)
        ring = _aligned(size * COPY.size).reshape(size, COPY.size)
        ring[: len(old)] = np.roll(old, -int(first[0]), axis=0)
        self.rings[number], first[0], room[0] = ring, 0, size
        view(warp, WARP_STATE["ring"])[0] = ring.ctypes.data

    def warp(self, number: int, plan: Plan) -> np.ndarray:
        """Return the memory of one warp."""
        return self.warps[number * plan.warp_bytes : (number + 1) * plan.warp_bytes]

    def field(self, name: str, dtype: Any = np.int64, count: int = 1) -> np.ndarray:
        return view(self.memory, CORE[name], dtype, count)

    def __setitem__(self, name: str, value: int) -> None:
        self.field(name)[0] = value

    def __getitem__(self, name: str) -> int:
        return int(self.field(name)[0])


class Team:
    """Threads of the host that share the blocks of a launch."""

    def __init__(self, launch: Launch, code: Code, size: int) -> None:
        self.launch, self.code, self.size = launch, code, size
        self.run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(runtime_library()["run"])
        self.next_block, self.timer = np.zeros((2, 1), np.int64)
        # The number of unfinished blocks per thread. A block may wait for a later one.
        lanes = align(launch.threads, WARP)
        self.most = max(1, RESIDENT_LANES // lanes) if code.blocks_interact else 1
        self.cores: list[Core] = []
        self.failed: list[Core] = []
        self.errors: list[BaseException] = []
        self.lock = threading.Lock()
        self.stopped = False

    def work(self) -> None:
        """Run blocks until none are left."""
        core, waiting = self.new_core(), deque[Core]()
        while not self.stopped:
            core["fuel"] = FUEL
            status = self.run(core.memory.ctypes.data)
            if status == NEEDS_SLOW:
                self.code.compile_slow(core["missing_slow"])
            elif status == FAULT:
                if core.error is not None and not isinstance(core.error, EmulationError):
                    raise core.error
                # Blocks before this one continue, since the first fault may be in one of them.
                self.next_block[0] = 1 << 62
                self.failed.append(core)
                return
            elif status == DONE:
                if not waiting:
                    return
                core = waiting.popleft()
            elif core["block"] >= 0 and self.most > 1:
                waiting.append(core)
                more = len(waiting) < self.most and self.next_block[0] < core["num_blocks"]
                core = self.new_core() if more else waiting.popleft()

    def refresh(self) -> None:
        """Update the allocations in all cores."""
        for core in self.cores:
            core.update_allocations()

    def new_core(self) -> Core:
        core = Core(self.launch, self.code, self.next_block, self.timer, self.refresh)
        with self.lock:
            self.cores.append(core)
        return core

    def guarded_work(self) -> None:
        try:
            self.work()
        except BaseException as error:  # an interrupt must stop the other threads, too
            self.stopped = True
            self.errors.append(error)

    def finish(self) -> None:
        """Run to the end. Raises EmulationError for the first faulty block."""
        others = [threading.Thread(target=self.guarded_work) for _ in range(self.size - 1)]
        for thread in others:
            thread.start()
        self.guarded_work()
        for thread in others:
            thread.join()
        if self.errors:
            raise self.errors[0]
        if self.failed:
            explain(self.launch, self.code, min(self.failed, key=lambda core: core["block"]))


def execute(launch: Launch, code: Code, threads: int | None = None) -> Tally:
    """Run all blocks of a launch. Raises EmulationError.

    If blocks can interact, one thread runs them in order, which makes the results deterministic.
    """
    if launch.memory.heap is not None:
        launch.memory.heap.reset()
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    size = threads or (1 if code.blocks_interact else host_threads())
    team = Team(launch, code, min(size, blocks))
    try:
        team.finish()
        tally = Tally.of(launch.program)
        for core in team.cores:
            _add(tally, core, code)
        return tally
    finally:
        for core in team.cores:
            core.close()


def host_threads() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0))


def _add(tally: Tally, core: Core, code: Code) -> None:
    """Add the counts of one core."""
    count = len(code.program.blocks)
    executed = view(core.memory, tally_offset(0), np.int64, 2 * count).reshape(count, 2)
    tally.warps += executed[:, 0]
    tally.lanes += executed[:, 1]
    instructions = len(code.program.function.instructions)
    counted = view(core.memory, counts_offset(count, 0), np.int64, 2 * instructions)
    tally.guarded_off += counted[0::2]
    tally.divergent += counted[1::2]
    if core.machine is not None:
        tally.guarded_off += core.machine.tally.guarded_off
        tally.copied += core.machine.tally.copied
        for place, counts in core.machine.tally.sites.items():
            tally.sites[place].add(counts)
    table, sites = core.site_table(), list(code.sites)
    used = table[:, SITE["full"] // 8] + table[:, SITE["requests"] // 8] > 0
    for index in np.flatnonzero(used).tolist():
        (instruction, space), row = sites[index], table[index].tolist()
        site = {name: row[at // 8] for name, at in SITE.offsets.items()}
        requests = site["full"] + site["requests"]
        if instruction in code.plan.uncounted:
            continue
        counts = SiteCounts(requests, WARP * site["full"] + site["threads"])
        if space == "shared":
            counts.wavefronts, counts.ideal_wavefronts = site["cost"], site["ideal"]
        else:
            counts.sectors = site["cost"]
        tally.sites[instruction, space].add(counts)
