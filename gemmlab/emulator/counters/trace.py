"""What a launch did, for those who want more than totals.

A `Trace` that is given to `run` keeps the addresses that the warps of the first block asked memory
for, instruction by instruction. Its machine's memory calls pass through it; without one, and in all
other blocks, nothing is different. At the end it also holds the program and its tally.
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
    from gemmlab.emulator.translation.translate import Program

KEPT = 64  # executions of each instruction
OPERATIONS = {"load": "load", "store": "store", "update": "atomic"}  # of a space's methods


class Requests(NamedTuple):
    """One execution of a memory instruction by the warps of the block, (warps, 32) each."""

    addresses: np.ndarray  # bytes, in the state space
    active: np.ndarray  # which lanes took part


@dataclass
class Site:
    """One memory instruction in one state space, and its first executions."""

    instruction: int  # index in the function
    space: str  # "global" or "shared"
    operation: str  # "load", "store" or "atomic"
    width: int  # bytes per lane
    executions: list[Requests] = field(default_factory=list)


@dataclass
class Trace:
    """Filled by one launch; `program`, `tally` and `allocations` are set when it has ended."""

    sites: dict[tuple[int, str], Site] = field(default_factory=dict)
    allocations: Sequence[Allocation] = ()
    program: Program = field(init=False)
    tally: Tally = field(init=False)

    def watch(self, machine: Machine) -> None:
        """Note the accesses of the machine's first block from now on."""
        for name in ("global", "shared"):
            space = getattr(machine, f"space_{name}")
            for method, operation in OPERATIONS.items():
                if hasattr(space, method):
                    done = getattr(space, method)
                    setattr(space, method, self._noting(machine, name, operation, done))

    def _noting(
        self, machine: Machine, space: str, operation: str, access_memory: Callable[..., Any]
    ) -> Callable[..., Any]:
        def noted(access: Access, address: Value, *rest: Any) -> Any:
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

        return noted


def _addresses(access: Access, address: Value, active: np.ndarray) -> np.ndarray:
    """Where the lanes of the first block go, (warps, 32); 0 for those that do not take part."""
    base = three_axes(address)
    wrap = (1 << 8 * min(base.itemsize, 7)) - 1  # addresses have 48 bits
    found = (base[0].astype(np.int64) + access.offset) & wrap
    return np.where(active, np.broadcast_to(found, (len(active), WARP)), 0)
