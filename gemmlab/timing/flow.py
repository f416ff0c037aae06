"""Runs blocks for the counts of their basic blocks alone: warps wait only for reductions (bar.red),
and loops that only count are not run to their end.

How often a warp passes through its loops does not depend on when copies arrive, nor, in most
kernels, on what they bring. So bulk copies, mbarriers and barriers do nothing here, and every wait
is over at once, except where a barrier reduces predicates: its result depends on all warps. Warps
that do the same then move together instead of one after another. If an iteration of a counted loop
begins with the same values as an earlier one, the loop repeats the iterations since then until the
counter reaches its bound.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, three_axes
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.program import Block, Program
from gemmlab.emulator.synchronization.barriers import Barriers
from gemmlab.emulator.synchronization.clusters import ClusterBarrier
from gemmlab.emulator.synchronization.mbarriers import Mbarriers
from gemmlab.timing.counted import Counted, counted_loops, deciding, needs_copies

if TYPE_CHECKING:
    from gemmlab.emulator.copies.bulk_copies import BulkCopies

Counts = tuple[np.ndarray, ...]  # of a Tally


def follows(program: Program) -> bool:
    """Whether a FlowMachine counts what a program executes: it has bulk copies or clusters, and
    what they bring decides nothing."""
    code = program.function.instructions
    if program.may_wait:
        return False
    if not any(x.opcode[1:3] == ("async", "bulk") or "cluster" in x.opcode for x in code):
        return False
    return not needs_copies(program, deciding(program))


class _Window(NamedTuple):
    """Iterations after which a loop is in the same state again. counts: what they add."""

    iterations: int
    counts: Counts


@dataclass
class _Pass:
    """Lanes that pass through a loop.

    iterations: that have begun. seen: states at the loop's head -> iterations and counts then.
    """

    loop: Counted
    lanes: np.ndarray
    iterations: int = 0
    seen: dict[bytes, _Window] = field(default_factory=dict)

    def includes(self, number: int, lanes: np.ndarray) -> bool:
        return self.loop.head <= number <= self.loop.last and not (lanes & ~self.lanes).any()


class FlowMachine(Machine):
    """A machine whose warps wait for nothing, and which leaves out iterations that are known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.patience = sys.maxsize  # no lane waits for another, so none can starve it
        self.mbarriers = _Complete(self, self.mbarriers.all_words, self.space_cluster)
        self.clusters, self.barriers = _Joined(self), _Open(self)
        self.bulk = cast("BulkCopies", _Idle())
        program = self.launch.program
        self.loops = {loop.head: loop for loop in counted_loops(program)}
        self.slots = {name: number for number, name in enumerate(program.initial)}
        self.passing: _Pass | None = None
        self.known: dict[tuple[int, bytes], _Window] = {}

    def next_block(self) -> tuple[int, Mask | None] | None:
        place = super().next_block()
        if place is not None:
            number, lanes = place[0], self.active(place[1])
            if self.passing and not self.passing.includes(number, lanes):
                self.passing = None
            if number in self.loops:
                if self.passing is None or (self.passing.lanes != lanes).any():
                    self.passing = _Pass(self.loops[number], lanes.copy())
                self._skip(self.passing)
        return place

    def _skip(self, of: _Pass) -> None:
        """At the head of a loop, leave out as many whole windows as are left to its end."""
        loop, lanes, bound = of.loop, of.lanes, of.loop.bound
        of.iterations += 1
        counter = self._number(loop.counter, lanes)
        end = bound if isinstance(bound, int) else self._number(bound, lanes)
        if counter is None or end is None:
            return
        # A register without a slot is read only after the same basic block has written it.
        values = (self._of(name, lanes).tobytes() for name in loop.state if name in self.slots)
        state = b"".join((lanes.tobytes(), *values))
        window = self.known.get((loop.head, state))
        if window is None:
            before = of.seen.get(state)
            if before is None:
                copies = tuple(x.copy() for x in self._counts())
                of.seen[state] = _Window(of.iterations, copies)
                return
            added = (now - x for now, x in zip(self._counts(), before.counts, strict=True))
            window = _Window(of.iterations - before.iterations, tuple(added))
            self.known[loop.head, state] = window
        times = loop.left(counter, end) // window.iterations
        for total, added_once in zip(self._counts(), window.counts, strict=True):
            total += times * added_once
        slot = self.slots[loop.counter]
        old = three_axes(self.registers[slot])
        further = np.array(times * window.iterations * loop.step).astype(old.dtype)
        self.registers[slot] = np.where(lanes, old + further, old)
        of.seen.clear()

    def _counts(self) -> Counts:
        tally = self.tally
        return tally.warps, tally.lanes, tally.guarded_off, tally.divergent

    def _of(self, name: str, lanes: np.ndarray) -> np.ndarray:
        """The values of a register in some lanes."""
        value = three_axes(self.registers[self.slots[name]])
        found: np.ndarray = np.broadcast_to(value, lanes.shape)[lanes]
        return found

    def _number(self, name: str, lanes: np.ndarray) -> int | None:
        """The value of a register that is the same in some lanes, or None if it is not."""
        values = self._of(name, lanes)
        return int(values[0]) if (values == values[0]).all() else None


class _Idle:
    """Replaces the engine of bulk copies."""

    transfers = ()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class _Complete(Mbarriers):
    """Mbarriers whose phases are always complete."""

    def init(self, *_: Any) -> None:
        pass

    def invalidate(self, *_: Any) -> None:
        pass

    def expect(self, *_: Any) -> None:
        pass

    def arrive(self, *_: Any, **__: Any) -> np.ndarray:
        return np.zeros((1, 1, 1), np.uint64)

    def wait(self, block: Block, _: tuple[Any, ...], mask: Mask | None) -> None:
        self._set(block, np.True_, None if mask is None else mask.array)
        self.threads.go(block.targets[-1], mask)


class _Joined(ClusterBarrier):
    """A barrier at which all blocks of the cluster have arrived."""

    def arrive(self, *_: Any) -> None:
        pass

    def wait(self, block: Block, mask: Mask | None) -> None:
        self.threads.go(block.targets[-1], mask)


class _Open(Barriers):
    """Barriers of a block at which all its warps have arrived, except those that reduce."""

    def arrive(self, block: Block, *others: Any) -> None:
        if block.reduction:
            super().arrive(block, *others)
        else:
            self.threads.go(block.targets[-1], others[-1])
