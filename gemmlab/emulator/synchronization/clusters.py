"""Distributed shared memory and barriers of clusters (PTX ISA, "Cluster of Cooperative Thread
Arrays").

A .shared::cluster address holds the offset in the block's shared memory, and in bits 24 and up the
rank of the block plus 1. A zero there means the executing block, so every .shared::cta address is
also a valid .shared::cluster address.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.memory.spaces import RANK_SHIFT, Access, SharedSpace
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.deadlock import Stuck
from gemmlab.errors import EmulationError, OutOfBoundsError

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine


def map_address(address: Value, rank: Value) -> Value:
    """mapa: the same offset in the shared memory of the block with the given rank."""
    kind = address.dtype.type
    own = address & ~kind((0xFF << RANK_SHIFT) % (1 << 8 * address.dtype.itemsize))
    return own | (rank.astype(address.dtype) + kind(1)) << kind(RANK_SHIFT)


def rank_of(address: Value, own: Value) -> Value:
    """getctarank: the rank of the block that owns an address. own: the executing block's rank."""
    bits = three_axes(address) >> address.dtype.type(RANK_SHIFT)
    rank = bits.astype(np.uint32) & np.uint32(0xFF)
    return np.where(rank > 0, rank - np.uint32(1), own)


class ClusterSpace(SharedSpace):
    """The shared memory of all blocks of a cluster (.shared::cluster)."""

    cluster_size: int = 1

    def has_one_pattern(self, offsets: np.ndarray, mask: Mask | None) -> bool:
        return super().has_one_pattern(offsets, mask) and not (offsets >> RANK_SHIFT).any()

    def _locate(
        self, access: Access, offsets: np.ndarray, mask: Mask | None
    ) -> tuple[np.ndarray, np.ndarray]:
        block, index = super()._locate(access, offsets & ~(0xFF << RANK_SHIFT), mask)
        rank = self.chunk.spread(offsets >> RANK_SHIFT & 0xFF)
        bad = rank > self.cluster_size
        if (bad if mask is None else bad & mask.array).any():
            message = f"block rank past the end of a cluster of {self.cluster_size}"
            self.chunk.report(OutOfBoundsError, message, access, bad, offsets, mask)
        rank = rank if mask is None else rank[mask.array]
        first = block // self.cluster_size * self.cluster_size
        return np.where(rank > 0, first + rank - 1, block), index


class ClusterBarrier:
    """barrier.cluster: counts the arrivals of each thread and the completed phases of each
    cluster."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.size = math.prod(machine.launch.cluster)
        self.arrivals = np.zeros(machine.extent.shape, np.int64)
        self.must_wait = np.zeros(machine.extent.shape, bool)
        self.completed = np.zeros((machine.num_blocks, 1, 1), np.int64)  # of each block's cluster
        self.waiting: list[tuple[Block, np.ndarray]] = []

    def arrive(self, index: int, mask: Mask | None) -> None:
        on = self.machine.active(mask)
        if (on & self.must_wait).any():
            message = "a thread arrives twice at its cluster's barrier without a wait in between"
            self.machine.fault(EmulationError, message, index, on & self.must_wait, self.arrivals)
        for observer in self.machine.observers:
            observer.cluster_arrived(index, mask)
        self.must_wait |= on
        self.arrivals[on] += 1
        self.release()

    def wait(self, block: Block, mask: Mask | None) -> None:
        on = self.machine.active(mask)
        if (on & ~self.must_wait).any():
            message = "a thread waits at its cluster's barrier without having arrived"
            bad = on & ~self.must_wait
            self.machine.fault(EmulationError, message, block.last - 1, bad, self.arrivals)
        self.must_wait &= ~on
        self.waiting.append((block, on.copy()))
        self.release()

    def release(self) -> None:
        """Release the lanes of clusters in which all live threads have arrived."""
        machine = self.machine
        missing = (machine.live & (self.arrivals <= self.completed)).any(axis=(1, 2))
        some = machine.live.any(axis=(1, 2)).reshape(-1, self.size).any(axis=1)
        complete = ~missing.reshape(-1, self.size).any(axis=1) & some
        self.completed += np.repeat(complete, self.size).reshape(-1, 1, 1)
        for observer in machine.observers:
            observer.cluster_completed(np.flatnonzero(complete))
        waiting, self.waiting = self.waiting, []
        for block, lanes in waiting:
            free = lanes & (self.arrivals <= self.completed)
            if free.any():
                for observer in machine.observers:
                    observer.cluster_passed(free)
                machine.go(block.targets[-1], machine.make_mask(free))
            if (rest := lanes & ~free).any():
                self.waiting.append((block, rest))

    def stuck(self, number: int) -> Iterator[Stuck]:
        """The threads of one block that wait for their cluster."""
        machine, first = self.machine, number // self.size * self.size
        cluster = slice(first, first + self.size)
        arrived = machine.live[cluster] & (self.arrivals[cluster] > self.completed[cluster])
        for block, lanes in self.waiting:
            if lanes[number].any():
                alive = int(machine.live[cluster].sum())
                there = f"{int(arrived.sum())} of {alive} threads have arrived"
                what = f"{int(lanes[number].sum())} threads wait for their cluster ({there})"
                yield Stuck(block.last - 1, lanes[number], what)
