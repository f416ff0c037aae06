"""cp.async: copies from global to shared memory that arrive later (PTX ISA, "cp.async").

Data leaves global memory when the instruction executes, and arrives in shared memory when the
thread that issued it waits for it, not before: a kernel that forgets to wait reads what was there
until then. Hardware may be faster, by chance. Copies that nobody waits for never arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.counters import rules
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.spaces import Access, Chunk, GlobalSpace, SharedSpace, offsets_of
from gemmlab.errors import EmulationError


class Pending(NamedTuple):
    """One instruction's copies that are under way; all arrays have one entry per lane."""

    lanes: np.ndarray  # of the chunk, flat
    group: np.ndarray  # that each of them belongs to
    cells: np.ndarray  # of shared memory, flat elements
    values: list[np.ndarray]  # one array per element of a lane's copy

    def part(self, keep: np.ndarray) -> Pending:
        values = [v[keep] for v in self.values]
        return Pending(self.lanes[keep], self.group[keep], self.cells[keep], values)


@dataclass
class AsyncCopies:
    """The copies of a chunk's threads. Groups are numbered per thread, from 0 on."""

    source: Source
    target: Target
    chunk: Chunk
    pending: list[Pending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.committed = np.zeros(self.chunk.extent.shape, np.int64)  # groups, of each thread

    def issue(
        self,
        to: Access,
        target: Value,
        origin: Access,
        source: Value,
        nbytes: Value,
        bypass: bool,
        mask: Mask | None,
    ) -> None:
        """cp.async: `nbytes` of the access's width come from the source, the rest is zeros.

        `bypass`: past L1 (.cg), which only the counters notice.
        """
        extent, index = self.chunk.extent, to.instruction
        active = mask or Mask(np.ones(extent.shape, bool), extent)
        on = active.array
        size = np.where(on, three_axes(nbytes), 0).astype(np.int64)
        if (size > to.width).any():
            message = f"the source has more bytes than the {to.width} of the copy"
            self.chunk.fault(EmulationError, message, index, size > to.width, size)
        sources = self.source.locate(origin, source, size)
        targets = self.target.place(to, target, active)
        self._count(to, sources, targets, size, on, bypass)
        values = self.source.read(to, sources[on], size[on])
        cells = self.target.cells(to, targets)[on]
        self.pending.append(Pending(np.flatnonzero(on), self.committed[on], cells, values))

    def _count(
        self,
        access: Access,
        sources: np.ndarray,
        targets: np.ndarray,
        size: np.ndarray,
        on: np.ndarray,
        bypass: bool,
    ) -> None:
        rows = (x.reshape(-1, 32) for x in (sources, targets, size > 0, on & (size < access.width)))
        sources, targets, reading, zeroed = rows
        from_global = self.chunk.counts[access.instruction, "global"]
        from_global.requests += int(np.count_nonzero(reading.any(axis=1)))
        from_global.threads += int(np.count_nonzero(reading))
        if bypass:
            from_global.sectors += rules.bypass_sectors(sources, targets, reading)
        else:
            from_global.sectors += rules.sectors(sources, reading)
        through_l1 = reading & (not bypass)  # else data is written without the LSU's data stage
        waves, ideal = rules.copy_wavefronts(sources, targets, through_l1, zeroed, access.width)
        to_shared = self.chunk.counts[access.instruction, "shared"]
        to_shared.requests += int(np.count_nonzero(on.any(axis=2)))
        to_shared.threads += int(np.count_nonzero(on))
        to_shared.wavefronts += int(waves.sum())
        to_shared.ideal_wavefronts += int(ideal.sum())

    def commit(self, mask: Mask | None) -> None:
        """cp.async.commit_group"""
        self.committed += 1 if mask is None else mask.array

    def wait(self, most: int, mask: Mask | None) -> None:
        """cp.async.wait_group: all groups of a thread but the last `most` arrive."""
        self._land(self.committed - most, mask)

    def land_all(self, mask: Mask | None) -> None:
        """cp.async.mbarrier.arrive: all copies of a thread arrive, its groups stay as they are."""
        self._land(self.committed + 1, mask)

    def _land(self, limit: np.ndarray, mask: Mask | None) -> None:
        """Copies whose group lies below the limit of their thread arrive."""
        if mask is not None:
            limit = np.where(mask.array, limit, 0)
        left = []
        for copy in self.pending:
            due = copy.group < limit.reshape(-1)[copy.lanes]
            self.target.put(copy if due.all() else copy.part(due))
            if not due.all():
                left.append(copy.part(~due))
        self.pending = left

    def wait_all(self, mask: Mask | None) -> None:
        """cp.async.wait_all: copies that belong to no group yet arrive too."""
        self.commit(mask)
        self.wait(0, mask)


class Source(GlobalSpace):
    """Global memory, of which each lane reads some bytes of the access's width."""

    def locate(self, access: Access, address: Value, size: np.ndarray) -> np.ndarray:
        """Offset into the arena, of the chunk's shape; 0 for lanes that read nothing."""
        base = np.uint64((access.offset - GLOBAL_BASE) % (1 << 64))
        offsets = self.chunk.spread(three_axes((address + base).view(np.int64)))
        for n in np.unique(size[size > 0]).tolist():
            part = Mask(size == n, self.chunk.extent)
            read = Access(access.instruction, access.offset, np.dtype("u1"), n)
            self._check_bounds(read, offsets, offsets[part.array], part)
        offsets = np.where(size > 0, offsets, 0)
        self.chunk.check_alignment(access, offsets, None, GLOBAL_BASE)
        return offsets

    def read(self, access: Access, offsets: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
        """The elements of each lane; bytes from `size` on are zeros."""
        nbytes = access.dtype.itemsize
        view, index = self.memory.view(access.dtype), offsets // nbytes
        values = [view.take(index + i) for i in range(access.num_elements)]
        if (size < access.width).any():
            for i, value in enumerate(values):
                missing = np.arange(i * nbytes, (i + 1) * nbytes) >= size[:, None]
                value.view(np.uint8).reshape(missing.shape)[missing] = 0
        return values


class Target(SharedSpace):
    """Shared memory, written later than its addresses are checked."""

    def place(self, access: Access, address: Value, mask: Mask) -> np.ndarray:
        """Offset into the block's shared memory, of the chunk's shape."""
        offsets = self.chunk.spread(offsets_of(access, address))
        self._check(access, offsets, offsets[mask.array], mask)
        return offsets

    def cells(self, access: Access, offsets: np.ndarray) -> np.ndarray:
        """The elements at those offsets, in `data` as a flat array."""
        block = np.arange(len(self.data))[:, None, None] * self.data.shape[1]
        cells: np.ndarray = (block + offsets) // access.dtype.itemsize
        return cells

    def put(self, copy: Pending) -> None:
        flat = self.data.reshape(-1).view(copy.values[0].dtype)
        for i, value in enumerate(copy.values):
            flat[copy.cells + i] = value
