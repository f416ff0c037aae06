"""Who last wrote and read each piece of shared memory.

A piece (granule) is as large as the narrowest access of the kernel. For each there is the last
write and two reads by threads of which neither knew of the other's: so a write meets at least one
that is not its own. A record is one 64-bit word, so that of several lanes one wins as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.checks.clocks import Clocks
from gemmlab.ptx.ir import Instruction

SITE_BITS, COLUMN_BITS, STRENGTH_BITS, EPOCH_BITS = 20, 16, 2, 25
COLUMN_AT, STRENGTH_AT = SITE_BITS, SITE_BITS + COLUMN_BITS
EPOCH_AT = STRENGTH_AT + STRENGTH_BITS
MOST_LOADS = 1 << 22  # granules of loads that are not on record
IN_FLIGHT = (1 << EPOCH_BITS) - 1  # an epoch that nobody has heard of: the copy is under way
# Strength of an access: strong ones may meet (PTX ISA, "memory consistency model"). Lanes of one
# warp that talk by volatile accesses alone rely on lockstep, which there is not.
PLAIN, VOLATILE, ATOMIC = 0, 1, 2

# report(kind, what, instruction, other instruction, rows, columns of the others, cells)
Report = Callable[[str, str, int, int | None, np.ndarray, np.ndarray, np.ndarray], None]

STRONG = {"relaxed", "acquire", "release", "acq_rel", "mmio"}


def strength(i: Instruction) -> int:
    """How far an access may meet others of its kind."""
    if i.root in ("atom", "red", "mbarrier") or STRONG & {*i.modifiers}:
        return ATOMIC
    return VOLATILE if "volatile" in i.modifiers else PLAIN


def pack(site: int, columns: np.ndarray, epochs: np.ndarray, strength: int) -> np.ndarray:
    word: np.ndarray = epochs.astype(np.int64) << EPOCH_AT
    word |= columns.astype(np.int64) << COLUMN_AT
    return word | site | strength << STRENGTH_AT


def site_of(words: np.ndarray) -> np.ndarray:
    return words & (1 << SITE_BITS) - 1


def column_of(words: np.ndarray) -> np.ndarray:
    return words >> COLUMN_AT & (1 << COLUMN_BITS) - 1


def fresh(clocks: Clocks) -> int:
    """Records from here on may be news to a thread; all before, and none at all, are not."""
    return max(clocks.settled + 1 << EPOCH_AT, 1)


def ordered(clocks: Clocks, words: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Whether what a record says happened before what the thread does now."""
    columns, epochs = column_of(words), words >> EPOCH_AT
    own = (columns == clocks.column(rows)) & (epochs != IN_FLIGHT)
    before: np.ndarray = own | clocks.knows(rows, columns, epochs)
    return before


def racing(clocks: Clocks, words: np.ndarray, rows: np.ndarray, strength: int) -> np.ndarray:
    """Indices of records, flat, that race with what the threads do now; rows: of words' shape."""
    late = np.flatnonzero(words >= fresh(clocks))  # nearly always none
    if not late.size:
        return late
    words, rows = words.reshape(-1)[late], rows.reshape(-1)[late]
    suspect = ~ordered(clocks, words, rows)
    if strength:
        other = words >> STRENGTH_AT & (1 << STRENGTH_BITS) - 1
        same_warp = column_of(words) // WARP == clocks.column(rows) // WARP
        lockstep = same_warp & (other == VOLATILE) & (strength == VOLATILE)
        suspect &= (other == PLAIN) | lockstep
    found: np.ndarray = late[suspect]
    return found


class Reads(NamedTuple):
    """Loads of one instruction that are not on record yet."""

    rows: np.ndarray  # (n, 1)
    cells: np.ndarray  # (n, granules of each)
    now: np.ndarray  # the clocks of all threads then
    site: int
    strength: int


class Shadow:
    """Records of the shared memory of a chunk; granules are numbered through all its blocks."""

    def __init__(self, num_granules: int, clocks: Clocks, report: Report) -> None:
        self.clocks, self.report = clocks, report
        self.written, self.read, self.read_too = np.zeros((3, num_granules), np.int64)
        # Written by threads; no fence.proxy.async has shown it to the copy engine and tensor cores.
        self.hidden = np.zeros(num_granules, bool)
        # Loads since threads last learned of each other. A barrier of all threads of a block makes
        # their records needless: most of them never come to be.
        self.loads: list[Reads] = []
        self.dropped = 0  # loads that needed no record, so far
        self.met = np.zeros(clocks.num_rows // clocks.threads, np.int64)  # loads before last met
        if clocks.cluster_size == 1:
            clocks.before_news = self.record_loads
            clocks.after_meeting = self._drop_loads

    def load(
        self,
        rows: np.ndarray,
        cells: np.ndarray,
        site: int,
        strength: int = PLAIN,
        in_flight: bool = False,
    ) -> np.ndarray | None:
        """rows: (n, 1), the threads; cells: (n, granules of each). Returns which cells nobody has
        written; None for none of them.

        in_flight: by what they have started, the copy engine or tensor cores, until that lets go.
        """
        words = self.written.take(cells)
        unwritten = None if words.all() else words == 0
        self._compare(words, rows, cells, site, strength, "a read, and a write")
        reads = Reads(rows, cells, self.clocks.now, site, strength)
        if in_flight:
            self.record_loads()
            self._record(reads, in_flight)
            return unwritten
        self._note(reads)
        return unwritten

    def _note(self, reads: Reads) -> None:
        self.loads.append(reads)
        if self.clocks.cluster_size > 1 or len(self.loads) * reads.cells.size > MOST_LOADS:
            self.record_loads()

    def use_up(
        self, rows: np.ndarray, cells: np.ndarray, site: int, in_flight: bool = False
    ) -> None:
        """As `load`, by an instruction that needs all of it to be written."""
        bad = self.load(rows, cells, site, in_flight=in_flight)
        if bad is not None:
            what = "nobody has written what is read here"
            none = np.zeros(int(bad.sum()), np.int64)
            spread = np.broadcast_to(rows, cells.shape)
            self.report("uninitialized read", what, site, None, spread[bad], none, cells[bad])

    def record_loads(self) -> None:
        """Put those on record that are not yet."""
        for reads in self.loads:
            self._record(reads)
        self.dropped += len(self.loads)
        self.loads = []

    def _drop_loads(self, blocks: np.ndarray) -> None:
        """All threads of those blocks know what each of them has done."""
        self.met[blocks] = self.dropped + len(self.loads)
        needless = int(self.met.min()) - self.dropped
        if needless > 0:
            del self.loads[:needless]
            self.dropped += needless

    def _record(self, reads: Reads, in_flight: bool = False) -> None:
        rows, cells = np.broadcast_to(reads.rows, reads.cells.shape), reads.cells
        epochs = np.full(rows.shape, IN_FLIGHT) if in_flight else reads.now[rows]
        columns, old = self.clocks.column(rows), self.read.take(cells)
        mine = pack(reads.site, columns, epochs, reads.strength)
        replaced = old < fresh(self.clocks)
        late = np.flatnonzero(~replaced)
        if late.size:
            words, their = old.reshape(-1)[late], rows.reshape(-1)[late]
            known = ordered(self.clocks, words, their)
            if in_flight:
                known |= column_of(words) == columns.reshape(-1)[late]
            replaced.reshape(-1)[late] = known
        self.read[cells[replaced]] = mine[replaced]
        others = column_of(self.read.take(cells)) != columns
        self.read_too[cells[others]] = mine[others]

    def store(
        self,
        rows: np.ndarray,
        cells: np.ndarray,
        site: int,
        strength: int = PLAIN,
        changed: np.ndarray | None = None,
        in_flight: bool = False,
    ) -> None:
        """`changed`: of each cell, whether the write makes a difference; None for all."""
        rows = np.broadcast_to(rows, cells.shape)
        self.check_store(rows, cells, site, strength, changed)
        epochs = np.full(rows.shape, IN_FLIGHT) if in_flight else self.clocks.now[rows]
        self.written[cells] = pack(site, self.clocks.column(rows), epochs, strength)
        self.hidden[cells] = not in_flight

    def check_store(
        self,
        rows: np.ndarray,
        cells: np.ndarray,
        site: int,
        strength: int = PLAIN,
        changed: np.ndarray | None = None,
    ) -> None:
        self.record_loads()
        if changed is not None and not changed.all():
            # What a copy under way will bring is not what is there.
            changed = changed | (self.written.take(cells) >> EPOCH_AT == IN_FLIGHT)
            rows, cells = np.broadcast_to(rows, cells.shape)[changed], cells[changed]
        self._compare(self.written.take(cells), rows, cells, site, strength, "two writes")
        for reads in (self.read, self.read_too):
            self._compare(reads.take(cells), rows, cells, site, strength, "a write, and a read")

    def land(self, cells: np.ndarray, column: np.ndarray | int, epoch: np.ndarray | int) -> None:
        """Copies into those cells have arrived, at that time of that thread or mbarrier."""
        sites = site_of(self.written[cells])
        columns, epochs = np.asarray(column), np.asarray(epoch)
        self.written[cells] = pack(0, columns, epochs, PLAIN) | sites

    def let_go(
        self, cells: np.ndarray, holder: np.ndarray | int, column: int, epoch: np.ndarray | int
    ) -> None:
        """What the holder started has read them, at that time of that thread or engine."""
        for reads in (self.read, self.read_too):
            words = reads[cells]
            is_held = (words >> EPOCH_AT == IN_FLIGHT) & (column_of(words) == holder)
            epochs = np.broadcast_to(epoch, cells.shape)[is_held]
            done = pack(0, np.asarray(column), epochs, PLAIN)
            reads[cells[is_held]] = done | site_of(words[is_held])

    def show(self, cells: np.ndarray, told: np.ndarray) -> None:
        """fence.proxy.async by threads of one cluster who know that: what was written before it in
        those cells of the cluster is shown to the copy engine and the tensor cores."""
        words = self.written[cells]
        self.hidden[cells[told[column_of(words)] >= words >> EPOCH_AT]] = False

    def look(self, rows: np.ndarray, cells: np.ndarray, site: int, between: str) -> None:
        """The copy engine or the tensor cores read or use what threads have written."""
        bad = self.hidden[cells]
        if bad.any():
            rows, cells = np.broadcast_to(rows, cells.shape)[bad], cells[bad]
            words = self.written[cells]
            what = f"no fence.proxy.async between {between} by an asynchronous operation"
            for other in np.unique(site_of(words)).tolist():
                at = site_of(words) == other
                columns = column_of(words[at])
                self.report("missing fence", what, site, other, rows[at], columns, cells[at])

    def use(self, rows: np.ndarray, cells: np.ndarray, site: int) -> None:
        """An object that lies there is used, by an operation that may meet others of its kind."""
        rows = np.broadcast_to(rows, cells.shape)
        self._compare(self.written[cells], rows, cells, site, ATOMIC, "a use, and a write")
        self._note(Reads(rows, cells, self.clocks.now, site, ATOMIC))

    def _compare(
        self,
        words: np.ndarray,
        rows: np.ndarray,
        cells: np.ndarray,
        site: int,
        strength: int,
        what: str,
    ) -> None:
        """Report which of those records did not happen before what the threads do now."""
        rows = np.broadcast_to(rows, words.shape)
        at = racing(self.clocks, words, rows, strength)
        if not at.size:
            return
        words, cells, rows = (x.reshape(-1)[at] for x in (words, cells, rows))
        flying = words >> EPOCH_AT == IN_FLIGHT
        for kind, among in (("missing wait", flying), ("shared race", ~flying)):
            message = f"{what} under way that is not waited for" if kind == "missing wait" else what
            for other_site in np.unique(site_of(words[among])).tolist():
                at = among & (site_of(words) == other_site)
                columns = column_of(words[at])
                self.report(kind, message, site, other_site, rows[at], columns, cells[at])
