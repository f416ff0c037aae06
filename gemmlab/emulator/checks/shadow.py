"""Shadow records of shared memory, which detect races.

A granule is as large as the kernel's narrowest access. Each granule has a record of its last write
and of two concurrent reads by different threads, so that any later write is compared with at least
one read of another thread. A record is a single 64-bit word, so when several lanes store records to
the same granule, one of them wins entirely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.checks.advice import NO_PROXY_FENCE, UNWRITTEN_READ
from gemmlab.emulator.checks.clocks import Clocks
from gemmlab.ptx.ir import Instruction
from gemmlab.ptx.opcodes import ATOMICS

SITE_BITS, COLUMN_BITS, STRENGTH_BITS, EPOCH_BITS = 20, 16, 2, 25
COLUMN_AT, STRENGTH_AT = SITE_BITS, SITE_BITS + COLUMN_BITS
EPOCH_AT = STRENGTH_AT + STRENGTH_BITS
MAX_LOADS = 1 << 22  # granules of loads that have not been recorded yet
IN_FLIGHT = (1 << EPOCH_BITS) - 1  # the epoch of an incomplete copy; no thread has acquired it
# Strength of an access: strong ones do not race with each other (PTX ISA, "memory consistency
# model"). Volatile accesses by lanes of one warp do: the warp does not run in lockstep.
PLAIN, VOLATILE, ATOMIC = 0, 1, 2

# report(kind, what, instruction, other instruction, rows, columns of the others, cells)
Report = Callable[[str, str, int, int | None, np.ndarray, np.ndarray, np.ndarray], None]

STRONG = {"relaxed", "acquire", "release", "acq_rel", "mmio"}


def strength(i: Instruction) -> int:
    """The strength of an access: PLAIN, VOLATILE or ATOMIC."""
    if i.root in ATOMICS | {"mbarrier"} or STRONG & {*i.modifiers}:
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
    """Every thread has acquired all records below this word."""
    return max(clocks.settled + 1 << EPOCH_AT, 1)


def ordered(clocks: Clocks, words: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Whether each recorded access happened before the current access of the thread."""
    columns, epochs = column_of(words), words >> EPOCH_AT
    own = (columns == clocks.column(rows)) & (epochs != IN_FLIGHT)
    before: np.ndarray = own | clocks.knows(rows, columns, epochs)
    return before


def racing(clocks: Clocks, words: np.ndarray, rows: np.ndarray, strength: int) -> np.ndarray:
    """Flat indices of the records that race with current accesses. rows: the threads."""
    late = np.flatnonzero(words >= fresh(clocks))  # almost always empty
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
    """Loads of one instruction that have not been recorded yet."""

    rows: np.ndarray  # (n, 1)
    cells: np.ndarray  # (n, granules per access)
    now: np.ndarray  # epochs of all threads at the time of the loads
    site: int
    strength: int


class Shadow:
    """The records of a chunk's shared memory. Granules are numbered across all blocks."""

    def __init__(self, num_granules: int, clocks: Clocks, report: Report) -> None:
        self.clocks, self.report = clocks, report
        self.written, self.read, self.read_too = np.zeros((3, num_granules), np.int64)
        # Written by threads, and not yet visible to the copy engine and the tensor cores: no
        # fence.proxy.async has followed.
        self.unfenced = np.zeros(num_granules, bool)
        # Loads since clocks last changed. A barrier of all threads of a block makes their records
        # unnecessary, so most loads are never recorded.
        self.loads: list[Reads] = []
        self.dropped = 0  # number of loads removed from `loads` so far
        # Per block: number of loads before its last barrier.
        self.met = np.zeros(clocks.num_rows // clocks.threads, np.int64)
        if clocks.cluster_size == 1:
            clocks.before_change = self.record_loads
            clocks.after_barrier = self._drop_loads

    def load(
        self,
        rows: np.ndarray,
        cells: np.ndarray,
        site: int,
        strength: int = PLAIN,
        in_flight: bool = False,
    ) -> np.ndarray | None:
        """Check and record loads. Returns which cells were never written; None if none.

        rows: (n, 1), the threads. cells: (n, granules per access). in_flight: the copy engine or
        the tensor cores read asynchronously, until `complete_reads`.
        """
        words = self.written.take(cells)
        unwritten = None if words.all() else words == 0
        self._compare(words, rows, cells, site, strength, "read after write")
        reads = Reads(rows, cells, self.clocks.now, site, strength)
        if in_flight:
            self.record_loads()
            self._record(reads, in_flight)
            return unwritten
        self._note(reads)
        return unwritten

    def _note(self, reads: Reads) -> None:
        self.loads.append(reads)
        if self.clocks.cluster_size > 1 or len(self.loads) * reads.cells.size > MAX_LOADS:
            self.record_loads()

    def load_initialized(
        self, rows: np.ndarray, cells: np.ndarray, site: int, in_flight: bool = False
    ) -> None:
        """`load` by an instruction that requires all bytes to be initialized."""
        bad = self.load(rows, cells, site, in_flight=in_flight)
        if bad is not None:
            what = UNWRITTEN_READ
            none = np.zeros(int(bad.sum()), np.int64)
            spread = np.broadcast_to(rows, cells.shape)
            self.report("uninitialized read", what, site, None, spread[bad], none, cells[bad])

    def record_loads(self) -> None:
        """Record all pending loads."""
        for reads in self.loads:
            self._record(reads)
        self.dropped += len(self.loads)
        self.loads = []

    def _drop_loads(self, blocks: np.ndarray) -> None:
        """After a barrier of the given blocks, drop loads that all threads have acquired."""
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
        """Check and record stores. changed: for each cell, whether the write changes its value;
        None means all do."""
        rows = np.broadcast_to(rows, cells.shape)
        self.check_store(rows, cells, site, strength, changed)
        epochs = np.full(rows.shape, IN_FLIGHT) if in_flight else self.clocks.now[rows]
        self.written[cells] = pack(site, self.clocks.column(rows), epochs, strength)
        self.unfenced[cells] = not in_flight

    def check_store(
        self,
        rows: np.ndarray,
        cells: np.ndarray,
        site: int,
        strength: int = PLAIN,
        changed: np.ndarray | None = None,
    ) -> None:
        """Check stores without recording them."""
        self.record_loads()
        if changed is not None and not changed.all():
            # An incomplete copy will still change the value.
            changed = changed | (self.written.take(cells) >> EPOCH_AT == IN_FLIGHT)
            rows, cells = np.broadcast_to(rows, cells.shape)[changed], cells[changed]
        self._compare(self.written.take(cells), rows, cells, site, strength, "write after write")
        for reads in (self.read, self.read_too):
            self._compare(reads.take(cells), rows, cells, site, strength, "write after read")

    def complete_writes(
        self, cells: np.ndarray, column: np.ndarray | int, epoch: np.ndarray | int
    ) -> None:
        """Complete copies to the cells. column, epoch: of the waiting thread or the mbarrier."""
        sites = site_of(self.written[cells])
        columns, epochs = np.asarray(column), np.asarray(epoch)
        self.written[cells] = pack(0, columns, epochs, PLAIN) | sites

    def complete_reads(
        self, cells: np.ndarray, holder: np.ndarray | int, column: int, epoch: np.ndarray | int
    ) -> None:
        """Complete asynchronous reads of the cells. holder: column of the thread that started them.
        column, epoch: of the waiting thread or the engine."""
        for reads in (self.read, self.read_too):
            words = reads[cells]
            is_held = (words >> EPOCH_AT == IN_FLIGHT) & (column_of(words) == holder)
            epochs = np.broadcast_to(epoch, cells.shape)[is_held]
            done = pack(0, np.asarray(column), epochs, PLAIN)
            reads[cells[is_held]] = done | site_of(words[is_held])

    def fence(self, cells: np.ndarray, released: np.ndarray) -> None:
        """fence.proxy.async by threads of one cluster: the writes to the cells that they know, by
        their joined clock `released`, become visible to the copy engine and the tensor cores."""
        words = self.written[cells]
        self.unfenced[cells[released[column_of(words)] >= words >> EPOCH_AT]] = False

    def check_fence(self, rows: np.ndarray, cells: np.ndarray, site: int, does: str) -> None:
        """Check that writes of threads are visible to the copy engine or the tensor cores, which
        access the cells. does: "reads", "overwrites" or "uses"."""
        bad = self.unfenced[cells]
        if bad.any():
            rows, cells = np.broadcast_to(rows, cells.shape)[bad], cells[bad]
            words = self.written[cells]
            what = NO_PROXY_FENCE % does
            for other in np.unique(site_of(words)).tolist():
                at = site_of(words) == other
                columns = column_of(words[at])
                self.report("missing fence", what, site, other, rows[at], columns, cells[at])

    def use(self, rows: np.ndarray, cells: np.ndarray, site: int) -> None:
        """Check and record an atomic use of a synchronization object in the given cells."""
        rows = np.broadcast_to(rows, cells.shape)
        self._compare(self.written[cells], rows, cells, site, ATOMIC, "use after write")
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
        """Report the records that race with current accesses."""
        rows = np.broadcast_to(rows, words.shape)
        at = racing(self.clocks, words, rows, strength)
        if not at.size:
            return
        words, cells, rows = (x.reshape(-1)[at] for x in (words, cells, rows))
        flying = words >> EPOCH_AT == IN_FLIGHT
        for kind, among in (("missing wait", flying), ("shared race", ~flying)):
            for other_site in np.unique(site_of(words[among])).tolist():
                at = among & (site_of(words) == other_site)
                columns = column_of(words[at])
                self.report(kind, what, site, other_site, rows[at], columns, cells[at])
