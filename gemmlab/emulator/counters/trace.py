"""Traces of memory accesses.

A `Trace` passed to `run` records the addresses of each memory instruction in the first block, by
wrapping the memory methods of that block's machine. After the launch it also holds the program and
its tally. Other blocks, and launches without a trace, are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine
    from gemmlab.emulator.execution.tally import Tally
    from gemmlab.emulator.memory.arena import Allocation
    from gemmlab.emulator.memory.spaces import Access
    from gemmlab.emulator.program import Program

KEPT = 64  # recorded executions per instruction
OPERATIONS = {"load": "load", "store": "store", "update": "atomic"}  # method of a space -> name


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
        for name in ("global", "shared"):
            space = getattr(machine, f"space_{name}")
            for method, operation in OPERATIONS.items():
                if hasattr(space, method):
                    original = getattr(space, method)
                    setattr(space, method, self._recording(machine, name, operation, original))

    def _recording(
        self, machine: Machine, space: str, operation: str, access_memory: Callable[..., Any]
    ) -> Callable[..., Any]:
        """A replacement of the method `access_memory` that records its calls."""

        def recorded(access: Access, address: Value, *rest: Any) -> Any:
            mask: Mask | None = rest[-1]
            key = access.instruction, space
            site = self.sites.get(key)
            if site is None:
                site = self.sites[key] = Site(access.instruction, space, operation, access.width)
            if len(site.executions) < KEPT:
                active = machine.active(mask)[0].copy()
                if active.any():
                    site.executions.append(Requests(_addresses(access, address, active), active))
            return access_memory(access, address, *rest)

        return recorded


def _addresses(access: Access, address: Value, active: np.ndarray) -> np.ndarray:
    """Addresses of the first block's lanes, (warps, 32); 0 for inactive lanes."""
    base = three_axes(address)
    wrap = (1 << 8 * min(base.itemsize, 7)) - 1  # addresses have 48 bits
    found = (base[0].astype(np.int64) + access.offset) & wrap
    return np.where(active, np.broadcast_to(found, (len(active), WARP)), 0)
