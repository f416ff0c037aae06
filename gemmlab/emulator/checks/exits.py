"""Checks the lifetime of distributed shared memory.

The shared memory of a block exists from the start of the block until its last thread exits. A
thread that accesses it from another block of the cluster must have synchronized with the block
before the access, and a thread of the block must synchronize with the accessing thread before the
block exits.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask
from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.observer import Observer
from gemmlab.emulator.program import Block

KIND = "cluster lifetime"


class Exits(Observer):
    """The remote accesses and exits of the blocks of one chunk."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.size = state.cluster_size
        self.site = 0  # the last instruction of the current basic block
        blocks, members = state.machine.num_blocks, state.clocks.members
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
        state, clocks = self.state, self.state.clocks
        to, own = cells // state.row, rows // clocks.threads
        remote = to != own
        if not remote.any():
            return
        rows, to = rows[remote], to[remote]
        columns = clocks.column(rows)
        self.reached[to, columns] = clocks.now[rows]
        self.sites[to, columns] = site
        for block in np.unique(to).tolist():
            some, cell = rows[to == block], int(cells[remote][to == block][0])
            if not state.machine.live[block].any():
                self._report("has exited", block, site, int(self.site_of_exit[block]), some, cell)
            first = block % self.size * clocks.threads
            theirs = np.arange(first, first + clocks.threads)
            known = clocks.known[some[:, None] // clocks.threads, theirs].max(axis=1)
            if clocks.seen is not None:
                known = np.maximum(known, clocks.seen[some[:, None], theirs].max(axis=1))
            if (known == 0).any():
                self._report("may not have started", block, site, None, some[known == 0], cell)

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        self.site = max(block.last - 1, 0)

    def exited(self, lanes: np.ndarray) -> None:
        if self.size == 1:
            return
        state, clocks = self.state, self.state.clocks
        on = lanes.reshape(state.machine.num_blocks, -1)
        for block in np.flatnonzero(on.any(axis=1)).tolist():
            rows = block * clocks.threads + np.flatnonzero(on[block])
            joined = clocks.joined(rows)[: clocks.members]
            self.joined[block] = np.maximum(self.joined[block], joined)
            if state.machine.live[block].any():
                continue
            self.site_of_exit[block] = self.site
            late = np.flatnonzero(self.reached[block] > self.joined[block])
            if late.size:
                site = int(self.sites[block, late[0]])
                first = block // self.size * clocks.members
                self._report("may have exited", block, site, self.site, first + late)

    def _report(
        self,
        state_of_block: str,
        owner: int,
        site: int,
        other: int | None,
        rows: np.ndarray,
        cell: int | None = None,
    ) -> None:
        """owner: the block whose memory the threads access. other: its exit; None if it may not
        have started. cell: the granule, if known."""
        state, threads = self.state, self.state.clocks.threads
        if not state.findings.wants(KIND, site, other):
            return
        block = int(rows[0]) // threads
        here = (rows[rows // threads == block] % threads).tolist()
        place = "shared memory" if cell is None else state.place_of("shared", cell, site)
        at = state.code[site].site
        when = "the end of the kernel" if other is not None else advice.line(at)
        message = (
            f"thread {here[0]} accesses {place} of block {owner % self.size} of the cluster at "
            f"{advice.line(at)}, which {state_of_block}: put {advice.barrier('cluster', at)} "
            f"before {when}"
        )
        state.findings.add(KIND, message, site, other, state.machine.block_index(block), here)
