"""What each thread knows of what the others have done: vector clocks.

A thread's clock is a number that grows with everything it tells others by (a barrier, an arrival).
An access happened before another one if the thread of the later one has heard of the earlier
thread's clock as it was then: Lamport, Time, Clocks, and the Ordering of Events in a Distributed
System, 1978; vectors of clocks for races: Flanagan and Freund, FastTrack, 2009.

Threads are rows, by their flat index in the chunk. Columns are the threads of a cluster, by their
index in it, and behind them those of engines: one for each mbarrier that tells of bulk copies, one
for the tensor cores of each warpgroup.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Extent

# Times of engines are behind all those of threads, so that no thread's time is mistaken for one.
FIRST_FLIGHT = 1 << 24


class Clocks:
    """Of the threads of a chunk."""

    # Called before some threads learn something, and after all threads of some blocks have.
    before_news: Callable[[], None] = staticmethod(lambda: None)
    after_meeting: Callable[[np.ndarray], None] = staticmethod(lambda blocks: None)

    def __init__(self, extent: Extent, cluster_size: int) -> None:
        self.threads = extent.warps * WARP  # of a block, as rows
        self.members = cluster_size * self.threads
        self.cluster_size = cluster_size
        self.num_rows = extent.blocks * self.threads
        self.now = np.ones(self.num_rows, np.int32)  # replaced, never changed in place
        # What all threads of a block know, and what one knows beyond that; mostly nobody does.
        self.known = np.zeros((extent.blocks, self.members), np.int32)
        self.seen: np.ndarray | None = None
        self.engines: dict[object, int] = {}  # and their columns
        self.flights = FIRST_FLIGHT  # what they have done so far
        self.settled = 0  # the time up to which every thread knows of all others it can meet

    def column(self, rows: np.ndarray) -> np.ndarray:
        columns: np.ndarray = rows % self.members
        return columns

    def engine(self, key: object) -> int:
        """The column of what works beside the threads: the copies that an mbarrier hears of, the
        tensor cores of a warpgroup."""
        if key not in self.engines:
            self.engines[key] = self.known.shape[1]
            self.known = np.pad(self.known, ((0, 0), (0, 1)))
            if self.seen is not None:
                self.seen = np.pad(self.seen, ((0, 0), (0, 1)))
        return self.engines[key]

    def knows(self, rows: np.ndarray, columns: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """Whether those threads have heard of that time of those others; all of one shape."""
        heard: np.ndarray = self.known[rows // self.threads, columns] >= epochs
        if self.seen is not None and not heard.all():
            heard |= self.seen[rows, columns] >= epochs
        return heard

    def meet(self, blocks: np.ndarray) -> None:
        """All threads of those blocks learn all that any of them knows."""
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
        self.after_meeting(blocks)

    def tell(self, rows: np.ndarray) -> np.ndarray:
        """As `together`; the threads' clocks go on."""
        self.before_news()
        told = self.together(rows)
        self.now = self.now.copy()
        self.now[rows] += 1
        return told

    def together(self, rows: np.ndarray) -> np.ndarray:
        """All that those threads of one cluster know, themselves included."""
        first, last = int(rows.min()) // self.threads, int(rows.max()) // self.threads
        told: np.ndarray = self.known[first].copy()
        if first != last:
            told = self.known[np.unique(rows // self.threads)].max(axis=0)
        if self.seen is not None:
            told = np.maximum(told, self.seen[rows].max(axis=0))
        columns = self.column(rows)
        told[columns] = np.maximum(told[columns], self.now[rows])
        return told

    def hear(self, rows: np.ndarray, told: np.ndarray) -> None:
        """Those threads learn something. `told` may be from before a column came."""
        self.before_news()
        if self.seen is None:
            self.seen = np.zeros((self.num_rows, self.known.shape[1]), np.int32)
        width = len(told)
        self.seen[rows, :width] = np.maximum(self.seen[rows, :width], told)

    def share(self, rows: np.ndarray) -> None:
        """Those threads of one cluster learn all that any of them knows."""
        told = self.tell(rows)
        if self.seen is None:
            self.seen = np.zeros((self.num_rows, self.known.shape[1]), np.int32)
        self.seen[rows] = told  # which has all that they had


class Boards:
    """What threads have left at places where others look: barriers, mbarriers, flags."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.notes: dict[object, np.ndarray] = {}

    def leave(self, place: object, told: np.ndarray) -> None:
        if place in self.notes:
            old = self.notes[place]
            told = told.copy()
            told[: len(old)] = np.maximum(told[: len(old)], old)
        self.notes[place] = told

    def take(self, place: object, rows: np.ndarray) -> None:
        if place in self.notes:
            self.clocks.hear(rows, self.notes[place])

    def move(self, place: object, to: object) -> None:
        """What was left at one place is found at another from now on."""
        if place in self.notes:
            self.leave(to, self.notes.pop(place))

    def clear(self, place: object) -> None:
        self.notes.pop(place, None)
