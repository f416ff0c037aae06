"""cp.async: copies from global to shared memory that arrive later (PTX ISA, "cp.async").

Data leaves global memory when the instruction executes, and arrives in shared memory when the
thread that issued it waits for it, not before: a kernel that forgets to wait reads what was there
until then. Hardware may be faster, by chance. Copies that nobody waits for never arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gemmlab.emulator.arena import GLOBAL_BASE
from gemmlab.emulator.lanes import Mask, Value, three_axes
from gemmlab.emulator.memory import Access, Chunk, GlobalSpace, SharedSpace, offsets_of
from gemmlab.errors import EmulationError


@dataclass
class Pending:
    """One instruction's copies that are under way."""

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
        mask: Mask | None,
    ) -> None:
        """cp.async: `nbytes` of the access's width come from the source, the rest is zeros."""
        values = self.source.read(origin, source, nbytes, mask)
        cells = self.target.cells(to, target, mask)
        on = np.ones(self.chunk.extent.shape, bool) if mask is None else mask.array
        lanes = np.flatnonzero(on)
        self.pending.append(Pending(lanes, self.committed.reshape(-1)[lanes], cells, values))

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

    def read(
        self, access: Access, address: Value, nbytes: Value, mask: Mask | None
    ) -> list[np.ndarray]:
        """The elements of each active lane, flat. Bytes from `nbytes` on are zeros, and nobody
        asks whether they exist."""
        whole = np.size(nbytes) == 1 and int(nbytes) == access.width
        if whole:
            index = self._access(access, address, mask)
            index = index if mask is not None else self.chunk.spread(index).reshape(-1)
        else:
            index, size = self._access_part(access, address, nbytes, mask)
        view = self.memory.view(access.dtype)
        values = [view.take(index + i) for i in range(access.num_elements)]
        if not whole:
            for i, value in enumerate(values):
                first = i * access.dtype.itemsize
                beyond = np.arange(first, first + access.dtype.itemsize) >= size[:, None]
                value.view(np.uint8).reshape(beyond.shape)[beyond] = 0
        return values

    def _access_part(
        self, access: Access, address: Value, nbytes: Value, mask: Mask | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Check and count; element index and bytes to read of each active lane."""
        extent = self.chunk.extent
        on = np.ones(extent.shape, bool) if mask is None else mask.array
        size = np.where(on, three_axes(nbytes), 0).astype(np.int64)
        if (size > access.width).any():
            message = f"the source has more bytes than the {access.width} of the copy"
            self.chunk.fault(EmulationError, message, access.instruction, size > access.width, size)
        base = np.uint64((access.offset - GLOBAL_BASE) % (1 << 64))
        offsets = self.chunk.spread(three_axes((address + base).view(np.int64)))
        for n in np.unique(size[size > 0]).tolist():
            part = Mask(size == n, extent)
            bytes_ = Access(access.instruction, access.offset, np.dtype("u1"), n)
            self._check_bounds(bytes_, offsets, offsets[part.array], part)
        reading = Mask(size > 0, extent)
        if reading.lanes:
            self.chunk.check_alignment(access, offsets, reading, GLOBAL_BASE)
            self._count(access, offsets, reading)
        index = np.where(size > 0, offsets, 0) >> (access.dtype.itemsize.bit_length() - 1)
        return index[on], size[on]


class Target(SharedSpace):
    """Shared memory, written later than its addresses are checked and counted."""

    def cells(self, access: Access, address: Value, mask: Mask | None) -> np.ndarray:
        """The first element that each active lane will write, in `data` as a flat array."""
        offsets = offsets_of(access, address)
        row = self.data.shape[1] // access.dtype.itemsize
        if mask is None and len(offsets) == 1:
            index = self._pattern(access, offsets, is_load=False).elements
            block = np.arange(len(self.data))[:, None, None]
        else:
            block, index = self._general(access, offsets, mask, is_load=False)
        cells = block * row + index
        return cells if mask is not None else self.chunk.spread(cells).reshape(-1)

    def put(self, copy: Pending) -> None:
        flat = self.data.reshape(-1).view(copy.values[0].dtype)
        for i, value in enumerate(copy.values):
            flat[copy.cells + i] = value
