"""State spaces, which check, count and execute loads, stores and atomics.

`load` and `store` take the register values of addresses and a mask of lanes (None for all). Bounds
and alignment are checked before each access. counters/rules.py has the counting rules. If several
lanes of one store write the same address, the highest lane wins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, expand, repeats, three_axes
from gemmlab.emulator.counters import rules
from gemmlab.emulator.memory.addresses import within
from gemmlab.emulator.memory.arena import GLOBAL_BASE, GlobalMemory
from gemmlab.emulator.memory.atomics import Operation, update
from gemmlab.emulator.memory.chunk import Chunk, arena_offsets, offsets_of
from gemmlab.emulator.observer import Observer, observed
from gemmlab.emulator.program import Access
from gemmlab.errors import IllegalAccess, OutOfBoundsError


@dataclass
class GlobalSpace:
    """Global memory. Accesses to .const memory are not counted, because they bypass L1."""

    memory: GlobalMemory
    chunk: Chunk
    counted: bool = True
    observers: list[Observer] = field(default_factory=list)

    @observed
    def load(self, access: Access, address: Value, mask: Mask | None) -> tuple[Value, ...]:
        index = self._access(access, address, mask)
        view = self.memory.view(access.dtype)
        if mask is None:
            if index.size == 1:
                first = index.item()
                return tuple(view[first : first + access.num_elements])
            return tuple(view.take(index + i if i else index) for i in range(access.num_elements))
        return tuple(expand(view.take(index + i), mask) for i in range(access.num_elements))

    @observed
    def store(
        self, access: Access, address: Value, values: Sequence[Value], mask: Mask | None
    ) -> None:
        index = self._access(access, address, mask)
        view = self.memory.view(access.dtype)
        for i, value in enumerate(values):
            if mask is None:
                shape = np.broadcast_shapes(index.shape, np.shape(value))
                view[np.broadcast_to(index + i, shape)] = value
            else:
                view[index + i] = self.chunk.spread(value)[mask.array]

    @observed
    def update(
        self,
        access: Access,
        address: Value,
        operation: Operation,
        operands: Sequence[Value],
        mask: Mask | None,
    ) -> tuple[np.ndarray, ...]:
        index = self._access(access, address, mask, rules.atomic_sectors)
        index = self.chunk.spread(index).reshape(-1) if mask is None else index
        cells, count = self.memory.view(access.dtype), access.num_elements
        return update(cells, index, operation, operands, mask, self.chunk.extent, count)

    def _access(
        self,
        access: Access,
        address: Value,
        mask: Mask | None,
        sectors: Callable[..., int] = rules.sectors,
    ) -> np.ndarray:
        """Check and count an access. Returns the element index of each lane; with a mask, a flat
        array over the active lanes."""
        offsets = arena_offsets(access, address)
        active = offsets if mask is None else self.chunk.spread(offsets)[mask.array]
        self._check_bounds(access, offsets, active, mask)
        self.chunk.check_alignment(access, offsets, mask, self.memory.name_of, GLOBAL_BASE)
        if self.counted:
            self._count(access, offsets, mask, sectors)
        return active >> (access.dtype.itemsize.bit_length() - 1)

    def _count(
        self, access: Access, offsets: np.ndarray, mask: Mask | None, sectors: Callable[..., int]
    ) -> None:
        counts, extent = self.chunk.counts[access.instruction, "global"], self.chunk.extent
        if mask is None:
            counts.requests += extent.blocks * extent.warps
            counts.threads += extent.blocks * extent.warps * 32
            rows = offsets.reshape(-1, offsets.shape[2])
            counts.sectors += sectors(rows) * repeats(offsets, extent)
        else:
            counts.requests += mask.warps
            counts.threads += mask.lanes
            on = mask.array.reshape(-1, 32)
            counts.sectors += sectors(self.chunk.spread(offsets).reshape(-1, 32), on)

    def _check_bounds(
        self, access: Access, offsets: np.ndarray, active: np.ndarray, mask: Mask | None
    ) -> None:
        memory = self.memory
        low, high = int(active.min()), int(active.max())
        owner = bisect_right(memory.starts, low) - 1
        if (
            owner >= 0
            and high + access.width <= memory.starts[owner] + memory.allocations[owner].nbytes
        ):
            return
        owners = np.searchsorted(memory.edges[0], offsets, side="right") - 1
        starts, ends = (np.append(edges, 0) for edges in memory.edges)  # of owner -1: nothing
        inside = within(offsets, access.width, starts[owners], ends[owners])
        bad = self.chunk.spread(~inside)
        bad = bad if mask is None else bad & mask.array
        if bad.any():
            address = self.chunk.first(bad, offsets, None) + GLOBAL_BASE
            message, illegal = memory.miss(address, access.width, access.dtype.itemsize)
            addresses = offsets + GLOBAL_BASE
            self.chunk.report(OutOfBoundsError, message, access, bad, addresses, mask, illegal)


class Pattern(NamedTuple):
    """A shared memory access with equal addresses in all blocks; cached per address pattern."""

    elements: np.ndarray  # (warps or 1, lanes or 1) element index
    wavefronts: int  # of all warps of one block
    ideal: int  # wavefronts without bank conflicts


@dataclass
class SharedSpace:
    """Shared memory of the chunk's blocks: (blocks, bytes)."""

    data: np.ndarray
    nbytes: int  # accessible by the kernel; `data` is padded
    chunk: Chunk
    patterns: dict[tuple[Access, tuple[int, ...], bytes], Pattern] = field(default_factory=dict)
    observers: list[Observer] = field(default_factory=list)
    counted: bool = True

    @observed
    def load(self, access: Access, address: Value, mask: Mask | None) -> tuple[Value, ...]:
        view = self.data.view(access.dtype)
        offsets = offsets_of(access, address)
        if self.has_one_pattern(offsets, mask):
            index = self._pattern(access, offsets).elements
            return tuple(
                view.take(index + i if i else index, axis=1) for i in range(access.num_elements)
            )
        block, index = self._general(access, offsets, mask, is_load=True)
        values = (view[block, index + i] for i in range(access.num_elements))
        return tuple(values if mask is None else (expand(v, mask) for v in values))

    @observed
    def store(
        self, access: Access, address: Value, values: Sequence[Value], mask: Mask | None
    ) -> None:
        view = self.data.view(access.dtype)
        offsets = offsets_of(access, address)
        if self.has_one_pattern(offsets, mask):
            index = self._pattern(access, offsets, is_load=False).elements
            index = np.broadcast_to(index, self.chunk.extent.shape[1:])
            for i, value in enumerate(values):
                view[:, index + i] = value
            return
        block, index = self._general(access, offsets, mask, is_load=False)
        for i, value in enumerate(values):
            spread = self.chunk.spread(value)
            view[block, index + i] = spread if mask is None else spread[mask.array]

    @observed
    def update(
        self,
        access: Access,
        address: Value,
        operation: Operation,
        operands: Sequence[Value],
        mask: Mask | None,
    ) -> tuple[np.ndarray, ...]:
        cells = self.data.view(access.dtype)
        block, index = self._general(access, offsets_of(access, address), mask, is_load=True)
        index = (block * cells.shape[1] + index).reshape(-1)
        return update(cells.reshape(-1), index, operation, operands, mask, self.chunk.extent)

    def has_one_pattern(self, offsets: np.ndarray, mask: Mask | None) -> bool:
        """Whether the addresses are the same in all blocks."""
        return mask is None and len(offsets) == 1

    def _pattern(self, access: Access, offsets: np.ndarray, is_load: bool = True) -> Pattern:
        key = access, offsets.shape, offsets.tobytes()
        pattern = self.patterns.get(key)
        extent = self.chunk.extent
        if pattern is None:
            self._check(access, offsets, offsets, None)
            rows = np.broadcast_to(offsets[0], (offsets.shape[1], 32))
            waves, ideal = rules.wavefronts(rows, None, access.width, is_load)
            factor = extent.warps // len(rows)
            index = offsets[0] >> (access.dtype.itemsize.bit_length() - 1)
            pattern = Pattern(index, int(waves.sum()) * factor, int(ideal.sum()) * factor)
            self.patterns[key] = pattern
        if not self.counted:
            return pattern
        counts = self.chunk.counts[access.instruction, "shared"]
        counts.requests += extent.blocks * extent.warps
        counts.threads += extent.blocks * extent.warps * 32
        counts.wavefronts += pattern.wavefronts * extent.blocks
        counts.ideal_wavefronts += pattern.ideal * extent.blocks
        return pattern

    def _general(
        self, access: Access, offsets: np.ndarray, mask: Mask | None, is_load: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """`_locate`, and count the access if accesses are counted."""
        block, index = self._locate(access, offsets, mask)
        if not self.counted:
            return block, index
        rows = self.chunk.spread(offsets).reshape(-1, 32)
        on = None if mask is None else mask.array.reshape(-1, 32)
        if on is not None:
            some = on.any(axis=1)
            rows, on = rows[some], on[some]
        waves, ideal = rules.wavefronts(rows, on, access.width, is_load)
        counts = self.chunk.counts[access.instruction, "shared"]
        counts.requests += len(rows)
        counts.threads += index.size
        counts.wavefronts += int(waves.sum())
        counts.ideal_wavefronts += int(ideal.sum())
        return block, index

    def locate(
        self, access: Access, address: Value, mask: Mask | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Block and element index of each active lane, flat. Checked but not counted."""
        block, index = self._locate(access, offsets_of(access, address), mask)
        spread = np.broadcast_to(block, index.shape)
        return spread.reshape(-1), index.reshape(-1)

    def _locate(
        self, access: Access, offsets: np.ndarray, mask: Mask | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Block and element index of each lane; with a mask, flat arrays over the active lanes."""
        spread = self.chunk.spread(offsets)
        active = spread if mask is None else spread[mask.array]
        self._check(access, offsets, active, mask)
        blocks = np.arange(len(self.data))[:, None, None]
        block = blocks if mask is None else self.chunk.spread(blocks)[mask.array]
        return block, active >> (access.dtype.itemsize.bit_length() - 1)

    def _check(
        self, access: Access, offsets: np.ndarray, active: np.ndarray, mask: Mask | None
    ) -> None:
        low, high = int(active.min()), int(active.max())
        if low < 0 or high + access.width > self.nbytes:
            bad = ~within(offsets, access.width, 0, self.nbytes)
            first = self.chunk.first(bad, offsets, mask)
            place = self.chunk.name_of_shared(first, access.dtype.itemsize)
            why = f"the block has {self.nbytes} bytes of shared memory"
            message = f"shared access of {access.width} bytes at {first:#x} is out of bounds: "
            message, illegal = f"{message}{place}, {why}", IllegalAccess(place, why)
            self.chunk.report(OutOfBoundsError, message, access, bad, offsets, mask, illegal)
        self.chunk.check_alignment(access, offsets, mask, self.chunk.name_of_shared)


@dataclass
class LocalSpace:
    """Per-thread local memory, (blocks, warps, 32, bytes).

    Counted in the layout of hardware, which interleaves the 4-byte words of a warp's 32 lanes.
    Call arguments are not counted.
    """

    data: np.ndarray
    chunk: Chunk
    counted: bool = True
    observers: list[Observer] = field(default_factory=list)

    @observed
    def load(self, access: Access, address: Value, mask: Mask | None) -> tuple[Value, ...]:
        index = self._access(access, address, mask)
        view = self.data.view(access.dtype)
        return tuple(
            np.take_along_axis(view, index + i, axis=3)[..., 0] for i in range(access.num_elements)
        )

    @observed
    def store(
        self, access: Access, address: Value, values: Sequence[Value], mask: Mask | None
    ) -> None:
        index = self._access(access, address, mask)
        view = self.data.view(access.dtype)
        for i, value in enumerate(values):
            value = self.chunk.spread(value)[..., None]
            if mask is not None:
                old = np.take_along_axis(view, index + i, axis=3)
                value = np.where(mask.array[..., None], value, old)
            np.put_along_axis(view, index + i, value, axis=3)

    def _access(self, access: Access, address: Value, mask: Mask | None) -> np.ndarray:
        offsets = self.chunk.spread(offsets_of(access, address))
        nbytes = self.data.shape[3]
        bad = ~within(offsets, access.width, 0, nbytes)
        on = np.ones(bad.shape, bool) if mask is None else mask.array
        if (bad & on).any():
            first = self.chunk.first(bad, offsets, mask)
            why = f"a thread has {nbytes} bytes of local memory"
            message = f"local access of {access.width} bytes at {first:#x} is out of bounds: {why}"
            illegal = IllegalAccess(f"byte {first} of local memory", why)
            self.chunk.report(OutOfBoundsError, message, access, bad, offsets, mask, illegal)
        self.chunk.check_alignment(access, offsets, mask)
        if self.counted:
            counts = self.chunk.counts[access.instruction, "local"]
            counts.requests += int(np.count_nonzero(on.any(axis=2)))
            counts.threads += int(np.count_nonzero(on))
            words = rules.word(offsets).reshape(-1, 32)
            for i in range(rules.words_per_lane(access.width)):
                places = rules.local_address(words + i, np.arange(32))
                counts.sectors += rules.sectors(places, on.reshape(-1, 32))
        inside = np.where(on, offsets, 0)
        return (inside >> (access.dtype.itemsize.bit_length() - 1))[..., None]


@dataclass
class ParamSpace:
    """The kernel parameters, in the constant bank. Not counted. Addresses are usually uniform."""

    data: np.ndarray
    chunk: Chunk

    def load(self, access: Access, address: Value, mask: Mask | None) -> tuple[Value, ...]:
        offsets = offsets_of(access, address)
        if mask is not None and offsets.size > 1:
            offsets = np.where(mask.array, offsets, 0)
        if offsets.min() < 0 or offsets.max() + access.width > self.data.size:
            bad = ~within(offsets, access.width, 0, self.data.size)
            message = f"access past the kernel's {self.data.size} bytes of parameters"
            self.chunk.report(OutOfBoundsError, message, access, bad, offsets, mask)
        self.chunk.check_alignment(access, offsets, mask)
        index = offsets >> (access.dtype.itemsize.bit_length() - 1)
        view = self.data.view(access.dtype)
        if index.size == 1:
            first = index.item()
            return tuple(view[first : first + access.num_elements])
        return tuple(view.take(index + i) for i in range(access.num_elements))

    def store(
        self, access: Access, address: Value, values: Sequence[Value], mask: Mask | None
    ) -> None:
        message = "parameters are read-only"
        offsets = three_axes(address).astype(np.int64)
        self.chunk.report(OutOfBoundsError, message, access, offsets == offsets, offsets, mask)
