"""Vector clocks of threads.

A thread's clock advances with each release (a barrier, an arrival). An access happens before
another if the thread of the later one has acquired the clock of the earlier thread at the time of
its access (Lamport, Time, Clocks, and the Ordering of Events in a Distributed System, 1978; for
race detection, Flanagan and Freund, FastTrack, 2009).

Rows are threads, by flat index in the chunk. Columns are the threads of a cluster, by index in the
cluster, followed by engines: one per mbarrier that signals bulk copies, and one for the tensor
cores of each warpgroup.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Extent

# Epochs of engines start above all epochs of threads, so the two cannot be confused.
FIRST_ENGINE_EPOCH = 1 << 24


class Clocks:
    """The vector clocks of the threads of a chunk."""

    # Hooks: before any clock changes, and after a barrier of all threads of some blocks.
    before_change: Callable[[], None] = staticmethod(lambda: None)
    after_barrier: Callable[[np.ndarray], None] = staticmethod(lambda blocks: None)

    def __init__(self, extent: Extent, cluster_size: int) -> None:
        self.threads = extent.warps * WARP  # rows per block
        self.members = cluster_size * self.threads
        self.cluster_size = cluster_size
        self.num_rows = extent.blocks * self.threads
        self.now = np.ones(self.num_rows, np.int32)  # replaced, never changed in place
        # Clocks common to all threads of a block, and clocks per thread beyond that (usually none).
        self.known = np.zeros((extent.blocks, self.members), np.int32)
        self.seen: np.ndarray | None = None
        self.engines: dict[object, int] = {}  # engine -> column
        self.engine_epoch = FIRST_ENGINE_EPOCH  # the common epoch of all engines
        self.settled = 0  # every thread has acquired all threads of its cluster up to this epoch

    def column(self, rows: np.ndarray) -> np.ndarray:
        columns: np.ndarray = rows % self.members
        return columns

    def engine(self, key: object) -> int:
        """The column of an asynchronous engine: the bulk copies that signal an mbarrier, or the
        tensor cores of a warpgroup."""
        if key not in self.engines:
            self.engines[key] = self.known.shape[1]
            self.known = np.pad(self.known, ((0, 0), (0, 1)))
            if self.seen is not None:
                self.seen = np.pad(self.seen, ((0, 0), (0, 1)))
        return self.engines[key]

    def knows(self, rows: np.ndarray, columns: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """Whether threads have acquired the given epochs of the given columns; all of one shape."""
        acquired: np.ndarray = self.known[rows // self.threads, columns] >= epochs
        if self.seen is not None and not acquired.all():
            acquired |= self.seen[rows, columns] >= epochs
        return acquired

    def barrier(self, blocks: np.ndarray) -> None:
        """A barrier of all threads of each given block."""
        self.now = self.now.copy()
        per_block = self.now.reshape(-1, self.threads)
        for block in blocks.tolist():
            known = self.known[block]
            if self.seen is not None:
                rows = self.seen[block * self.threads : (block + 1) * self.threads]
                np.maximum(known, rows.max(axis=0), out=known)
            first = block % self.cluster_size * self.threads
            known[first : first + self.threads] = per_block[block]
        if len(blocks) == len(self.known):
            self.seen = None
        per_block[blocks] += 1
        self.settled = int(self.known[:, : self.members].min())
        self.after_barrier(blocks)

    def release(self, rows: np.ndarray) -> np.ndarray:
        """Release: the joined clock of the threads (see `joined`); then their clocks advance."""
        self.before_change()
        released = self.joined(rows)
        self.now = self.now.copy()
        self.now[rows] += 1
        return released

    def joined(self, rows: np.ndarray) -> np.ndarray:
        """The joined vector clock of threads of one cluster, including their own epochs."""
        first, last = int(rows.min()) // self.threads, int(rows.max()) // self.threads
        released: np.ndarray = self.known[first].copy()
        if first != last:
            released = self.known[np.unique(rows // self.threads)].max(axis=0)
        if self.seen is not None:
            released = np.maximum(released, self.seen[rows].max(axis=0))
        columns = self.column(rows)
        released[columns] = np.maximum(released[columns], self.now[rows])
        return released

    def acquire(self, rows: np.ndarray, released: np.ndarray) -> None:
        """Acquire: threads join a released clock, which may lack recently added columns."""
        self.before_change()
        if self.seen is None:
            self.seen = np.zeros((self.num_rows, self.known.shape[1]), np.int32)
        width = len(released)
        self.seen[rows, :width] = np.maximum(self.seen[rows, :width], released)

    def synchronize(self, rows: np.ndarray) -> None:
        """A barrier of the given threads of one cluster."""
        released = self.release(rows)
        if self.seen is None:
            self.seen = np.zeros((self.num_rows, self.known.shape[1]), np.int32)
        self.seen[rows] = released  # includes their previous clocks


class SyncObjects:
    """The clocks released to synchronization objects: barriers, mbarriers, flags."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.clock_of: dict[object, np.ndarray] = {}  # object -> joined clock

    def release(self, place: object, released: np.ndarray) -> None:
        """Join a clock into that of an object."""
        if place in self.clock_of:
            old = self.clock_of[place]
            released = released.copy()
            released[: len(old)] = np.maximum(released[: len(old)], old)
        self.clock_of[place] = released

    def acquire(self, place: object, rows: np.ndarray) -> None:
        """Threads acquire the clock of an object."""
        if place in self.clock_of:
            self.clocks.acquire(rows, self.clock_of[place])

    def move(self, place: object, to: object) -> None:
        """Move the clock of one object to another."""
        if place in self.clock_of:
            self.release(to, self.clock_of.pop(place))

    def clear(self, place: object) -> None:
        self.clock_of.pop(place, None)
