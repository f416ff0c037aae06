"""Checks the lifetime of distributed shared memory.

The shared memory of a block exists from the start of the block until its last thread exits. A
thread that accesses it from another block of the cluster must have synchronized with the block
before the access, and a thread of the block must synchronize with the accessing thread before the
block exits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask
from gemmlab.emulator.observer import Observer
from gemmlab.emulator.program import Block

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor

KIND = "cluster lifetime"


class Exits(Observer):
    """The remote accesses and exits of the blocks of one chunk."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.size = monitor.cluster_size
        self.site = 0  # the last instruction of the current basic block
        blocks, members = monitor.machine.num_blocks, monitor.clocks.members
        if self.size == 1:
            return
        # Per block and thread of the cluster: epoch and instruction of the last remote access.
        self.reached = np.zeros((blocks, members), np.int64)
        self.sites = np.zeros((blocks, members), np.int64)
        self.joined = np.zeros((blocks, members), np.int64)  # joined clocks of the exited threads
        self.site_of_exit = np.zeros(blocks, np.int64)

    def reach(self, rows: np.ndarray, cells: np.ndarray, site: int) -> None:
        """Record that each thread accesses the corresponding granule of shared memory."""
        if self.size == 1:
            return
        monitor, clocks = self.monitor, self.monitor.clocks
        to, own = cells // monitor.row, rows // clocks.threads
        remote = to != own
        if not remote.any():
            return
        rows, to = rows[remote], to[remote]
        columns = clocks.column(rows)
        self.reached[to, columns] = clocks.now[rows]
        self.sites[to, columns] = site
        for block in np.unique(to).tolist():
            some = rows[to == block]
            if not monitor.machine.live[block].any():
                what = "a thread accesses the shared memory of a block that has exited"
                self._report(what, site, int(self.site_of_exit[block]), some)
            first = block % self.size * clocks.threads
            theirs = np.arange(first, first + clocks.threads)
            known = clocks.known[some[:, None] // clocks.threads, theirs].max(axis=1)
            if clocks.seen is not None:
                known = np.maximum(known, clocks.seen[some[:, None], theirs].max(axis=1))
            if (known == 0).any():
                what = "a thread accesses the shared memory of a block that may not have started"
                self._report(what, site, None, some[known == 0])

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        self.site = max(block.last - 1, 0)

    def exited(self, lanes: np.ndarray) -> None:
        if self.size == 1:
            return
        monitor, clocks = self.monitor, self.monitor.clocks
        on = lanes.reshape(monitor.machine.num_blocks, -1)
        for block in np.flatnonzero(on.any(axis=1)).tolist():
            rows = block * clocks.threads + np.flatnonzero(on[block])
            joined = clocks.joined(rows)[: clocks.members]
            self.joined[block] = np.maximum(self.joined[block], joined)
            if monitor.machine.live[block].any():
                continue
            self.site_of_exit[block] = self.site
            late = np.flatnonzero(self.reached[block] > self.joined[block])
            if late.size:
                site = int(self.sites[block, late[0]])
                first = block // self.size * clocks.members
                what = "a block may exit before a thread has accessed its shared memory"
                self._report(what, site, self.site, first + late)

    def _report(self, what: str, site: int, other: int | None, rows: np.ndarray) -> None:
        monitor, threads = self.monitor, self.monitor.clocks.threads
        block = int(rows[0]) // threads
        here = (rows[rows // threads == block] % threads).tolist()
        at = monitor.machine.block_index(block)
        monitor.findings.add(KIND, what, site, other, at, here)
