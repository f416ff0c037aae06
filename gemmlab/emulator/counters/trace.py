"""Traces of memory accesses.

A `Trace` passed to `run` records the addresses of each memory instruction in the first block. After
the launch it also holds the program and its tally. Other blocks, and launches without a trace, are
not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Value, three_axes
from gemmlab.emulator.observer import Observer, Request

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine
    from gemmlab.emulator.execution.tally import Tally
    from gemmlab.emulator.memory.arena import Allocation
    from gemmlab.emulator.memory.spaces import Access
    from gemmlab.emulator.program import Program

KEPT = 64  # recorded executions per instruction
OPERATIONS = {"load": "load", "store": "store", "update": "atomic"}  # kind of request -> name


class Requests(NamedTuple):
    """One execution of a memory instruction by the warps of the block; arrays of (warps, 32)."""

    addresses: np.ndarray  # byte addresses in the state space
    active: np.ndarray  # bool


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
            with the addresses of its first 64 executions.
        allocations: the buffers and variables in device memory.
        program: the translated kernel, after the launch.
        tally: the executions of each basic block, after the launch.
    """

    sites: dict[tuple[int, str], Site] = field(default_factory=dict)
    allocations: Sequence[Allocation] = ()
    program: Program = field(init=False)
    tally: Tally = field(init=False)

    def watch(self, machine: Machine) -> None:
        """Start recording the accesses of the machine's first block."""
        machine.space_global.observers.append(Recorder(self, machine, "global"))
        machine.space_shared.observers.append(Recorder(self, machine, "shared"))


class Recorder(Observer):
    """Records the accesses of one state space."""

    def __init__(self, trace: Trace, machine: Machine, space: str) -> None:
        self.trace, self.machine, self.space = trace, machine, space

    def accessing(self, request: Request) -> None:
        access, key = request.access, (request.access.instruction, self.space)
        site = self.trace.sites.get(key)
        if site is None:
            operation = OPERATIONS[request.kind]
            site = Site(access.instruction, self.space, operation, access.width)
            self.trace.sites[key] = site
        if len(site.executions) < KEPT:
            active = self.machine.active(request.mask)[0].copy()
            if active.any():
                addresses = _addresses(access, request.address, active)
                site.executions.append(Requests(addresses, active))


def _addresses(access: Access, address: Value, active: np.ndarray) -> np.ndarray:
    """Addresses of the first block's lanes, (warps, 32); 0 for inactive lanes."""
    base = three_axes(address)
    wrap = (1 << 8 * min(base.itemsize, 7)) - 1  # addresses have 48 bits
    found = (base[0].astype(np.int64) + access.offset) & wrap
    return np.where(active, np.broadcast_to(found, (len(active), WARP)), 0)
