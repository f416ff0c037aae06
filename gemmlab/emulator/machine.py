"""The machine: runs a chunk of thread blocks, block of code by block of code.

Lanes wait in `ready` under the index of the basic block they come to next; the lowest index runs
first, for all lanes that wait there. Code is laid out so that paths join at higher addresses, so
lanes that parted meet again (what BSSY and BSYNC do on hardware). Each warp has its own place, and
lanes of a warp part only when a branch divides them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np

from gemmlab.emulator.arena import GlobalMemory
from gemmlab.emulator.barriers import Barriers
from gemmlab.emulator.collectives import bits_of
from gemmlab.emulator.counters import SiteCounts
from gemmlab.emulator.lanes import WARP, Extent, Mask, Value, collapse, three_axes
from gemmlab.emulator.memory import (
    Chunk,
    GenericSpace,
    GlobalSpace,
    LocalSpace,
    ParamSpace,
    SharedSpace,
    Space,
)
from gemmlab.emulator.trace import Trace
from gemmlab.emulator.translate import Block, Program
from gemmlab.errors import EmulationError, UnsupportedInstructionError

Dim3 = tuple[int, int, int]
Side = Mask | Literal[False] | None  # lanes on one side of a branch; False for none of them
# Lanes that spin on a lock would keep those behind them from ever releasing it: after so many
# basic blocks in which some lanes had to stand back, those go first for a while.
PATIENCE, BURST = 2000, 100


@dataclass(frozen=True)
class Launch:
    """Everything that is the same for all blocks of a launch."""

    program: Program
    grid: Dim3
    block: Dim3
    parameters: np.ndarray  # bytes
    memory: GlobalMemory
    variables: dict[str, int]  # .global and .const variable -> address
    shared_bytes: int  # static and dynamic
    local_bytes: int  # per thread
    dynamic_bytes: int = 0
    trace: Trace | None = None

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


@dataclass
class Tally:
    """What the launch has executed so far."""

    warps: np.ndarray  # per basic block: times a warp executed it
    lanes: np.ndarray  # per basic block: lanes that were active, summed
    sites: defaultdict[tuple[int, str], SiteCounts]  # per memory instruction and space
    guarded_off: int = 0  # lanes whose guard was false
    divergent: int = 0  # branches that parted the lanes of a warp

    @classmethod
    def of(cls, program: Program) -> Tally:
        n = len(program.blocks)
        return cls(np.zeros(n, np.int64), np.zeros(n, np.int64), defaultdict(SiteCounts))


@dataclass
class Machine:
    """One chunk: `num_blocks` thread blocks from the linear index `first` on."""

    launch: Launch
    first: int
    num_blocks: int
    tally: Tally
    ready: dict[int, Mask | None] = field(default_factory=dict)
    registers: list[Value] = field(default_factory=list)
    turns: int = 0  # basic blocks since all lanes that can run were together
    specials: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        launch, num_warps = self.launch, -(-self.launch.threads // WARP)
        self.extent = extent = Extent(self.num_blocks, num_warps)
        self.chunk = chunk = Chunk(extent, self.tally.sites, self.fault)
        thread = np.arange(num_warps * WARP).reshape(1, num_warps, WARP)
        self.live = np.broadcast_to(thread < launch.threads, extent.shape).copy()
        self.num_lanes = self.num_blocks * launch.threads
        self.whole = launch.threads == num_warps * WARP
        self.barriers = Barriers(self)
        shared = np.zeros((self.num_blocks, -(-launch.shared_bytes // 16) * 16), np.uint8)
        local = np.zeros((*extent.shape, -(-launch.local_bytes // 16) * 16), np.uint8)
        self.space_global = GlobalSpace(launch.memory, chunk)
        self.space_const = GlobalSpace(launch.memory, chunk, counted=False)
        self.space_shared = SharedSpace(shared, launch.shared_bytes, chunk)
        self.space_local = LocalSpace(local, chunk)
        self.space_frame = LocalSpace(local, chunk, counted=False)
        self.space_param = ParamSpace(launch.parameters, chunk)
        windows: list[Space] = [self.space_global, self.space_shared, self.space_local]
        windows.append(self.space_param)
        self.space_generic = GenericSpace(dict(enumerate(windows)), chunk)
        self.specials = dict(self._special_registers(thread))
        if launch.trace is not None and self.first == 0:
            launch.trace.watch(self)

    # What generated code calls

    def special(self, name: str) -> Value:
        if name in ("%clock", "%clock64", "%globaltimer"):
            ticks = int(self.tally.warps.sum())
            return np.uint32(ticks & 0xFFFFFFFF) if name == "%clock" else np.uint64(ticks)
        return self.specials[name]

    def variable(self, name: str, offset: int) -> np.uint64:
        return np.uint64(self.launch.variables[name] + offset)

    def enabled(self, guard: Value, mask: Mask | None) -> tuple[bool, Mask | None]:
        """Whether any lane passes the guard, and the mask of those that do."""
        on, _ = self.split(guard, mask)
        return (False, None) if on is False else (True, on)

    def count_guarded(self, guard: Value, mask: Mask | None) -> None:
        """Count the lanes that a guard keeps from executing."""
        if np.size(guard) == 1:
            self.tally.guarded_off += 0 if np.all(guard) else self.lanes_of(mask)
            return
        on = np.broadcast_to(three_axes(guard), self.extent.shape)
        self.tally.guarded_off += int(np.count_nonzero(self.active(mask) & ~on))

    def unsupported(self, index: int, reason: str, guard: Value, mask: Mask | None) -> None:
        if guard is None or self.enabled(guard, mask)[0]:
            instruction = self.launch.program.function.instructions[index]
            name = ".".join(instruction.opcode)
            message = f"unsupported instruction {name}: {reason}"
            raise UnsupportedInstructionError(message, instruction.site)

    def fault(
        self,
        error: type[EmulationError],
        message: str,
        index: int,
        bad: np.ndarray,
        addresses: np.ndarray,
    ) -> NoReturn:
        """Raise `error` for the first lane at fault. bad, addresses: of the chunk's shape."""
        b, w, lane = (int(x) for x in np.argwhere(bad)[0])
        site = self.launch.program.function.instructions[index].site
        others = int(np.count_nonzero(bad)) - 1
        if others:
            message += f" (and {others} more lanes of this instruction)"
        address = int(addresses[b, w, lane])
        raise error(message, site, self.block_index(b), w * WARP + lane, address)

    # Running

    def run(self) -> None:
        """Execute the chunk to its end. Raises EmulationError."""
        blocks = self.launch.program.blocks
        self.registers = list(self.launch.program.initial)
        self.ready[0] = None if self.whole else Mask(self.live, self.extent)
        tally, all_warps = self.tally, self.extent.blocks * self.extent.warps
        while self.ready:
            pc = self.next_block()
            mask = self.ready.pop(pc)
            block = blocks[pc]
            tally.warps[pc] += all_warps if mask is None else mask.warps
            tally.lanes[pc] += self.num_lanes if mask is None else mask.lanes
            result = block.run(self, self.registers, mask)
            self.finish(block, result, mask)
            if not self.ready and self.barriers.waiting:
                self.barriers.deadlock()

    def next_block(self) -> int:
        """The lowest block that lanes are ready for; a collective waits for its members."""
        if len(self.ready) == 1:
            self.turns = 0
            return next(iter(self.ready))
        self.turns += 1
        backward = self.turns % (PATIENCE + BURST) >= PATIENCE
        order = sorted(self.ready, reverse=backward)
        return next((pc for pc in order if self.members_are_here(pc)), order[0])

    def members_are_here(self, pc: int) -> bool:
        """Whether each warp at `pc` has there all lanes that its collective names."""
        members, mask = self.launch.program.blocks[pc].members, self.ready[pc]
        if members is None or mask is None:
            return True
        missing = three_axes(members(self.registers)) & bits_of(self.live) & ~bits_of(mask.array)
        return not ((missing != 0) & mask.array).any()

    def finish(self, block: Block, result: Any, mask: Mask | None) -> None:
        """Send the lanes of `mask` on from the end of a basic block."""
        following = block.targets[-1] if block.targets else -1
        match block.terminator:
            case "fall":
                self.go(following, mask)
            case "branch":
                taken, rest = self.split(result, mask)
                if taken is not False:
                    self.go(block.targets[0], taken)
                if rest is not False:
                    self.go(following, rest)
                if isinstance(taken, Mask) and isinstance(rest, Mask):
                    self.tally.divergent += taken.shared_warps(rest)
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
            case "trap":
                hit, rest = self.split(result, mask)
                if hit is not False:
                    lanes = self.active(hit)
                    self.fault(EmulationError, "trap", block.last - 1, lanes, np.zeros(lanes.shape))
                if rest is not False:
                    self.go(following, rest)

    def go(self, target: int, mask: Mask | None) -> None:
        """Let lanes run block `target`, together with those that already wait there."""
        if target not in self.ready:
            self.ready[target] = mask
            return
        present = self.ready[target]
        assert present is not None and mask is not None
        self.ready[target] = self.make_mask(present.array | mask.array, present.lanes + mask.lanes)

    def make_mask(self, array: np.ndarray, lanes: int | None = None) -> Mask | None:
        mask = Mask(array, self.extent, lanes)
        return None if self.whole and mask.lanes == self.num_lanes else mask

    def active(self, mask: Mask | None) -> np.ndarray:
        return self.live if mask is None else mask.array

    def lanes_of(self, mask: Mask | None) -> int:
        return self.num_lanes if mask is None else mask.lanes

    def split(self, predicate: Value, mask: Mask | None) -> tuple[Side, Side]:
        """Lanes where the predicate holds (None holds for all), and the others."""
        if predicate is None:
            return mask, False
        if np.size(predicate) == 1:
            return (mask, False) if np.any(predicate) else (False, mask)
        predicate = three_axes(predicate)
        if mask is None:
            if predicate.all():
                return mask, False
            if not predicate.any():
                return False, mask
            yes = Mask(predicate, self.extent)
        else:
            yes = Mask(predicate & mask.array, self.extent)
            if yes.lanes == mask.lanes:
                return mask, False
            if yes.lanes == 0:
                return False, mask
        rest = self.active(mask) & ~yes.array
        return yes, Mask(rest, self.extent, self.lanes_of(mask) - yes.lanes)

    def exit(self, mask: Mask | None) -> None:
        if mask is None:
            self.live[:] = False
            return
        self.live &= ~mask.array
        self.whole = False
        self.barriers.release()

    def switch(self, block: Block, index: Value, mask: Mask | None) -> None:
        """brx.idx: one target per value; past the table PTX defines nothing, an error here."""
        values = np.broadcast_to(three_axes(index), self.extent.shape)
        on = self.active(mask)
        table = block.targets[:-1]
        if (values[on] >= len(table)).any():
            bad = on & (values >= len(table))
            message = f"branch index past the table of {len(table)} targets"
            self.fault(EmulationError, message, block.last - 1, bad, values)
        for value in np.unique(values[on]).tolist():
            self.go(table[value], self.make_mask(on & (values == value)))

    # Coordinates

    def block_index(self, number: int) -> Dim3:
        x, y, _ = self.launch.grid
        linear = self.first + number
        return linear % x, linear // x % y, linear // (x * y)

    def _special_registers(self, thread: np.ndarray) -> Iterator[tuple[str, Value]]:
        u32 = np.uint32
        grid, shape = self.launch.grid, self.launch.block
        linear = self.first + np.arange(self.num_blocks).reshape(-1, 1, 1)
        step_t = step_b = 1
        for axis, name in enumerate("xyz"):
            yield f"%tid.{name}", collapse((thread // step_t % shape[axis]).astype(u32))
            yield f"%ctaid.{name}", collapse((linear // step_b % grid[axis]).astype(u32))
            yield f"%ntid.{name}", u32(shape[axis])
            yield f"%nctaid.{name}", u32(grid[axis])
            step_t, step_b = step_t * shape[axis], step_b * grid[axis]
        lane = np.arange(WARP, dtype=u32).reshape(1, 1, WARP)
        one = u32(1)
        yield "%laneid", lane
        yield "%warpid", collapse((thread // WARP).astype(u32))
        yield "%lanemask_eq", one << lane
        yield "%lanemask_lt", (one << lane) - one
        yield "%lanemask_le", ((one << lane) - one) | (one << lane)
        yield "%lanemask_ge", ~((one << lane) - one)
        yield "%lanemask_gt", ~(((one << lane) - one) | (one << lane))
        yield "%nwarpid", u32(self.extent.warps)
        yield "%smid", collapse((linear % 1).astype(u32))
        yield "%nsmid", one
        yield "%gridid", u32(0)
        yield "%dynamic_smem_size", u32(self.launch.dynamic_bytes)
        yield "%total_smem_size", u32(self.launch.shared_bytes)
        yield "WARP_SZ", u32(WARP)
