"""Named barriers of thread blocks (PTX ISA, bar and barrier)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes
from gemmlab.emulator.launch.threads import Threads
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.deadlock import Blocked
from gemmlab.errors import EmulationError

NUM_BARRIERS = 16  # per thread block


# Rules of both tiers. The native tier calls them with values of its IR.


def is_bad_count(count: Value) -> Value:
    """Whether PTX forbids a barrier to expect this many threads."""
    return (count % np.uint32(WARP) != 0) | (count == 0)


def wanted(expected: Value, alive: Value) -> Value:
    """How many threads a barrier waits for. expected: 0 if its instructions have no count. alive:
    threads of the block's live warps."""
    return np.where(expected > 0, expected, alive)


def is_complete(arrived: Value, wanted: Value) -> Value:
    """Whether a phase of a barrier is complete."""
    return (arrived >= wanted) & (arrived > 0)


def reduction(name: str, yes: Value, lanes: Value) -> Value:
    """The result of bar.red. yes: lanes whose predicate is true. lanes: all that take part."""
    return {"popc": yes, "and": yes == lanes, "or": yes > 0}[name]


@dataclass
class Waiting:
    """Lanes that wait at a barrier, at the end of one basic block."""

    barrier: int
    block: Block
    lanes: np.ndarray  # (blocks, warps, 32) bool
    predicate: Value = None  # of bar.red


class Barriers:
    """The barriers of a chunk of blocks. A warp has arrived when all its live lanes have."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.waiting: list[Waiting] = []
        shape = NUM_BARRIERS, threads.num_blocks
        self.arrived = np.zeros(shape, np.int64)  # threads that executed bar.arrive
        self.expected = np.zeros(shape, np.int64)  # threads; 0 for all of the block

    def arrive(
        self, block: Block, operands: tuple[Value, ...], predicate: Value, mask: Mask | None
    ) -> None:
        """bar.sync a[, b], bar.red a[, b] with a predicate, and bar.arrive a, b."""
        threads, index = self.threads, block.last - 1
        modifiers = threads.launch.program.function.instructions[index].modifiers
        if mask is None and "sync" in modifiers and self._is_everyone(operands):
            for observer in threads.observers:
                observer.barrier_passed()
            threads.go(block.targets[-1], None)
            return
        on = threads.active(mask).copy()
        ids = np.broadcast_to(three_axes(operands[0]), on.shape)
        if (ids[on] >= NUM_BARRIERS).any():
            message = f"a block has barriers 0 to {NUM_BARRIERS - 1}"
            threads.fault(EmulationError, message, index, on & (ids >= NUM_BARRIERS), ids)
        count = np.broadcast_to(three_axes(operands[1] if len(operands) > 1 else 0), on.shape)
        bad = on & is_bad_count(count)
        if len(operands) > 1 and bad.any():
            message = "a barrier's thread count must be a positive multiple of 32"
            threads.fault(EmulationError, message, index, bad, count)
        for barrier in np.unique(ids[on]).tolist():
            lanes = on & (ids == barrier)
            expected = np.where(lanes, count, 0).max(axis=(1, 2))
            self.expected[barrier] = np.maximum(self.expected[barrier], expected)
            if "arrive" in modifiers:
                for observer in threads.observers:
                    observer.barrier_arrived(barrier, lanes)
                self.arrived[barrier] += WARP * np.count_nonzero(lanes.any(axis=2), axis=1)
                threads.go(block.targets[-1], threads.make_mask(lanes))
            else:
                self.waiting.append(Waiting(barrier, block, lanes, predicate))
        self.release()

    def _is_everyone(self, operands: tuple[Value, ...]) -> bool:
        """Whether the barrier includes all threads of each block, so that no thread must wait."""
        if any(np.size(o) > 1 for o in operands) or int(operands[0]) >= NUM_BARRIERS:
            return False
        return len(operands) == 1 or int(operands[1]) == self.threads.launch.threads

    def release(self) -> None:
        """Release the lanes of every barrier at which all expected threads have arrived."""
        while self._open():
            pass

    def _open(self) -> bool:
        """Complete at most one phase of each barrier. Returns whether another may be complete."""
        threads, is_over = self.threads, False
        used = {w.barrier for w in self.waiting} | {
            *np.flatnonzero(self.arrived.any(axis=1)).tolist()
        }
        for barrier in sorted(used):
            group = [w for w in self.waiting if w.barrier == barrier]
            present = np.logical_or.reduce([np.zeros_like(threads.live), *(w.lanes for w in group)])
            warps = present.any(axis=2) & ~(threads.live & ~present).any(axis=2)
            arrived = WARP * warps.sum(axis=1) + self.arrived[barrier]
            everyone = WARP * threads.live.any(axis=2).sum(axis=1)
            goal = wanted(self.expected[barrier], everyone)
            opened = is_complete(arrived, goal)
            if not opened.any():
                continue
            # If more warps wait than the barrier expects, the first warps complete it.
            places = goal - self.arrived[barrier]
            present &= (WARP * np.cumsum(warps, axis=1) <= places[:, None])[:, :, None]
            released = [w.lanes & present & opened[:, None, None] for w in group]
            if threads.observers:
                groups = [(w.block, free) for w, free in zip(group, released, strict=True)]
                for observer in threads.observers:
                    counted = self.expected[barrier] > 0
                    observer.barrier_opened(barrier, groups, counted, self.arrived[barrier])
            over = opened & (arrived > goal)
            is_over |= bool(over.any())
            self.arrived[barrier][opened] = self.expected[barrier][opened & ~over] = 0
            votes = [
                present & w.lanes & three_axes(w.predicate) for w in group if w.block.reduction
            ]
            for w, free in zip(group, released, strict=True):
                if not free.any():
                    continue
                if votes:
                    self._reduce(w, free, np.logical_or.reduce(votes), present)
                threads.go(w.block.targets[-1], threads.make_mask(free))
                w.lanes = w.lanes & ~free
        self.waiting = [w for w in self.waiting if w.lanes.any()]
        return is_over

    def _reduce(self, w: Waiting, free: np.ndarray, votes: np.ndarray, present: np.ndarray) -> None:
        """Write the result of bar.red, reduced over each thread block, to the released lanes."""
        slot = w.block.result
        assert slot is not None
        yes, lanes = (x.sum(axis=(1, 2), keepdims=True) for x in (votes, present))
        result = reduction(w.block.reduction, yes, lanes)
        registers = self.threads.registers
        kind = registers[slot].dtype
        registers[slot] = np.where(free, result.astype(kind), registers[slot])

    def blocked(self, number: int) -> Iterator[Blocked]:
        """The threads of one block that wait at barriers."""
        alive = int(self.threads.live[number].sum())
        for w in self.waiting:
            if w.lanes[number].any():
                goal = int(wanted(self.expected[w.barrier][number], alive))
                threads = f"{int(w.lanes[number].sum())} of {goal} threads wait"
                what = f"{threads} at barrier {w.barrier} ({alive} threads are alive)"
                yield Blocked(w.block.last - 1, w.lanes[number], what)
