"""Who last wrote and read each piece of global memory, for races in a block and between blocks.

Blocks of a launch run in any order, so what one block writes another must not touch, unless the
first told the other: it wrote, executed a fence, and then an atomic operation or a strong store
(volatile, relaxed, release) on a place where the other has since looked with an atomic operation or
a strong load. What was told is passed on with what the other tells. Between blocks the threads of a
block, and the blocks of a cluster, count as one: whether they agreed among themselves is a matter
of their clocks, as in shared memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.checks.clocks import Clocks
from gemmlab.emulator.checks.shadow import (
    PLAIN,
    column_of,
    fresh,
    ordered,
    pack,
    racing,
    site_of,
    strength,
)
from gemmlab.emulator.ptx.ir import Instruction

OWNER_BITS = 28
UNINITIALIZED = np.int64(-1)

# report(what, instruction, other instruction, other block or None, column of the other thread or
# None, indices of the accesses)
Report = Callable[[str, int, int, int | None, int | None, np.ndarray], None]
Time = tuple[int, int]  # basic block of the launch so far, instruction
NEVER: Time = (-1, 0)
FENCES = {"gpu", "sys", "gl"}
RELEASES = {"release", "acq_rel"}


def is_fence(i: Instruction) -> bool:
    """A fence that other blocks can rely on."""
    return i.root in ("fence", "membar") and bool(FENCES & {*i.modifiers})


def is_strong(i: Instruction) -> bool:
    """An access that others of its kind may meet, so that their order may show."""
    return i.root in ("atom", "red", "ld", "st") and strength(i) != PLAIN


class Records(NamedTuple):
    """Of each granule one access: `when`, step of the launch and cluster; `by`, as in shadow.py."""

    when: np.ndarray
    by: np.ndarray

    @classmethod
    def empty(cls, num_granules: int) -> Records:
        return cls(*np.zeros((2, num_granules), np.int64))

    def put(self, cells: np.ndarray, when: np.ndarray, by: np.ndarray) -> None:
        self.when[cells], self.by[cells] = when, by


class Accesses(NamedTuple):
    """What one instruction does with global memory, in blocks that run together."""

    clocks: Clocks
    owners: np.ndarray  # (n, 1): the cluster's number in the launch
    rows: np.ndarray  # (n, 1): the thread
    cells: np.ndarray  # (n, granules of each)
    site: int
    strength: int
    report: Report


class GlobalShadow:
    """Records of all of global memory, for a whole launch."""

    def __init__(self, num_granules: int, code: list[Instruction]) -> None:
        self.code = code
        self.written, self.read, self.read_too = (Records.empty(num_granules) for _ in range(3))
        self.step = 0
        self.fences: dict[int, Time] = {}  # of each block, the last one
        self.told: defaultdict[int, dict[int, Time]] = defaultdict(dict)  # place -> block -> when
        self.heard: defaultdict[int, dict[int, Time]] = defaultdict(dict)  # block -> block -> when
        # Where nobody looks at what atomic operations leave, they tell nobody anything.
        self.someone_looks = any(
            i.root == "atom" or i.root == "ld" and {"volatile", "relaxed", "acquire"} & {*i.opcode}
            for i in code
        )

    def fence(self, blocks: np.ndarray, index: int) -> None:
        for block in blocks.tolist():
            self.fences[block] = (self.step, index)

    def load(self, a: Accesses) -> None:
        self._compare(self.written, a, "a read, and a write")
        if a.strength:
            return
        when, by = self._record(a)
        old = self.read.when.take(a.cells)
        replaced = old == 0
        if not replaced.all():
            own = old & (1 << OWNER_BITS) - 1 == a.owners
            late = own & (self.read.by.take(a.cells) >= fresh(a.clocks))
            if late.any():
                rows = np.broadcast_to(a.rows, late.shape)[late]
                own[late] = ordered(a.clocks, self.read.by[a.cells[late]], rows)
            replaced |= own
        if replaced.all():
            self.read.put(a.cells, when, by)
        else:
            self.read.put(a.cells[replaced], when[replaced], by[replaced])
        others = self.read.by.take(a.cells) != by
        if others.any():
            self.read_too.put(a.cells[others], when[others], by[others])

    def store(self, a: Accesses, changed: np.ndarray) -> None:
        """`changed`: of each cell, whether the write makes a difference."""
        self._compare(self.written, a, "two writes", changed)
        for records in (self.read, self.read_too):
            self._compare(records, a, "a write, and a read", changed)
        self.written.put(a.cells, *self._record(a))

    def look(self, a: Accesses) -> None:
        """An atomic operation or a strong access: what blocks tell and hear by it."""
        i = self.code[a.site]
        tells = i.root != "ld"
        hears = i.root not in ("st", "red")
        if not self.someone_looks:
            return
        now = (self.step, a.site)
        pairs = zip(a.owners[:, 0].tolist(), a.cells[:, 0].tolist(), strict=True)
        # Lanes that meet at one place take their turns in this order, as in `memory.atomics`.
        for block, cell in dict.fromkeys(pairs):
            board = self.told[cell] if tells or cell in self.told else {}
            if hears:
                for other, when in board.items():
                    if self.heard[block].get(other, NEVER) < when:
                        self.heard[block][other] = when
            until = now if RELEASES & {*i.modifiers} else self.fences.get(block, NEVER)
            if tells and until != NEVER:
                for other, when in self.heard[block].items():
                    board[other] = max(when, board.get(other, NEVER))
                board[block] = until

    def writer(self, cell: int) -> int | None:
        """The instruction that wrote it last."""
        return int(site_of(self.written.by[cell])) if self.written.when[cell] > 0 else None

    def _record(self, a: Accesses) -> tuple[np.ndarray, np.ndarray]:
        when = np.broadcast_to(self.step << OWNER_BITS | a.owners, a.cells.shape)
        by = pack(a.site, a.clocks.column(a.rows), a.clocks.now[a.rows], a.strength)
        return when, np.broadcast_to(by, a.cells.shape)

    def _compare(
        self, records: Records, a: Accesses, what: str, among: np.ndarray | None = None
    ) -> None:
        words = records.when.take(a.cells)
        there = words > 0 if among is None else (words > 0) & among
        if not there.any():
            return
        own = words & (1 << OWNER_BITS) - 1 == a.owners
        self._compare_threads(records, a, what, there & own)
        suspect = there & ~own
        is_store = self.code[a.site].root != "ld"
        if not suspect.any() or a.strength and is_store:
            return
        where = np.flatnonzero(suspect)
        by = records.by.take(a.cells).reshape(-1)[where]
        words, sites = words.reshape(-1)[where], site_of(by)
        own = np.broadcast_to(a.owners, a.cells.shape).reshape(-1)[where]
        for word, block, other_site in np.unique([words, own, sites], axis=1).T.tolist():
            other = word & (1 << OWNER_BITS) - 1
            when = (word >> OWNER_BITS, other_site)
            is_plain = strength(self.code[other_site]) == PLAIN
            if is_plain and self.heard[block].get(other, NEVER) < when:
                same = (words == word) & (own == block) & (sites == other_site)
                which = where[same] // a.cells.shape[-1]
                a.report(what, a.site, other_site, other, None, which)

    def _compare_threads(self, records: Records, a: Accesses, what: str, there: np.ndarray) -> None:
        """Threads of one cluster."""
        by = np.where(there, records.by.take(a.cells), 0)
        at = racing(a.clocks, by, np.broadcast_to(a.rows, by.shape), a.strength)
        if not at.size:
            return
        by = by.reshape(-1)[at]
        for other_site in np.unique(site_of(by)).tolist():
            same = site_of(by) == other_site
            column = int(column_of(by[same][0]))
            a.report(what, a.site, other_site, None, column, at[same] // a.cells.shape[-1])
