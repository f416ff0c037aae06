"""Runs the blocks of a launch on the NumPy tier."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from gemmlab.core import status
from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters.tally import Deadline, Tally
from gemmlab.emulator.execution.livelock import Chunk, LivelockDetector
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.execution.schedule import Order
from gemmlab.emulator.launch.coordinates import blocks_of_clusters
from gemmlab.emulator.launch.launch import Launch

# With chunks of about this many lanes, the working set of one instruction fits in a core's L2.
CHUNK_LANES = 8192
# Blocks of one chunk run in lockstep, which hides races between them. Orders other than "in-order"
# therefore run a grid as at least this many chunks, one after another.
MIN_CHUNKS = 16
# Threads that a GPU can hold at once: 132 multiprocessors of 64 warps.
RESIDENT_LANES = 132 * 64 * WARP
# Processor time after which native code finds out whether a launch ends.
LONG_SECONDS = 1.5
DONE = object()


class Watcher(Protocol):
    """Observes the machines of a launch, such as its checks or its trace."""

    def watch(self, machine: Machine) -> None:
        """Add observers to a machine that has not started."""

    def most_clusters(self, launch: Launch) -> int:
        """The maximum number of clusters per chunk."""


def execute(
    launch: Launch,
    limit: float = math.inf,
    at_limit: Callable[[], None] = lambda: None,
    seconds: float = math.inf,
    *,
    order: Order,
    watchers: Sequence[Watcher] = (),
) -> Tally:
    """Run all blocks of a launch on the NumPy tier, chunk by chunk.

    A chunk runs to completion before the next starts, unless it waits for another chunk to change
    memory. Then further chunks start, up to the number of threads a GPU can hold at once.
    `at_limit` is called once: when the launch exceeds `limit` thread-instructions or `seconds` of
    processor time, will exceed `limit` if its remaining blocks do as much as those that are done,
    or when a warp exceeds LONG instructions.
    """
    if launch.heap is not None:
        launch.heap.reset()
    tally, per_cluster = Tally.of(launch.program), math.prod(launch.cluster)
    tally.limit, tally.at_limit = limit, at_limit
    tally.deadline = Deadline(seconds) if seconds < math.inf else None
    clusters = math.prod(launch.grid) // per_cluster
    lanes = -(-launch.threads // WARP) * WARP * per_cluster
    step = max(1, CHUNK_LANES // lanes)
    if not order.is_lockstep:
        step = min(step, -(-clusters // MIN_CHUNKS))
    step = min([step, *(watcher.most_clusters(launch) for watcher in watchers)])
    most_resident = max(1, RESIDENT_LANES // (lanes * step))
    waiting = iter(order.of_blocks(range(0, clusters, step)))  # not copied: there may be many
    unstarted = clusters
    resident: deque[Chunk] = deque()
    done, how = 0, "" if order.is_lockstep else f", order {order.name}"  # for the status line
    livelocks, turns = LivelockDetector(launch), 0  # turns: since the last completed round
    # GPU arithmetic defines overflows, NaNs and divisions by zero; NumPy would warn about them.
    with np.errstate(all="ignore"):
        while True:
            room = unstarted > 0 and len(resident) < most_resident
            if room:
                first = next(waiting)
                count = min(step, clusters - first)
                unstarted -= count
                numbers = order.of_blocks(range(first, first + count))
                blocks = blocks_of_clusters(launch.grid, launch.cluster, numbers)
                machine = Machine(launch, blocks, tally, order=order)
                for watcher in watchers:
                    watcher.watch(machine)
                resident.appendleft(Chunk(machine, machine.run()))
            if not resident:
                return tally
            chunk = resident.popleft()
            if next(chunk.steps, DONE) is DONE:
                turns, done = 0, done + len(chunk.machine.blocks)
                if tally.work / done * clusters * per_cluster > limit:  # if the others are alike
                    tally.is_long()
                status.detail(f"{done:,} of {clusters * per_cluster:,} blocks{how}")
                continue
            resident.append(chunk)
            turns = 0 if room else turns + 1
            if turns == len(resident):
                livelocks.check(resident, unstarted * per_cluster)
                turns = 0
