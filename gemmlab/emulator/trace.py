"""Traces of memory accesses.

A `Trace` passed to `run` records the addresses of each memory instruction in the first block. After
the launch it also holds the program and its tally. Other blocks, and launches without a trace, are
not affected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Value, three_axes
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.launch.launch import Launch
from gemmlab.emulator.memory.arena import Allocation
from gemmlab.emulator.observer import Observer, Pending, Request
from gemmlab.emulator.program import Access, Program

KEPT = 64  # recorded executions per instruction
OPERATIONS = {"load": "load", "store": "store", "update": "atomic"}  # kind of request -> name


class Requests(NamedTuple):
    """One execution of a memory instruction by the warps of the block; arrays of (warps, 32)."""

    addresses: np.ndarray  # byte addresses in the state space
    active: np.ndarray  # bool
    step: int  # basic blocks that the emulator has executed before


@dataclass
class Site:
    """One memory instruction in one state space, with its first KEPT executions."""

    instruction: int  # index in the function
    space: str  # "global" or "shared"
    operation: str  # "load", "store" or "atomic"
    width: int  # bytes per lane
    executions: list[Requests] = field(default_factory=list)


@dataclass
class Trace:
    """The memory accesses of a launch's first block. One launch fills it.

    Attributes:
        sites: one item per memory instruction, by its index and state space, "global" or "shared",
            with the addresses of its first 64 executions. cp.async is a load from global memory.
        allocations: the buffers and variables in device memory.
        program: the translated kernel, after the launch.
        tally: the executions of each basic block, after the launch.
    """

    sites: dict[tuple[int, str], Site] = field(default_factory=dict)
    allocations: Sequence[Allocation] = ()
    program: Program = field(init=False)
    tally: Tally = field(init=False)

    def watch(self, machine: Machine) -> None:
        """Record the accesses of the grid's first block, if the machine runs it."""
        here = np.flatnonzero(machine.blocks == 0)
        if not here.size:
            return
        machine.space_global.observers.append(Recorder(self, machine, int(here[0]), "global"))
        machine.space_shared.observers.append(Recorder(self, machine, int(here[0]), "shared"))
        machine.observers.append(Copies(self, machine, int(here[0]), "global"))

    def most_clusters(self, launch: Launch) -> int:
        """The maximum number of clusters per chunk: a trace sets no limit."""
        return math.prod(launch.grid)


class Recorder(Observer):
    """Records the accesses of one block of a machine to one state space."""

    def __init__(self, trace: Trace, machine: Machine, block: int, space: str) -> None:
        self.trace, self.machine, self.block, self.space = trace, machine, block, space

    def accessing(self, request: Request) -> None:
        self.record(request, self.machine.active(request.mask)[self.block])

    def record(self, request: Request, active: np.ndarray) -> None:
        """Record a request of the block's lanes that are active, (warps, 32)."""
        access, key = request.access, (request.access.instruction, self.space)
        site = self.trace.sites.get(key)
        if site is None:
            operation = OPERATIONS[request.kind]
            site = Site(access.instruction, self.space, operation, access.width)
            self.trace.sites[key] = site
        if len(site.executions) < KEPT and active.any():
            addresses = _addresses(access, request.address, self.block, active)
            site.executions.append(Requests(addresses, active.copy(), self.machine.steps))


class Copies(Recorder):
    """Records what cp.async reads in global memory, as loads. It observes the machine."""

    def accessing(self, request: Request) -> None:
        """Accesses belong to the observers of state spaces."""

    def copy_issued(self, source: Request, nbytes: Value, _: Pending) -> None:
        wide = three_axes(nbytes)
        reads = np.broadcast_to(
            wide[self.block if len(wide) > 1 else 0], (self.machine.extent.warps, WARP)
        )
        self.record(source, self.machine.active(source.mask)[self.block] & (reads > 0))


def _addresses(access: Access, address: Value, block: int, active: np.ndarray) -> np.ndarray:
    """Addresses of a block's lanes, (warps, 32); 0 for inactive lanes."""
    base = three_axes(address)
    wrap = (1 << 8 * min(base.itemsize, 7)) - 1  # addresses have 48 bits
    found = (base[block if len(base) > 1 else 0].astype(np.int64) + access.offset) & wrap
    return np.where(active, np.broadcast_to(found, (len(active), WARP)), 0)
