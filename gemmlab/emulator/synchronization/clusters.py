"""Barriers of clusters (PTX ISA, "barrier.cluster")."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask
from gemmlab.emulator.launch.threads import Threads
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.deadlock import Blocked
from gemmlab.errors import EmulationError


class ClusterBarrier:
    """barrier.cluster: counts the arrivals of each thread and the completed phases of each
    cluster."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.size = math.prod(threads.launch.cluster)
        self.arrivals = np.zeros(threads.extent.shape, np.int64)
        self.must_wait = np.zeros(threads.extent.shape, bool)
        self.completed = np.zeros((threads.num_blocks, 1, 1), np.int64)  # of each block's cluster
        self.waiting: list[tuple[Block, np.ndarray]] = []

    def arrive(self, index: int, mask: Mask | None) -> None:
        on = self.threads.active(mask)
        if (on & self.must_wait).any():
            message = "a thread arrives twice at its cluster's barrier without a wait in between"
            self.threads.fault(EmulationError, message, index, on & self.must_wait, self.arrivals)
        for observer in self.threads.observers:
            observer.cluster_arrived(index, mask)
        self.must_wait |= on
        self.arrivals[on] += 1
        self.release()

    def wait(self, block: Block, mask: Mask | None) -> None:
        on = self.threads.active(mask)
        if (on & ~self.must_wait).any():
            message = "a thread waits at its cluster's barrier without having arrived"
            bad = on & ~self.must_wait
            self.threads.fault(EmulationError, message, block.last - 1, bad, self.arrivals)
        self.must_wait &= ~on
        self.waiting.append((block, on.copy()))
        self.release()

    def release(self) -> None:
        """Release the lanes of clusters in which all live threads have arrived."""
        threads = self.threads
        missing = (threads.live & (self.arrivals <= self.completed)).any(axis=(1, 2))
        some = threads.live.any(axis=(1, 2)).reshape(-1, self.size).any(axis=1)
        complete = ~missing.reshape(-1, self.size).any(axis=1) & some
        self.completed += np.repeat(complete, self.size).reshape(-1, 1, 1)
        for observer in threads.observers:
            observer.cluster_completed(np.flatnonzero(complete))
        waiting, self.waiting = self.waiting, []
        for block, lanes in waiting:
            free = lanes & (self.arrivals <= self.completed)
            if free.any():
                for observer in threads.observers:
                    observer.cluster_passed(free)
                threads.go(block.targets[-1], threads.make_mask(free))
            if (rest := lanes & ~free).any():
                self.waiting.append((block, rest))

    def blocked(self, number: int) -> Iterator[Blocked]:
        """The threads of one block that wait for their cluster."""
        threads, first = self.threads, number // self.size * self.size
        cluster = slice(first, first + self.size)
        arrived = threads.live[cluster] & (self.arrivals[cluster] > self.completed[cluster])
        for block, lanes in self.waiting:
            if lanes[number].any():
                alive = int(threads.live[cluster].sum())
                there = f"{int(arrived.sum())} of {alive} threads have arrived"
                what = f"{int(lanes[number].sum())} threads wait for their cluster ({there})"
                yield Blocked(block.last - 1, lanes[number], what)
