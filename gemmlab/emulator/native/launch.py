"""Run a launch in native code on threads of the host. Returns counters or raises the first
fault."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import deque

import numpy as np

from gemmlab.core import interrupts
from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters.rules import SiteCounts
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.launch.launch import MAX_INSTRUCTIONS, Launch
from gemmlab.emulator.native.code import Code, runtime_library
from gemmlab.emulator.native.core import Core
from gemmlab.emulator.native.faults import explain
from gemmlab.emulator.native.layout import (
    DONE,
    FAULT,
    FUEL,
    NEEDS_SLOW,
    SITE,
    align,
    counts_offset,
    tally_offset,
    view,
)
from gemmlab.emulator.native.warp_machine import WarpMachine
from gemmlab.errors import EmulationError

# If blocks can wait for each other, one thread interleaves blocks with up to this many lanes, as on
# the NumPy tier. Each runs alone for its first turns, so that blocks that do not wait end one after
# another.
RESIDENT_LANES = 8192
TURNS_ALONE = 8
# A loop is assumed to be endless if none of a thread's blocks has ended for this processor time,
# not counting compilation. If the blocks wait for each other, a warp must also have executed part
# of its budget; the block that is furthest gets more turns than the others.
PATIENCE_SECONDS = 4.0
PART = 10
TURNS_OF_FURTHEST = 16


class Team:
    """Threads of the host that share the blocks of a launch."""

    def __init__(self, launch: Launch, code: Code, size: int, blocks: range) -> None:
        self.launch, self.code, self.size, self.blocks = launch, code, size, blocks
        self.run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(runtime_library()["run"])
        self.next_block, self.timer = np.zeros((2, 1), np.int64)
        self.next_block[0] = blocks.start
        # The number of unfinished blocks per thread. A block may wait for a later one.
        lanes = align(launch.threads, WARP)
        self.most = max(1, RESIDENT_LANES // lanes) if code.blocks_interact else 1
        self.is_limited = launch.max_instructions <= MAX_INSTRUCTIONS  # by time, too
        self.cores: list[Core] = []
        self.failed: list[Core] = []
        self.errors: list[BaseException] = []
        self.lock = threading.Lock()
        self.stopped = False

    def work(self) -> None:
        """Run blocks until none are left."""
        with interrupts.Deferred() as signals:
            self._work(signals)

    def _work(self, signals: interrupts.Deferred) -> None:
        core, waiting = self.new_core(), deque[Core]()
        # turns: left for `core`. ran: seconds since a block has ended.
        turns, ran, furthest = TURNS_ALONE, 0.0, None
        while not self.stopped:
            block, taken, core["fuel"] = core["block"], self.next_block[0], FUEL
            core["fast"], begun = self.code.fast, time.thread_time()
            status = self.run(core.memory.ctypes.data)
            signals.handle()
            seconds = time.thread_time() - begun
            ran += seconds
            self.code.has_run(seconds)
            if status == NEEDS_SLOW:
                self.code.compile_slow(core["missing_slow"])
                signals.handle()
                continue
            if status == FAULT:
                if core.error is not None and not isinstance(core.error, EmulationError):
                    raise core.error
                self.fail(core)
                return
            started = block < 0 and self.next_block[0] == taken + 1
            if core["block"] != block and not started:  # a block has ended
                ran, furthest = 0.0, None
            elif self.is_limited and ran > PATIENCE_SECONDS:
                furthest = furthest or max([core, *waiting], key=Core.executed)
                enough = self.launch.max_instructions // PART if self.code.blocks_wait else 0
                if furthest.executed() >= enough:
                    furthest.give_up(ran)
                    self.fail(furthest)
                    return
            turns -= 1
            if status == DONE:
                if not waiting:
                    return
                core, turns = waiting.popleft(), 1
            elif core["block"] >= 0 and self.most > 1 and turns <= 0:
                waiting.append(core)
                if furthest is not None and core is not furthest:
                    waiting.remove(furthest)
                    core, turns = furthest, TURNS_OF_FURTHEST
                elif len(waiting) < self.most and self.next_block[0] < core["num_blocks"]:
                    core, turns = self.new_core(), TURNS_ALONE
                else:
                    core, turns = waiting.popleft(), 1

    def fail(self, core: Core) -> None:
        """Blocks before the core's continue, since the first fault may be in one of them."""
        self.next_block[0] = 1 << 62
        self.failed.append(core)

    def refresh(self) -> None:
        """Update the allocations in all cores."""
        for core in self.cores:
            core.update_allocations()

    def new_core(self) -> Core:
        core = Core(self.launch, self.code, self.next_block, self.timer, self.refresh, WarpMachine)
        core["num_blocks"] = self.blocks.stop
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
        try:
            for thread in others:
                thread.start()
            self.guarded_work()
            for thread in others:
                thread.join()
        except BaseException:  # an interrupt between the calls: the other threads would run on
            self.stopped = True
            raise
        if self.errors:
            raise self.errors[0]
        if self.failed:
            explain(self.launch, self.code, min(self.failed, key=lambda core: core["block"]))


def execute(
    launch: Launch, code: Code, threads: int | None = None, blocks: range | None = None
) -> Tally:
    """Run all blocks of a launch, or those of a range of step 1. Raises EmulationError.

    If blocks can interact, one thread runs them in order, which makes the results deterministic.
    """
    if launch.heap is not None:
        launch.heap.reset()
    if blocks is None:
        blocks = range(launch.grid[0] * launch.grid[1] * launch.grid[2])
    size = threads or (1 if code.blocks_interact else host_threads())
    team = Team(launch, code, min(size, len(blocks)), blocks)
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
    if core.executor is not None:
        tally.guarded_off += core.executor.tally.guarded_off
        tally.copied += core.executor.tally.copied
        for place, counts in core.executor.tally.sites.items():
            tally.sites[place].add(counts)
    table, sites = core.site_table(), list(code.sites)
    used = table[:, SITE["full"] // 8] + table[:, SITE["requests"] // 8] > 0
    for index in np.flatnonzero(used).tolist():
        (instruction, space), row = sites[index], table[index].tolist()
        site = {name: row[at // 8] for name, at in SITE.offsets.items()}
        requests = site["full"] + site["requests"]
        if instruction in code.metadata.uncounted:
            continue
        counts = SiteCounts(requests, WARP * site["full"] + site["threads"])
        if space == "shared":
            counts.wavefronts, counts.ideal_wavefronts = site["cost"], site["ideal"]
        else:
            counts.sectors = site["cost"]
        tally.sites[instruction, space].add(counts)
