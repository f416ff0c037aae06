"""Named barriers of thread blocks (PTX ISA, bar and barrier)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.deadlock import Stuck
from gemmlab.errors import EmulationError

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine

NUM_BARRIERS = 16  # per thread block


@dataclass
class Waiting:
    """Lanes that wait at a barrier, at the end of one basic block."""

    barrier: int
    block: Block
    lanes: np.ndarray  # (blocks, warps, 32) bool
    predicate: Value = None  # of bar.red


class Barriers:
    """The barriers of a chunk of blocks. A warp has arrived when all its live lanes have."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.waiting: list[Waiting] = []
        shape = NUM_BARRIERS, machine.num_blocks
        self.arrived = np.zeros(shape, np.int64)  # threads that executed bar.arrive
        self.expected = np.zeros(shape, np.int64)  # threads; 0 for all of the block

    def arrive(
        self, block: Block, operands: tuple[Value, ...], predicate: Value, mask: Mask | None
    ) -> None:
        """bar.sync a[, b], bar.red a[, b] with a predicate, and bar.arrive a, b."""
        machine, index = self.machine, block.last - 1
        modifiers = machine.launch.program.function.instructions[index].modifiers
        if mask is None and "sync" in modifiers and self._is_everyone(operands):
            for observer in machine.observers:
                observer.barrier_passed()
            machine.go(block.targets[-1], None)
            return
        on = machine.active(mask).copy()
        ids = np.broadcast_to(three_axes(operands[0]), on.shape)
        if (ids[on] >= NUM_BARRIERS).any():
            message = f"a block has barriers 0 to {NUM_BARRIERS - 1}"
            machine.fault(EmulationError, message, index, on & (ids >= NUM_BARRIERS), ids)
        count = np.broadcast_to(three_axes(operands[1] if len(operands) > 1 else 0), on.shape)
        bad = on & ((count % WARP != 0) | (count == 0))
        if len(operands) > 1 and bad.any():
            message = "a barrier's thread count must be a positive multiple of 32"
            machine.fault(EmulationError, message, index, bad, count)
        for barrier in np.unique(ids[on]).tolist():
            lanes = on & (ids == barrier)
            expected = np.where(lanes, count, 0).max(axis=(1, 2))
            self.expected[barrier] = np.maximum(self.expected[barrier], expected)
            if "arrive" in modifiers:
                for observer in machine.observers:
                    observer.barrier_arrived(barrier, lanes)
                self.arrived[barrier] += WARP * np.count_nonzero(lanes.any(axis=2), axis=1)
                machine.go(block.targets[-1], machine.make_mask(lanes))
            else:
                self.waiting.append(Waiting(barrier, block, lanes, predicate))
        self.release()

    def _is_everyone(self, operands: tuple[Value, ...]) -> bool:
        """Whether the barrier includes all threads of each block, so that no thread must wait."""
        if any(np.size(o) > 1 for o in operands) or int(operands[0]) >= NUM_BARRIERS:
            return False
        return len(operands) == 1 or int(operands[1]) == self.machine.launch.threads

    def release(self) -> None:
        """Release the lanes of every barrier at which all expected threads have arrived."""
        while self._open():
            pass

    def _open(self) -> bool:
        """Complete at most one phase of each barrier. Returns whether another may be complete."""
        machine, is_over = self.machine, False
        used = {w.barrier for w in self.waiting} | {
            *np.flatnonzero(self.arrived.any(axis=1)).tolist()
        }
        for barrier in sorted(used):
            group = [w for w in self.waiting if w.barrier == barrier]
            present = np.logical_or.reduce([np.zeros_like(machine.live), *(w.lanes for w in group)])
            warps = present.any(axis=2) & ~(machine.live & ~present).any(axis=2)
            arrived = WARP * warps.sum(axis=1) + self.arrived[barrier]
            everyone = WARP * machine.live.any(axis=2).sum(axis=1)
            wanted = np.where(self.expected[barrier] > 0, self.expected[barrier], everyone)
            opened = (arrived >= wanted) & (arrived > 0)
            if not opened.any():
                continue
            # If more warps wait than the barrier expects, the first warps complete it.
            places = wanted - self.arrived[barrier]
            present &= (WARP * np.cumsum(warps, axis=1) <= places[:, None])[:, :, None]
            released = [w.lanes & present & opened[:, None, None] for w in group]
            if machine.observers:
                groups = [(w.block, free) for w, free in zip(group, released, strict=True)]
                for observer in machine.observers:
                    counted = self.expected[barrier] > 0
                    observer.barrier_opened(barrier, groups, counted, self.arrived[barrier])
            over = opened & (arrived > wanted)
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
                machine.go(w.block.targets[-1], machine.make_mask(free))
                w.lanes = w.lanes & ~free
        self.waiting = [w for w in self.waiting if w.lanes.any()]
        return is_over

    def _reduce(self, w: Waiting, free: np.ndarray, votes: np.ndarray, present: np.ndarray) -> None:
        """Write the result of bar.red, reduced over each thread block, to the released lanes."""
        slot = w.block.result
        assert slot is not None
        count = votes.sum(axis=(1, 2), keepdims=True)
        result = {
            "popc": count,
            "or": count > 0,
            "and": count == present.sum(axis=(1, 2), keepdims=True),
        }[w.block.reduction]
        registers = self.machine.registers
        kind = registers[slot].dtype
        registers[slot] = np.where(free, result.astype(kind), registers[slot])

    def stuck(self, number: int) -> Iterator[Stuck]:
        """The threads of one block that wait at barriers."""
        alive = int(self.machine.live[number].sum())
        for w in self.waiting:
            if w.lanes[number].any():
                wanted = int(self.expected[w.barrier][number]) or alive
                threads = f"{int(w.lanes[number].sum())} of {wanted} threads wait"
                what = f"{threads} at barrier {w.barrier} ({alive} threads are alive)"
                yield Stuck(w.block.last - 1, w.lanes[number], what)
