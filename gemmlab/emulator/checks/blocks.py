"""Who last wrote and read each piece of global memory, for races in a block and between blocks.

Blocks of a launch run in any order, so what one block writes another must not touch, unless the
first told the other: it wrote, executed a fence, and then an atomic operation or a strong store
(volatile, relaxed, release) on a place where the other has since looked with an atomic operation or
a strong load. What was told is passed on with what the other tells. A fence is for what its threads
know of by their clocks, and who has looked passes it on within the block by the same clocks. Blocks
of a cluster count as one block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.checks.clocks import Clocks
from gemmlab.emulator.checks.shadow import (
    EPOCH_AT,
    IN_FLIGHT,
    PLAIN,
    STRENGTH_AT,
    column_of,
    fresh,
    ordered,
    pack,
    racing,
    site_of,
    strength,
)
from gemmlab.ptx.ir import Instruction

OWNER_BITS = 28
UNINITIALIZED = np.int64(-1)

# report(what, instruction, other instruction, other block or None, column of the other thread or
# None, indices of the accesses)
Report = Callable[[str, int, int, int | None, int | None, np.ndarray], None]
Time = tuple[int, int]  # basic block of the launch so far, instruction
FENCES = {"gpu", "sys", "gl"}
RELEASES = {"release", "acq_rel"}
ATOMICS = {"atom", "red"}
SUMS = {"add", "inc", "dec", "xor"}
WITHIN = {"cta", "cluster"}  # scopes of atomic operations that other blocks need not see whole


def is_fence(i: Instruction) -> bool:
    """A fence that other blocks can rely on."""
    return i.root in ("fence", "membar") and bool(FENCES & {*i.modifiers})


def is_strong(i: Instruction) -> bool:
    """An access that others of its kind may meet, so that their order may show."""
    return i.root in ("atom", "red", "ld", "st") and strength(i) != PLAIN


def is_sum(i: Instruction) -> bool:
    return i.root in ATOMICS and bool(SUMS & {*i.modifiers})


def is_narrow(i: Instruction) -> bool:
    """Atomic or strong, but for threads of a block or cluster alone."""
    return bool(WITHIN & {*i.modifiers})


class Records(NamedTuple):
    """Of each granule one access: `when`, step of the launch and cluster; `by`, as in shadow.py."""

    when: np.ndarray
    by: np.ndarray

    @classmethod
    def empty(cls, num_granules: int) -> Records:
        return cls(*np.zeros((2, num_granules), np.int64))

    def differ(self, cells: np.ndarray, when: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Where the record is that of another access."""
        found: np.ndarray = (self.when.take(cells) != when) | (self.by.take(cells) != by)
        return found

    def put(self, cells: np.ndarray, when: np.ndarray, by: np.ndarray) -> None:
        self.when[cells], self.by[cells] = when, by


class News(NamedTuple):
    """What a block tells: all until then, of its threads as far as their clocks were known."""

    until: Time
    known: np.ndarray  # by column


class Hearing(NamedTuple):
    """Of one thread: what it heard, and when on its own clock."""

    news: News
    epoch: int


class Accesses(NamedTuple):
    """What one instruction does with global memory, in blocks that run together."""

    clocks: Clocks
    owners: np.ndarray  # (n, 1): the cluster's number in the launch
    rows: np.ndarray  # (n, 1): the thread
    cells: np.ndarray  # (n, granules of each)
    site: int
    strength: int
    report: Report
    in_flight: bool = False  # by a copy that nobody has waited for yet


class GlobalShadow:
    """Records of all of global memory, for a whole launch."""

    def __init__(self, num_granules: int, code: list[Instruction]) -> None:
        self.code = code
        self.written, self.read, self.read_too, self.updated = (
            Records.empty(num_granules) for _ in range(4)
        )
        # Of each granule, whether an atomic operation or a strong load has accessed it.
        self.looked = np.zeros(num_granules, bool)
        self.step = 0
        self.is_mixed = False  # plain and other accesses of several blocks to one place
        # Of each block: those of the basic block under way, and the last one before.
        self.fences: defaultdict[int, list[News]] = defaultdict(list)
        self.told: defaultdict[int, dict[int, News]] = defaultdict(dict)  # place -> block -> what
        # block -> block -> column of the thread that heard
        self.heard: defaultdict[int, dict[int, dict[int, Hearing]]] = defaultdict(dict)
        # Where nobody looks at what atomic operations leave, they tell nobody anything.
        self.someone_looks = any(
            i.root == "atom"
            or (i.root == "ld" and {"volatile", "relaxed", "acquire"} & {*i.opcode})
            for i in code
        )

    def fence(self, clocks: Clocks, owners: np.ndarray, rows: np.ndarray, index: int) -> None:
        """owners: of each of the threads."""
        for owner in np.unique(owners).tolist():
            news = self._news(clocks, owner, rows[owners == owner], index)
            earlier = [n for n in self.fences[owner] if n.until[0] < self.step][-1:]
            here = [n for n in self.fences[owner] if n.until[0] == self.step]
            self.fences[owner] = [*earlier, *here, news]

    def _news(self, clocks: Clocks, owner: int, rows: np.ndarray, index: int) -> News:
        known = clocks.together(rows)[: clocks.members]
        if self.fences[owner]:
            known = np.maximum(known, self.fences[owner][-1].known)
        return News((self.step, index), known)

    def load(self, a: Accesses) -> None:
        self._compare(self.written, a, "a read, and a write")
        self._compare_copies(a)
        if a.strength:
            return
        self._compare(self.updated, a, "a read, and a write")
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
        others = self.read.differ(a.cells, when, by)
        if others.any():
            self.read_too.put(a.cells[others], when[others], by[others])

    def store(self, a: Accesses, changed: np.ndarray) -> None:
        """`changed`: of each cell, whether the write makes a difference."""
        self._compare(self.written, a, "two writes", changed)
        for records in (self.read, self.read_too):
            self._compare(records, a, "a write, and a read", changed)
        when, by = self._record(a)
        if self.code[a.site].root in ATOMICS:
            old = self.written.when.take(a.cells)
            earlier = (old > 0) & (old & (1 << OWNER_BITS) - 1 != a.owners)
            cells = a.cells[earlier]
            self.updated.put(cells, old[earlier], self.written.by[cells])
        self.written.put(a.cells, when, by)
        if self.code[a.site].root in ATOMICS:
            others = self.written.differ(a.cells, when, by)
            self.updated.put(a.cells[others], when[others], by[others])
        if a.strength and is_narrow(self.code[a.site]):
            last = self.written.when.take(a.cells) & (1 << OWNER_BITS) - 1
            others = np.flatnonzero((last != a.owners).any(axis=1))
            if others.size:
                what = "atomic operations of a scope that does not reach the other block"
                a.report(what, a.site, a.site, int(last[others[0], 0]), None, others)

    def look(self, a: Accesses) -> None:
        """An atomic operation or a strong access: what blocks tell and hear by it."""
        i = self.code[a.site]
        tells = i.root != "ld"
        hears = i.root not in ("st", "red")
        if not self.someone_looks or is_narrow(i):
            return
        is_release = tells and bool(RELEASES & {*i.modifiers})
        owners, rows, cells = a.owners[:, 0], a.rows[:, 0], a.cells[:, 0]
        released: dict[int, News] = {}
        if is_release:
            for owner in np.unique(owners).tolist():
                released[owner] = self._news(a.clocks, owner, rows[owners == owner], a.site)
        now, columns = a.clocks.now[rows].tolist(), a.clocks.column(rows).tolist()
        # Lanes that meet at one place take their turns in this order, as in `memory.atomics`.
        lanes = zip(owners.tolist(), cells.tolist(), columns, now, strict=True)
        for owner, cell, column, epoch in lanes:
            board = self.told[cell] if tells or cell in self.told else {}
            mine = self.heard[owner]
            if hears:
                for other, news in board.items():
                    hearers = mine.setdefault(other, {})
                    if column not in hearers or hearers[column].news.until < news.until:
                        hearers[column] = Hearing(news, epoch)
            fences = [n for n in self.fences[owner] if n.until < (self.step, a.site)]
            own_news = released[owner] if is_release else fences[-1] if fences else None
            if tells and own_news is not None:
                for other, hearers in mine.items():
                    last = max((h.news for h in hearers.values()), key=lambda n: n.until)
                    if other not in board or board[other].until < last.until:
                        board[other] = last
                board[owner] = own_news

    def land(self, cells: np.ndarray, column: int, epoch: int) -> None:
        """A copy into those granules has arrived, at that time of the thread that waited for it."""
        words = self.written.by[cells]
        own = (words >> EPOCH_AT == IN_FLIGHT) & (column_of(words) == column)
        done = pack(0, np.array(column), np.array(epoch), PLAIN)
        self.written.by[cells[own]] = done | site_of(words[own])

    def writer(self, cell: int) -> int | None:
        """The instruction that wrote it last."""
        return int(site_of(self.written.by[cell])) if self.written.when[cell] > 0 else None

    def _record(self, a: Accesses) -> tuple[np.ndarray, np.ndarray]:
        when = np.broadcast_to(self.step << OWNER_BITS | a.owners, a.cells.shape)
        epochs = np.full(a.rows.shape, IN_FLIGHT) if a.in_flight else a.clocks.now[a.rows]
        by = pack(a.site, a.clocks.column(a.rows), epochs, a.strength)
        return when, np.broadcast_to(by, a.cells.shape)

    def _compare_copies(self, a: Accesses) -> None:
        """ld.global.nc may give what was there when the kernel began, whoever has written since."""
        if "nc" not in self.code[a.site].modifiers:
            return
        stale = self.written.when.take(a.cells) > 0
        if stale.any():
            where = np.flatnonzero(stale.any(axis=1))
            site = int(site_of(self.written.by[a.cells[stale][0]]))
            what = "a read by way of read-only memory (__ldg, const __restrict__), and a write"
            column = int(column_of(self.written.by[a.cells[stale][0]]))
            a.report(what, a.site, site, None, column, where)

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
        is_store, narrow = self.code[a.site].root != "ld", is_narrow(self.code[a.site])
        is_plain_read = not is_store and not a.strength
        # What a sum begins with, though not what a flag is set to, depends on who was first.
        sums = records is self.written and is_sum(self.code[a.site])
        where = np.flatnonzero(suspect)
        by = records.by.take(a.cells).reshape(-1)[where]
        self.is_mixed |= bool((((by >> STRENGTH_AT & 3) == PLAIN) == bool(a.strength)).any())
        if not where.size or (a.strength and is_store and not (narrow or sums)):
            return
        words, sites = words.reshape(-1)[where], site_of(by)
        own = np.broadcast_to(a.owners, a.cells.shape).reshape(-1)[where]
        rows = np.broadcast_to(a.rows, a.cells.shape).reshape(-1)[where]
        for word, block, other_site in np.unique([words, own, sites], axis=1).T.tolist():
            other_code = self.code[other_site]
            # Whoever polls a flag may do so plainly, if it is not atomic operations that change it.
            meets = (is_plain_read and other_code.root in ATOMICS) or is_narrow(other_code)
            if not narrow and strength(other_code) != PLAIN and not meets:
                continue
            same = np.flatnonzero((words == word) & (own == block) & (sites == other_site))
            other, when = word & (1 << OWNER_BITS) - 1, (word >> OWNER_BITS, other_site)
            same = same[~self._has_heard(a.clocks, block, other, when, rows[same], by[same])]
            if same.size:
                which = where[same] // a.cells.shape[-1]
                a.report(what, a.site, other_site, other, None, which)

    def _has_heard(
        self,
        clocks: Clocks,
        block: int,
        other: int,
        when: Time,
        rows: np.ndarray,
        by: np.ndarray,
    ) -> np.ndarray:
        """Whether threads of one block know of those accesses of another one's threads."""
        columns, epochs = column_of(by), by >> EPOCH_AT
        heard = np.zeros(len(rows), bool)
        for column, (news, epoch) in self.heard[block].get(other, {}).items():
            if news.until >= when:
                told = news.known[columns] >= epochs
                own = clocks.column(rows) == column
                at, since = (np.full(len(rows), x) for x in (column, epoch))
                heard |= told & (own | clocks.knows(rows, at, since))
            if heard.all():
                break
        return heard

    def _compare_threads(self, records: Records, a: Accesses, what: str, there: np.ndarray) -> None:
        """Threads of one cluster."""
        by = np.where(there, records.by.take(a.cells), 0)
        at = racing(a.clocks, by, np.broadcast_to(a.rows, by.shape), a.strength)
        if not at.size:
            return
        by = by.reshape(-1)[at]
        for other_site in np.unique(site_of(by)).tolist():
            same = site_of(by) == other_site
            if (by[same] >> EPOCH_AT == IN_FLIGHT).any():
                what += " by a copy that is not waited for"
            column = int(column_of(by[same][0]))
            a.report(what, a.site, other_site, None, column, at[same] // a.cells.shape[-1])
