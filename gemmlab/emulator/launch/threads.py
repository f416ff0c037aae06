"""The threads of a chunk of thread blocks: where they run next, their registers, which are alive.

Barriers, mbarriers, copies and tensor cores share this state. A set of lanes
is a Mask, or None for all lanes of the chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NoReturn

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Extent, Mask, Value, three_axes
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.launch.coordinates import block_index
from gemmlab.emulator.launch.launch import Dim3, Launch
from gemmlab.emulator.memory.chunk import Chunk
from gemmlab.emulator.observer import Observer
from gemmlab.errors import EmulationError, IllegalAccess

Ready = dict[int, Mask | None]  # next basic block -> lanes
Side = Mask | Literal[False] | None  # lanes on one side of a branch; False if there are none


@dataclass
class Threads:
    """The state of the threads of one chunk, which consists of whole clusters."""

    launch: Launch
    blocks: np.ndarray  # linear indices
    tally: Tally
    ready: Ready = field(default_factory=dict)
    registers: list[Value] = field(default_factory=list)
    observers: list[Observer] = field(default_factory=list)
    first_warp: int = 0  # number within its block of the first warp of the chunk
    multiplies: bool = True  # False: products of tensor cores leave their sums as they are

    def __post_init__(self) -> None:
        launch, num_warps = self.launch, -(-self.launch.threads // WARP)
        self.num_blocks = len(self.blocks)
        self.extent = extent = Extent(self.num_blocks, num_warps)
        self.chunk = Chunk(extent, self.tally.sites, self.fault, self.launch.program)
        thread = np.arange(num_warps * WARP).reshape(1, num_warps, WARP)
        self.live = np.broadcast_to(thread < launch.threads, extent.shape).copy()
        self.num_lanes = self.num_blocks * launch.threads
        self.whole = launch.threads == num_warps * WARP

    def go(self, target: int, mask: Mask | None) -> None:
        """Make lanes ready at basic block `target`, together with the lanes already there."""
        if target not in self.ready:
            self.ready[target] = mask
            return
        present = self.ready[target]
        assert present is not None and mask is not None
        self.ready[target] = self.make_mask(present.array | mask.array, present.lanes + mask.lanes)

    def make_mask(self, array: np.ndarray, lanes: int | None = None) -> Mask | None:
        mask = Mask(array, self.extent, lanes)
        return None if self.whole and mask.lanes == self.num_lanes else mask

    def active(self, mask: Mask | None) -> np.ndarray:
        return self.live if mask is None else mask.array

    def leave(self, pc: int, mask: Mask | None) -> None:
        """Remove lanes from those ready at basic block `pc`."""
        present = self.ready.pop(pc)
        if mask is present or mask is None:
            return
        rest = self.active(present) & ~mask.array
        if rest.any():
            self.ready[pc] = Mask(rest, self.extent)

    def enabled(self, guard: Value, mask: Mask | None) -> tuple[bool, Mask | None]:
        """Whether any lane passes the guard, and the mask of the lanes that pass."""
        on, _ = self.split(guard, mask)
        return (False, None) if on is False else (True, on)

    def lanes_of(self, mask: Mask | None) -> int:
        return self.num_lanes if mask is None else mask.lanes

    def split(self, predicate: Value, mask: Mask | None) -> tuple[Side, Side]:
        """The lanes of `mask` where the predicate is true (None: all), and the rest."""
        if predicate is None:
            return mask, False
        if np.size(predicate) == 1:
            return (mask, False) if np.any(predicate) else (False, mask)
        predicate = three_axes(predicate)
        if mask is None:
            if predicate.all():
                return mask, False
            if not predicate.any():
                return False, mask
            yes = Mask(predicate, self.extent)
        else:
            yes = Mask(predicate & mask.array, self.extent)
            if yes.lanes == mask.lanes:
                return mask, False
            if yes.lanes == 0:
                return False, mask
        rest = self.active(mask) & ~yes.array
        return yes, Mask(rest, self.extent, self.lanes_of(mask) - yes.lanes)

    def block_index(self, number: int) -> Dim3:
        return block_index(self.launch.grid, int(self.blocks[number]))

    def fault(
        self,
        error: type[EmulationError],
        message: str,
        index: int,
        bad: np.ndarray,
        addresses: np.ndarray,
        access: IllegalAccess | None = None,
    ) -> NoReturn:
        """Raise `error` for the first faulting lane. bad, addresses: (blocks, warps, 32)."""
        b, w, lane = (int(x) for x in np.argwhere(bad)[0])
        site = self.launch.program.function.instructions[index].site
        others = int(np.count_nonzero(bad)) - 1
        if others:
            message += f" (and {others} more lanes of this instruction)"
        address = int(addresses[b, w, lane])
        thread = (self.first_warp + w) * WARP + lane
        raise error(message, site, self.block_index(b), thread, address, access)
