"""cp.async: asynchronous copies from global to shared memory (PTX ISA, "cp.async").

Global memory is read when the instruction executes. Shared memory is written only when the issuing
thread waits for the copy, so a kernel that omits the wait reads stale data; on hardware it may read
either. A copy that is never waited for is never written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.counters import rules
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.chunk import Chunk, arena_offsets, offsets_of
from gemmlab.emulator.memory.spaces import GlobalSpace, SharedSpace
from gemmlab.emulator.observer import Observer, Pending, Request
from gemmlab.emulator.program import Access
from gemmlab.errors import EmulationError


@dataclass
class AsyncCopies:
    """The copies of a chunk's threads. Each thread numbers its groups from 0."""

    source: Source
    target: Target
    chunk: Chunk
    observers: list[Observer]  # of the machine
    counted: bool = True
    pending: list[Pending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.committed = np.zeros(self.chunk.extent.shape, np.int64)  # groups per thread

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
        """cp.async: copy `nbytes` bytes and fill the rest of the access width with zeros.

        bypass: the copy bypasses L1 (.cg), which affects only the counters.
        """
        extent, index = self.chunk.extent, to.instruction
        active = mask or Mask(np.ones(extent.shape, bool), extent)
        on = active.array
        size = np.where(on, three_axes(nbytes), 0).astype(np.int64)
        if (size > to.width).any():
            message = f"the source size exceeds the copy size of {to.width} bytes"
            self.chunk.fault(EmulationError, message, index, size > to.width, size)
        sources = self.source.locate(origin, source, size)
        targets = self.target.place(to, target, active)
        if self.counted:
            self._count(to, sources, targets, size, on, bypass)
        values = self.source.read(to, sources[on], size[on])
        cells = self.target.cells(to, targets)[on]
        copy = Pending(np.flatnonzero(on), self.committed[on], cells, values)
        self.pending.append(copy)
        for observer in self.observers:
            observer.copy_issued(Request("load", origin, source, (), mask), nbytes, copy)

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
        through_l1 = reading & (not bypass)  # bypassing copies skip the LSU data stage
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
        """cp.async.wait_group: complete all groups of a thread except the last `most`."""
        self._complete(self.committed - most, mask)

    def complete_all(self, mask: Mask | None) -> None:
        """cp.async.mbarrier.arrive: complete all copies of a thread. Groups do not change."""
        self._complete(self.committed + 1, mask)

    def _complete(self, limit: np.ndarray, mask: Mask | None) -> None:
        """Complete the copies whose group number is below their thread's limit."""
        if mask is not None:
            limit = np.where(mask.array, limit, 0)
        left = []
        for copy in self.pending:
            due = copy.group < limit.reshape(-1)[copy.lanes]
            done = copy if due.all() else copy.part(due)
            self.target.put(done)
            for observer in self.observers:
                observer.copy_completed(done)
            if done is not copy:
                left.append(copy.part(~due))
        self.pending = left

    def wait_all(self, mask: Mask | None) -> None:
        """cp.async.wait_all: also completes copies that have not been committed to a group."""
        self.commit(mask)
        self.wait(0, mask)


class Source(GlobalSpace):
    """Global memory as the source of cp.async: each lane reads a prefix of the access width."""

    def locate(self, access: Access, address: Value, size: np.ndarray) -> np.ndarray:
        """Offsets into the arena, (blocks, warps, 32); 0 for lanes that read nothing."""
        offsets = self.chunk.spread(arena_offsets(access, address))
        for n in np.unique(size[size > 0]).tolist():
            part = Mask(size == n, self.chunk.extent)
            read = Access(access.instruction, access.offset, np.dtype("u1"), n)
            self._check_bounds(read, offsets, offsets[part.array], part)
        offsets = np.where(size > 0, offsets, 0)
        self.chunk.check_alignment(access, offsets, None, self.memory.name_of, GLOBAL_BASE)
        return offsets

    def read(self, access: Access, offsets: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
        """The elements of each lane. Bytes past `size` are zero."""
        nbytes = access.dtype.itemsize
        view, index = self.memory.view(access.dtype), offsets // nbytes
        values = [view.take(index + i) for i in range(access.num_elements)]
        if (size < access.width).any():
            for i, value in enumerate(values):
                missing = np.arange(i * nbytes, (i + 1) * nbytes) >= size[:, None]
                value.view(np.uint8).reshape(missing.shape)[missing] = 0
        return values


class Target(SharedSpace):
    """Shared memory as the target of cp.async: addresses are checked when the copy is issued."""

    def place(self, access: Access, address: Value, mask: Mask) -> np.ndarray:
        """Offsets into the block's shared memory, (blocks, warps, 32)."""
        offsets = self.chunk.spread(offsets_of(access, address))
        self._check(access, offsets, offsets[mask.array], mask)
        return offsets

    def cells(self, access: Access, offsets: np.ndarray) -> np.ndarray:
        """Flat indices in `data` of the elements at those offsets."""
        block = np.arange(len(self.data))[:, None, None] * self.data.shape[1]
        cells: np.ndarray = (block + offsets) // access.dtype.itemsize
        return cells

    def put(self, copy: Pending) -> None:
        flat = self.data.reshape(-1).view(copy.values[0].dtype)
        for i, value in enumerate(copy.values):
            flat[copy.cells + i] = value
