"""The machine runs a chunk of thread blocks, one basic block of code at a time.

`ready` maps the index of a basic block to the lanes that will execute it next. The lowest index
runs first, for all its lanes at once. Compilers place join points at higher addresses, so diverged
lanes reconverge there, as BSSY and BSYNC make them do on hardware. Warps advance independently;
lanes of a warp diverge only at branches.

Lanes that wait (at a barrier, for an mbarrier phase, or at a collective for other lanes) are not in
`ready`, so waiting costs no time. When no lane is ready, waits that may time out do so; if that
unblocks no lane, the machine reports a deadlock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, spread, three_axes
from gemmlab.emulator.copies.async_copies import AsyncCopies, Source, Target
from gemmlab.emulator.copies.bulk_copies import BulkCopies
from gemmlab.emulator.execution.budget import over_budget
from gemmlab.emulator.execution.schedule import Order, candidates
from gemmlab.emulator.launch import printing
from gemmlab.emulator.launch.coordinates import SpecialRegisters
from gemmlab.emulator.launch.threads import Threads
from gemmlab.emulator.memory import heap
from gemmlab.emulator.memory.clusters import ClusterSpace
from gemmlab.emulator.memory.generic import GenericSpace
from gemmlab.emulator.memory.spaces import GlobalSpace, LocalSpace, ParamSpace, SharedSpace
from gemmlab.emulator.program import Block, Program
from gemmlab.emulator.synchronization.barriers import Barriers
from gemmlab.emulator.synchronization.clusters import ClusterBarrier
from gemmlab.emulator.synchronization.deadlock import Waits, deadlock
from gemmlab.emulator.synchronization.mbarriers import Mbarriers
from gemmlab.emulator.synchronization.warps import WarpWaits
from gemmlab.emulator.tensor_cores.matrices import MatrixSpace
from gemmlab.emulator.tensor_cores.wgmma import Wgmma
from gemmlab.emulator.translation.emit.calls import FATAL
from gemmlab.errors import EmulationError, UnsupportedInstructionError

# Lanes that spin on a lock could starve the lanes that would release it. After PATIENCE basic
# blocks in which some ready lanes did not run, the priority is inverted for BURST basic blocks;
# SPIN_PATIENCE replaces PATIENCE in programs that contain spin loops.
PATIENCE, SPIN_PATIENCE, BURST = 2000, 50, 100
# A launch is long if a warp executes more instructions than this. A warp of a GEMM executes a few
# tens times k.
LONG = 50_000
# %clock advances by this much per instruction of a warp: the latency of simple arithmetic. It
# counts the instructions of one warp, so that lockstep kernels read the same values on both tiers.
CYCLES = 4


def patience_of(program: Program) -> int:
    """Number of basic blocks after which lanes that did not run take priority."""
    return SPIN_PATIENCE if any(block.spins for block in program.blocks) else PATIENCE


@dataclass
class Machine(Threads):
    """Executes one chunk of thread blocks, which consists of whole clusters."""

    order: Order = field(default_factory=Order)
    asleep: list[tuple[int, Mask | None]] = field(default_factory=list)  # next block, lanes
    steps: int = 0  # executed basic blocks
    executed: int = 0  # instructions in those basic blocks
    turns: int = 0  # basic blocks since all ready lanes were converged
    specials: SpecialRegisters = field(init=False)
    recorded: dict[int, tuple[Value, ...]] = field(default_factory=dict)  # operands, for the checks

    def __post_init__(self) -> None:
        super().__post_init__()
        launch, extent, chunk = self.launch, self.extent, self.chunk
        shared, local = self.memories()
        self.space_global = GlobalSpace(launch.memory, chunk)
        self.space_const = GlobalSpace(launch.memory, chunk, counted=False)
        self.space_shared = SharedSpace(shared, launch.shared_bytes, chunk)
        self.space_local = LocalSpace(local, chunk)
        self.space_frame = LocalSpace(local, chunk, counted=False)
        self.space_param = ParamSpace(launch.parameters, chunk)
        target = Target(shared, launch.shared_bytes, chunk)
        self.copies = AsyncCopies(Source(launch.memory, chunk), target, chunk, self.observers)
        self.space_matrices = MatrixSpace(shared, launch.shared_bytes, chunk)
        cluster_size = math.prod(launch.cluster)
        self.space_cluster = ClusterSpace(shared, launch.shared_bytes, chunk)
        self.space_cluster.cluster_size = cluster_size
        reachable = self.space_cluster if cluster_size > 1 else self.space_shared
        self.space_generic = GenericSpace(
            {
                "global": self.space_global,
                "shared": reachable,
                "local": self.space_local,
                "param": self.space_param,
            },
            chunk,
        )
        self.specials = SpecialRegisters(launch, self.blocks, extent)
        turns = 1 if self.order.is_lockstep else extent.warps
        self.budget = launch.max_instructions * turns
        self.pause_at = min(LONG * turns, self.budget)
        self.patience = patience_of(launch.program)
        self.barriers = Barriers(self)
        self.mbarriers = Mbarriers(self, shared, self.space_cluster)
        self.clusters = ClusterBarrier(self)
        self.warps = WarpWaits(self)
        self.waits: list[Waits] = [self.warps, self.barriers, self.mbarriers, self.clusters]
        self.bulk = BulkCopies(self, shared, self.mbarriers, self.order.to_complete)
        self.wgmma = Wgmma(self, shared)

    def memories(self) -> tuple[np.ndarray, np.ndarray]:
        """Zeroed shared memory, (blocks, bytes), and local memory, (blocks, warps, 32, bytes)."""
        shared = (self.num_blocks, -(-self.launch.shared_bytes // 16) * 16)
        local = (*self.extent.shape, -(-self.launch.local_bytes // 16) * 16)
        return np.zeros(shared, np.uint8), np.zeros(local, np.uint8)

    # Called by generated code

    def special(self, name: str) -> Value:
        return self.specials[name]

    def clock(self, name: str, instructions: int) -> Value:
        """%clock in cycles or %globaltimer, after `instructions` of the current basic block."""
        cycles = CYCLES * (self.executed + instructions)
        ticks = int(self.tally.warps.sum()) if "timer" in name else cycles
        if name in ("%clock64", "%globaltimer"):
            return np.uint64(ticks)
        return np.uint32((ticks >> 32 if name.endswith("_hi") else ticks) & 0xFFFFFFFF)

    def variable(self, name: str, offset: int) -> np.uint64:
        return np.uint64(self.launch.variables[name] + offset)

    def count_guarded(self, index: int, guard: Value, mask: Mask | None) -> None:
        """Count the lanes that a guard predicates off."""
        if np.size(guard) == 1:
            self.tally.guarded_off[index] += 0 if np.all(guard) else self.lanes_of(mask)
            return
        on = spread(three_axes(guard), self.extent.shape)
        self.tally.guarded_off[index] += int(np.count_nonzero(self.active(mask) & ~on))

    def unsupported(self, index: int, reason: str, guard: Value, mask: Mask | None) -> None:
        if guard is None or self.enabled(guard, mask)[0]:
            instruction = self.launch.program.function.instructions[index]
            fatal = FATAL.get(instruction.callee or "")
            if fatal is not None:
                on, nowhere = self.active(mask), np.zeros(self.extent.shape, int)
                self.fault(EmulationError, fatal, index, on, nowhere)
            name = ".".join(instruction.opcode)
            message = f"unsupported instruction {name}: {reason}"
            raise UnsupportedInstructionError(message, instruction.site)

    def printf(self, where: Value, arguments: Value, mask: Mask | None) -> np.ndarray:
        launch, stacks = self.launch, self.space_local.data
        formats, buffers = (self.chunk.spread(three_axes(x)) for x in (where, arguments))
        on = self.active(mask)
        return printing.vprintf(launch.screen, launch.memory, stacks, formats, buffers, on)

    def malloc(self, sizes: Value, mask: Mask | None) -> np.ndarray:
        assert self.launch.heap is not None
        found = heap.allocate(self.launch.heap, self.chunk, sizes, self.active(mask))
        for observer in self.observers:
            observer.allocated(found, sizes)
        return found

    def free(self, index: int, addresses: Value, mask: Mask | None) -> None:
        assert self.launch.heap is not None
        heap.release(self.launch.heap, self.chunk, index, addresses, self.active(mask))

    # Running

    def run(self) -> Iterator[None]:
        """Run the chunk to completion. Yields whenever it can only wait for other chunks to change
        memory. Raises EmulationError."""
        program = self.launch.program
        self.registers = list(program.initial.values())
        self.ready[0] = None if self.whole else Mask(self.live, self.extent)
        tally, all_warps = self.tally, self.extent.blocks * self.extent.warps
        while self.proceed():
            place = self.next_block()
            if place is None:
                continue
            pc, mask = place
            block = program.blocks[pc]
            warps = all_warps if mask is None else mask.warps
            tally.execute(pc, warps, self.lanes_of(mask))
            for observer in self.observers:
                observer.before(pc, block, mask)
            result = block.run(self, self.registers, mask)
            for observer in self.observers:
                observer.after(pc, block, mask)
            self.finish(block, result, mask)
            self.steps += 1
            self.executed += block.last - block.first
            if self.executed > self.pause_at:
                self.pause(pc, mask)
            if self.is_idle():
                yield

    def pause(self, pc: int, mask: Mask | None) -> None:
        """The chunk has executed many instructions. Raises BudgetError if these are too many."""
        if self.executed > self.budget:
            over_budget(self, pc, mask)
        self.pause_at = self.budget
        self.tally.is_long()

    def proceed(self) -> bool:
        """Whether any lane can run, after waking lanes whose wait is over."""
        if self.warps.due:
            return True
        if self.warps.waiting and not self.ready:
            self.warps.retry()
        self.mbarriers.wake()
        if self.bulk.transfers:
            self.bulk.complete_some()
            if not self.ready or self.steps % PATIENCE == 0:
                self.bulk.complete_awaited()
            self.mbarriers.wake()
        if self.steps % PATIENCE == 0:
            self.mbarriers.time_out()
        if not self.ready or self.steps % PATIENCE == 0:
            self.wake_sleepers()
        if not self.ready:
            self.mbarriers.give_up()
        if not self.ready and self.live.any():
            deadlock(self, self.waits)
        return bool(self.ready)

    def is_idle(self) -> bool:
        """Whether all lanes sleep or wait, or diverged lanes have long starved others."""
        alone = bool(self.asleep) and not self.ready
        return alone or self.turns % (self.patience + BURST) == self.patience + BURST - 1

    def is_burst(self) -> bool:
        """Whether the priority is inverted at this turn."""
        return self.turns % (self.patience + BURST) >= self.patience

    def spin(self, target: int, mask: Mask | None) -> None:
        """Repeat a spin loop: its lanes sleep until no other lanes can run."""
        self.asleep.append((target, mask))

    def wake_sleepers(self) -> None:
        asleep, self.asleep = self.asleep, []
        for following, mask in asleep:
            self.go(following, mask)

    def next_block(self) -> tuple[int, Mask | None] | None:
        """Take the next basic block and its lanes out of `ready`. None if all ready lanes wait for
        other lanes of their warps."""
        if self.warps.due:
            return self.warps.next_due()
        self.warps.rendezvous = None
        self.turns = self.turns + 1 if len(self.ready) > 1 else 0
        recalled = bool(self.warps.waiting)
        if self.order.is_lockstep and not recalled:
            for pc in sorted(self.ready, reverse=self.is_burst()):
                if self.warps.lacking(pc, self.ready[pc]) is None:
                    return pc, self.ready.pop(pc)
        if recalled:
            self.warps.recall()
        for parts in candidates(self, self.order):
            place = self.warps.choose(parts, sorted(parts, reverse=self.is_burst()))
            if place is not None:
                for pc, mask in (place, *((pc, mask) for pc, mask, _ in self.warps.due)):
                    self.leave(pc, mask)
                if recalled:
                    self.warps.hold()
                return place
        self.warps.hold()
        return None

    def finish(self, block: Block, result: Any, mask: Mask | None) -> None:
        """Move the lanes of `mask` from the end of a basic block to their next ones."""
        following = block.targets[-1] if block.targets else -1
        match block.terminator:
            case "fall":
                self.go(following, mask)
            case "branch":
                taken, rest = self.split(result, mask)
                if rest is not False:
                    self.go(following, rest)
                if taken is not False and block.spins:
                    self.spin(block.targets[0], taken)
                elif taken is not False:
                    self.go(block.targets[0], taken)
                if isinstance(taken, Mask) and isinstance(rest, Mask):
                    self.tally.divergent[block.last - 1] += taken.shared_warps(rest)
            case "exit":
                done, rest = self.split(result, mask)
                if rest is not False:
                    self.go(following, rest)
                if done is not False:
                    self.exit(done)
            case "switch" | "barrier":
                on, rest = self.split(result[0], mask)
                if rest is not False:
                    self.go(following, rest)
                if on is not False and block.terminator == "switch":
                    self.switch(block, result[1], on)
                elif on is not False:
                    self.barriers.arrive(block, result[1], result[2], on)
            case "phase" | "sleep" | "cluster":
                on, rest = self.split(result[0], mask)
                if rest is not False:
                    self.go(following, rest)
                if on is not False and block.terminator == "phase":
                    self.mbarriers.wait(block, result[1:], on)
                elif on is not False and block.terminator == "cluster":
                    self.clusters.wait(block, on)
                elif on is not False:
                    self.asleep.append((following, on))
            case "trap":
                hit, rest = self.split(result, mask)
                if hit is not False:
                    lanes = self.active(hit)
                    self.fault(EmulationError, "trap", block.last - 1, lanes, np.zeros(lanes.shape))
                if rest is not False:
                    self.go(following, rest)

    def together(self, mask: Mask | None) -> np.ndarray:
        """All lanes that take part in a collective: `mask`, and lanes at identical instructions."""
        return self.active(mask) if self.warps.rendezvous is None else self.warps.rendezvous.lanes

    def given(self, value: Value) -> Value:
        """The operand of a collective, for all lanes that take part."""
        return value if self.warps.rendezvous is None else self.warps.rendezvous.given(value)

    def exit(self, mask: Mask | None) -> None:
        lanes = self.active(mask).copy()
        self.live &= ~lanes
        if mask is not None:
            self.whole = False
            self.barriers.release()
            self.clusters.release()
        for observer in self.observers:
            observer.exited(lanes)

    def switch(self, block: Block, index: Value, mask: Mask | None) -> None:
        """brx.idx: jump to the target in the table. An index past the table is undefined in PTX
        and an error here."""
        values = np.broadcast_to(three_axes(index), self.extent.shape)
        on = self.active(mask)
        table = block.targets[:-1]
        if (values[on] >= len(table)).any():
            bad = on & (values >= len(table))
            message = f"branch index past the table of {len(table)} targets"
            self.fault(EmulationError, message, block.last - 1, bad, values)
        for value in np.unique(values[on]).tolist():
            self.go(table[value], self.make_mask(on & (values == value)))
