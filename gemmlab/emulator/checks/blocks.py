"""Shadow records of global memory, which detect races within a block and between blocks.

Blocks of a launch run in any order. A block may therefore access data of another block only after
release and acquire: the writer executes a fence, then an atomic operation or a strong store
(volatile, relaxed, release); the reader executes an atomic operation or a strong load of the same
location. Release and acquire are transitive. A fence releases what its thread knows according to
its vector clock, and the acquiring thread propagates it within its block by the same clocks. The
blocks of a cluster count as one block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.checks.advice import NARROW_SCOPE, STALE_READ, unfinished
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
from gemmlab.emulator.translation.spins import is_poll
from gemmlab.ptx.ir import Instruction
from gemmlab.ptx.opcodes import ATOMICS, FENCES, SCALAR_ACCESSES, SCALAR_LOADS, WITHOUT_RESULT

OWNER_BITS = 28
UNINITIALIZED = np.int64(-1)

# report(what, instruction, other instruction, other block or None, column of the other thread or
# None, indices of the accesses)
Report = Callable[[str, int, int, int | None, int | None, np.ndarray], None]
Time = tuple[int, int]  # number of the executed basic block in the launch, instruction
GLOBAL_SCOPES = {"gpu", "sys", "gl"}  # include the threads of other blocks
RELEASES = {"release", "acq_rel"}
SUMS = {"add", "inc", "dec", "xor"}
WITHIN = {"cta", "cluster"}  # scopes that do not make operations atomic for other blocks


def is_fence(i: Instruction) -> bool:
    """Whether an instruction is a fence with a scope that includes other blocks."""
    return i.root in FENCES and bool(GLOBAL_SCOPES & {*i.modifiers})


def is_strong(i: Instruction) -> bool:
    """Whether an instruction is a strong access: such accesses may conflict without a race, so
    their order can be visible."""
    return i.root in SCALAR_ACCESSES and strength(i) != PLAIN


def is_sum(i: Instruction) -> bool:
    return i.root in ATOMICS and bool(SUMS & {*i.modifiers})


def is_narrow(i: Instruction) -> bool:
    """Whether an atomic or strong access has the scope of a block or cluster only."""
    return bool(WITHIN & {*i.modifiers})


class Records(NamedTuple):
    """One recorded access per granule. `when` packs the step of the launch and the cluster; `by` is
    a record of shadow.py."""

    when: np.ndarray
    by: np.ndarray

    @classmethod
    def empty(cls, num_granules: int) -> Records:
        return cls(*np.zeros((2, num_granules), np.int64))

    def differ(self, cells: np.ndarray, when: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Where the recorded access is a different one."""
        found: np.ndarray = (self.when.take(cells) != when) | (self.by.take(cells) != by)
        return found

    def put(self, cells: np.ndarray, when: np.ndarray, by: np.ndarray) -> None:
        self.when[cells], self.by[cells] = when, by


class Release(NamedTuple):
    """A release by a block: its earlier accesses, as far as the releasing thread knew them."""

    until: Time
    known: np.ndarray  # vector clock, by column


class Acquire(NamedTuple):
    """A thread's acquire of another block's release."""

    release: Release
    epoch: int  # of the acquiring thread


class Accesses(NamedTuple):
    """The accesses of one instruction to global memory, in one chunk of blocks."""

    clocks: Clocks
    owners: np.ndarray  # (n, 1): number of the cluster in the launch
    rows: np.ndarray  # (n, 1): the thread
    cells: np.ndarray  # (n, granules per access)
    site: int
    strength: int
    report: Report
    in_flight: bool = False  # by an asynchronous copy that has not been waited for


class GlobalShadow:
    """The records of all global memory, for a whole launch."""

    def __init__(self, num_granules: int, code: list[Instruction]) -> None:
        self.code = code
        self.written, self.read, self.read_too, self.updated = (
            Records.empty(num_granules) for _ in range(4)
        )
        # Of each granule, whether an atomic operation or a strong load has accessed it.
        self.looked = np.zeros(num_granules, bool)
        self.step = 0
        self.is_mixed = False  # blocks have accessed a location both plainly and strongly
        # block -> fences in the current basic block, and the last one before it
        self.fences: defaultdict[int, list[Release]] = defaultdict(list)
        # cell -> releasing block -> release
        self.releases: defaultdict[int, dict[int, Release]] = defaultdict(dict)
        # acquiring block -> releasing block -> column of the acquiring thread -> acquire
        self.acquired: defaultdict[int, dict[int, dict[int, Acquire]]] = defaultdict(dict)
        # Atomic operations synchronize blocks only if the kernel reads their results.
        self.has_acquires = any(map(is_poll, code))

    def fence(self, clocks: Clocks, owners: np.ndarray, rows: np.ndarray, index: int) -> None:
        """A fence by the threads `rows`, whose clusters are `owners`."""
        for owner in np.unique(owners).tolist():
            release = self._release(clocks, owner, rows[owners == owner], index)
            earlier = [n for n in self.fences[owner] if n.until[0] < self.step][-1:]
            here = [n for n in self.fences[owner] if n.until[0] == self.step]
            self.fences[owner] = [*earlier, *here, release]

    def _release(self, clocks: Clocks, owner: int, rows: np.ndarray, index: int) -> Release:
        known = clocks.joined(rows)[: clocks.members]
        if self.fences[owner]:
            known = np.maximum(known, self.fences[owner][-1].known)
        return Release((self.step, index), known)

    def load(self, a: Accesses) -> None:
        self._compare(self.written, a, "read after write")
        self._compare_copies(a)
        if a.strength:
            return
        self._compare(self.updated, a, "read after write")
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
        """changed: for each cell, whether the write changes its value."""
        self._compare(self.written, a, "write after write", changed)
        for records in (self.read, self.read_too):
            self._compare(records, a, "write after read", changed)
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
                a.report(NARROW_SCOPE, a.site, a.site, int(last[others[0], 0]), None, others)

    def synchronize(self, a: Accesses) -> None:
        """Release and acquire by an atomic operation or a strong access."""
        i = self.code[a.site]
        writes = i.root not in SCALAR_LOADS
        reads = i.root not in WITHOUT_RESULT
        if not self.has_acquires or is_narrow(i):
            return
        is_release = writes and bool(RELEASES & {*i.modifiers})
        owners, rows, cells = a.owners[:, 0], a.rows[:, 0], a.cells[:, 0]
        released: dict[int, Release] = {}
        if is_release:
            for owner in np.unique(owners).tolist():
                released[owner] = self._release(a.clocks, owner, rows[owners == owner], a.site)
        now, columns = a.clocks.now[rows].tolist(), a.clocks.column(rows).tolist()
        # Lanes with equal addresses execute in this order, as in `memory.atomics`.
        lanes = zip(owners.tolist(), cells.tolist(), columns, now, strict=True)
        for owner, cell, column, epoch in lanes:
            at_cell = self.releases[cell] if writes or cell in self.releases else {}
            mine = self.acquired[owner]
            if reads:
                for other, release in at_cell.items():
                    acquires = mine.setdefault(other, {})
                    if column not in acquires or acquires[column].release.until < release.until:
                        acquires[column] = Acquire(release, epoch)
            fences = [n for n in self.fences[owner] if n.until < (self.step, a.site)]
            own_release = released[owner] if is_release else fences[-1] if fences else None
            if writes and own_release is not None:
                for other, acquires in mine.items():
                    last = max((x.release for x in acquires.values()), key=lambda r: r.until)
                    if other not in at_cell or at_cell[other].until < last.until:
                        at_cell[other] = last
                at_cell[owner] = own_release

    def complete_writes(self, cells: np.ndarray, column: int, epoch: int) -> None:
        """A copy to those granules is complete. column, epoch: of the thread that waited for it."""
        words = self.written.by[cells]
        own = (words >> EPOCH_AT == IN_FLIGHT) & (column_of(words) == column)
        done = pack(0, np.array(column), np.array(epoch), PLAIN)
        self.written.by[cells[own]] = done | site_of(words[own])

    def writer(self, cell: int) -> int | None:
        """The instruction that last wrote a granule."""
        return int(site_of(self.written.by[cell])) if self.written.when[cell] > 0 else None

    def _record(self, a: Accesses) -> tuple[np.ndarray, np.ndarray]:
        when = np.broadcast_to(self.step << OWNER_BITS | a.owners, a.cells.shape)
        epochs = np.full(a.rows.shape, IN_FLIGHT) if a.in_flight else a.clocks.now[a.rows]
        by = pack(a.site, a.clocks.column(a.rows), epochs, a.strength)
        return when, np.broadcast_to(by, a.cells.shape)

    def _compare_copies(self, a: Accesses) -> None:
        """Check ld.global.nc, which may return the value from before the launch."""
        if "nc" not in self.code[a.site].modifiers:
            return
        stale = self.written.when.take(a.cells) > 0
        if stale.any():
            where = np.flatnonzero(stale.any(axis=1))
            site = int(site_of(self.written.by[a.cells[stale][0]]))
            column = int(column_of(self.written.by[a.cells[stale][0]]))
            a.report(STALE_READ, a.site, site, None, column, where)

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
        is_store, narrow = self.code[a.site].root not in SCALAR_LOADS, is_narrow(self.code[a.site])
        is_plain_read = not is_store and not a.strength
        # A reduction depends on whether another block's plain write comes first; a flag does not.
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
            # Plain polling of a flag is allowed, unless atomic operations change the flag.
            meets = (is_plain_read and other_code.root in ATOMICS) or is_narrow(other_code)
            if not narrow and strength(other_code) != PLAIN and not meets:
                continue
            same = np.flatnonzero((words == word) & (own == block) & (sites == other_site))
            other, when = word & (1 << OWNER_BITS) - 1, (word >> OWNER_BITS, other_site)
            same = same[~self._has_acquired(a.clocks, block, other, when, rows[same], by[same])]
            if same.size:
                which = where[same] // a.cells.shape[-1]
                a.report(what, a.site, other_site, other, None, which)

    def _has_acquired(
        self,
        clocks: Clocks,
        block: int,
        other: int,
        when: Time,
        rows: np.ndarray,
        by: np.ndarray,
    ) -> np.ndarray:
        """Whether threads of one block have acquired the given accesses of another block."""
        columns, epochs = column_of(by), by >> EPOCH_AT
        acquired = np.zeros(len(rows), bool)
        for column, (release, epoch) in self.acquired[block].get(other, {}).items():
            if release.until >= when:
                known = release.known[columns] >= epochs
                own = clocks.column(rows) == column
                at, since = (np.full(len(rows), x) for x in (column, epoch))
                acquired |= known & (own | clocks.knows(rows, at, since))
            if acquired.all():
                break
        return acquired

    def _compare_threads(self, records: Records, a: Accesses, what: str, there: np.ndarray) -> None:
        """Compare with the records of the same cluster, thread by thread."""
        by = np.where(there, records.by.take(a.cells), 0)
        at = racing(a.clocks, by, np.broadcast_to(a.rows, by.shape), a.strength)
        if not at.size:
            return
        by = by.reshape(-1)[at]
        for other_site in np.unique(site_of(by)).tolist():
            same = site_of(by) == other_site
            if (by[same] >> EPOCH_AT == IN_FLIGHT).any():
                what = unfinished(what)
            column = int(column_of(by[same][0]))
            a.report(what, a.site, other_site, None, column, at[same] // a.cells.shape[-1])
