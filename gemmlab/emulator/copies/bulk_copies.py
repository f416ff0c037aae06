"""Bulk copies by the copy engine (TMA) between global and shared memory (PTX ISA, "cp.async.bulk",
"cp.async.bulk.tensor", "cp.reduce.async.bulk").

Each active lane starts its own copy. Hardware may move the bytes at any time until the copy is
waited for. The emulator chooses the time by the launch's scheduling order: "in-order" copies as
late as possible (when no warp can run otherwise, or when the thread waits for the copy's group),
"reversed" copies immediately, and a seed draws a random time. A kernel that fails to wait for a
copy, or overwrites its source too early, therefore gives different results in different orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, spread, three_axes
from gemmlab.emulator.copies import reductions, tensor_maps
from gemmlab.emulator.copies.places import Bytes, SharedBox, TensorBox, Words
from gemmlab.emulator.copies.tensor_maps import MAP_BYTES, Descriptor, sectors
from gemmlab.emulator.counters.rules import SECTOR_BYTES
from gemmlab.emulator.launch.threads import Threads
from gemmlab.emulator.memory.addresses import (
    OFFSET_MASK,
    RANK_SHIFT,
    WINDOW_BITS,
    WINDOW_STARTS,
    WINDOWS,
)
from gemmlab.emulator.observer import Combine, Origin, Place, Transfer
from gemmlab.emulator.program import Access
from gemmlab.emulator.synchronization.mbarriers import Mbarriers
from gemmlab.errors import (
    EmulationError,
    MisalignedAddressError,
    OutOfBoundsError,
    UnsupportedInstructionError,
)

BOX_ALIGNMENT = 128  # bytes; alignment of a box in shared memory
MBARRIER = np.dtype("u8")


def moved(address: Value, offset: int) -> Value:
    """Add a constant to an address, wrapping at the address width."""
    return address + address.dtype.type(offset % (1 << 8 * address.dtype.itemsize))


class Lane(NamedTuple):
    """A thread that executes a bulk instruction."""

    instruction: int
    block: int
    warp: int
    lane: int


class BulkCopies:
    """The bulk copies of a chunk's threads. Each thread numbers its groups from 0."""

    def __init__(
        self,
        threads: Threads,
        shared: np.ndarray,
        mbarriers: Mbarriers,
        to_complete: Callable[[list[Transfer]], list[Transfer]],
    ) -> None:
        """shared: the shared memory of all blocks, (blocks, bytes). to_complete: the in-flight
        copies that complete now, although no thread waits for them yet."""
        self.threads, self.shared, self.mbarriers = threads, shared, mbarriers
        self.to_complete = to_complete
        self.transfers: list[Transfer] = []
        self.committed = np.zeros(threads.extent.shape, np.int64)  # groups per thread
        self.memory = threads.launch.memory
        self.cluster_size = math.prod(threads.launch.cluster)

    # Called by generated code. signal: access and address of an mbarrier. blocks: multicast mask,
    # one bit per rank in the cluster. combine: the operation of a reduction.

    def copy(
        self,
        index: int,
        spaces: tuple[str, str],
        addresses: tuple[Value, Value],
        nbytes: Value,
        signal: tuple[Access, Value] | None,
        blocks: Value | None,
        combine: Combine | None,
        mask: Mask | None,
    ) -> None:
        """cp.async.bulk: copy `nbytes` contiguous bytes. spaces, addresses: target and source."""
        stores = "tma_st" if combine is None else "tma_red"
        for lane, cell, ranks, (target, source, size) in self._lanes(
            index, (*addresses, nbytes), signal, blocks, combine, mask
        ):
            if (target | source | size) % CHUNK:
                what = f"bulk copy of {size} bytes from {source:#x} to {target:#x}"
                self._fail(lane, MisalignedAddressError, f"{what}: not multiples of 16", target)
            start = self._bytes(lane, spaces[1], source, size, None)
            ends = [self._bytes(lane, spaces[0], target, size, rank) for rank in ranks]
            if "global" in spaces:
                address, kind = (source, "tma_ld") if spaces[1] == "global" else (target, stores)
                touched = int(sectors(np.array(address), size))
                self._count(kind, len(ranks) * touched)
            self._start(lane, start, list(ends), combine, self._cells(lane, cell, ranks), size)

    def load_box(
        self,
        index: int,
        target: Value,
        tensor: tuple[Value, ...],
        signal: tuple[Access, Value],
        blocks: Value | None,
        mask: Mask | None,
    ) -> None:
        """Copy a box of a tensor to shared memory.

        tensor: the address of the tensor map, then the coordinates, innermost first.
        """
        for lane, cell, ranks, (to, map_, *at) in self._lanes(
            index, (target, *tensor), signal, blocks, None, mask
        ):
            descriptor = self._descriptor(lane, map_, len(at))
            start = self._tensor(lane, descriptor, tuple(at))
            ends = [self._box(lane, descriptor, to, rank) for rank in ranks]
            cells = self._cells(lane, cell, ranks)
            read = descriptor.whole(tuple(at)).sectors(descriptor.address)
            self._count("tma_ld", len(ranks) * read)
            self._start(lane, start, list(ends), None, cells, descriptor.nbytes)

    def store_box(
        self,
        index: int,
        source: Value,
        tensor: tuple[Value, ...],
        operation: str | None,
        mask: Mask | None,
    ) -> None:
        """Copy a box from shared memory to a tensor, or reduce it into the tensor.

        tensor: the address of the tensor map, then the coordinates, innermost first.
        """
        for lane, _, _, (start, map_, *at) in self._lanes(
            index, (source, *tensor), None, None, operation, mask
        ):
            descriptor = self._descriptor(lane, map_, len(at))
            combine = None
            if operation is not None:
                type_ = reductions.PTX_TYPES.get(descriptor.format, "")
                combine = reductions.find(operation, type_)
                if combine is None:
                    message = f"no bulk reduction .{operation} of {descriptor.format}"
                    self._fail(lane, UnsupportedInstructionError, message, start)
            if min(at) < 0:
                message = f"a stored box begins at {tuple(at)}, before the tensor"
                self._fail(lane, OutOfBoundsError, message, descriptor.address)
            end = self._tensor(lane, descriptor, tuple(at))
            box = self._box(lane, descriptor, start, None)
            self._count("tma_red" if operation else "tma_st", end.sectors)
            self._start(lane, box, [end], combine, [], descriptor.nbytes)

    def send(
        self,
        index: int,
        address: Value,
        words: tuple[Value, ...],
        signal: tuple[Access, Value],
        combine: Combine | None,
        mask: Mask | None,
    ) -> None:
        """st.async and red.async: send registers (unsigned) to the cluster's shared memory."""
        dtype, nbytes = words[0].dtype, words[0].dtype.itemsize * len(words)
        for lane, cell, ranks, (target, *values) in self._lanes(
            index, (address, *words), signal, None, combine, mask
        ):
            if target % nbytes:
                message = f"store of {nbytes} bytes to {target:#x}, not a multiple of {nbytes}"
                self._fail(lane, MisalignedAddressError, message, target)
            end = self._bytes(lane, "shared", target, nbytes, None)
            data = Words(np.array(values, dtype).view(np.uint8))
            self._start(lane, data, [end], combine, self._cells(lane, cell, ranks), nbytes)

    def replace_field(
        self,
        index: int,
        space: str,
        address: Value,
        field: str,
        axis: int,
        value: Value,
        mask: Mask | None,
    ) -> None:
        """tensormap.replace: change one field of a tensor map in memory."""
        for lane, _, _, (at, new) in self._lanes(index, (address, value), None, None, True, mask):
            data = self._bytes(lane, space, at, MAP_BYTES, None).view
            if not tensor_maps.replace(data, field, axis, new):
                message = f"a tensor map cannot have {new} as {field} of axis {axis}"
                self._fail(lane, EmulationError, message, at)

    def copy_map(self, index: int, target: Value, source: Value, mask: Mask | None) -> None:
        """tensormap.cp_fenceproxy: copy a tensor map from shared to global memory."""
        for lane, _, _, (to, at) in self._lanes(index, (target, source), None, None, None, mask):
            data = self._bytes(lane, "shared", at, MAP_BYTES, None).view
            self._bytes(lane, "global", to, MAP_BYTES, None).view[:] = data

    def commit(self, mask: Mask | None) -> None:
        """cp.async.bulk.commit_group"""
        self.committed += 1 if mask is None else mask.array

    def wait(self, most: int, only_reads: bool, mask: Mask | None) -> None:
        """cp.async.bulk.wait_group: complete all groups of a thread except the last `most`.

        only_reads: wait only until sources have been read (.read); this matters to observers only.
        """
        self._complete(self.awaited(self.transfers, most, mask), only_reads)
        for observer in self.threads.observers:
            observer.transfers_awaited(most, only_reads, mask)

    def awaited(self, transfers: list[Transfer], most: int, mask: Mask | None) -> list[Transfer]:
        """The transfers for which such a wait waits."""
        limit = self.committed - most
        if mask is not None:
            limit = np.where(mask.array, limit, 0)
        flat = limit.reshape(-1)
        return [t for t in transfers if not t.cells and t.group < flat[t.thread]]

    def fence(self, mask: Mask | None) -> None:
        """fence.proxy.async: has no effect, since copies see all earlier writes."""
        for observer in self.threads.observers:
            observer.proxy_fenced(mask)

    def fence_init(self, mask: Mask | None) -> None:
        """fence.mbarrier_init: has no effect."""
        for observer in self.threads.observers:
            observer.mbarrier_init_fenced(mask)

    # Called by the machine

    def complete_awaited(self) -> None:
        """Complete the copies that signal mbarriers, or all copies once every thread has exited."""
        over = not self.threads.live.any()
        self._complete([t for t in self.transfers if t.cells or over])

    def complete_all(self) -> None:
        """Complete all copies."""
        if self.transfers:
            self._complete(self.transfers)

    def complete_some(self) -> None:
        """Complete the copies that the scheduling order picks."""
        self._complete(self.to_complete(self.transfers))

    def _complete(self, due: list[Transfer], only_reads: bool = False) -> None:
        if not due:
            return
        completed = set(map(id, due))
        self.transfers = [t for t in self.transfers if id(t) not in completed]
        for t in due:
            data = t.source.read()
            for target in t.targets:
                target.write(data if t.combine is None else t.combine(target.read(), data))
            for observer in self.threads.observers:
                observer.transfer_completed(t, only_reads)
            if t.cells:
                cells = np.array(t.cells)
                access = Access(t.instruction, 0, MBARRIER, 1)
                self.mbarriers.add_tx(access, cells, np.full(len(cells), -t.nbytes))

    # Lanes, and the sources and targets of their copies

    def _lanes(
        self,
        index: int,
        operands: tuple[Value, ...],
        signal: tuple[Access, Value] | None,
        blocks: Value | None,
        combine: object,
        mask: Mask | None,
    ) -> Iterator[tuple[Lane, int | None, list[int | None], list[int]]]:
        """For each active lane: itself, the cell of its mbarrier, the target ranks (None for its
        own block), and its operands."""
        on, shape = self.threads.active(mask), self.threads.extent.shape
        among = (np.uint32(0) if blocks is None else blocks,)
        columns = [spread(three_axes(x), shape)[on].tolist() for x in (*operands, *among)]
        cells = self.mbarriers.cells(*signal, mask).tolist() if signal else None
        seen: set[tuple[int, ...]] = set()
        threads = zip(np.argwhere(on).tolist(), zip(*columns, strict=True), strict=True)
        for k, (place, (*values, bits)) in enumerate(threads):
            # Identical stores by several lanes of a warp are executed once.
            key = (*place[:2], *values)
            if key in seen and signal is None and combine is None:
                continue
            seen.add(key)
            lane, ranks = Lane(index, *place), list[int | None]([None])
            if blocks is not None:
                ranks = [rank for rank in range(16) if bits >> rank & 1]
                if not 0 < bits < 1 << self.cluster_size:
                    message = f"multicast to ranks {ranks} of a cluster of {self.cluster_size}"
                    self._fail(lane, EmulationError, message, bits)
            yield lane, cells[k] if cells else None, ranks, values

    def _count(self, kind: str, touched: int) -> None:
        self.threads.tally.copied[kind] += touched * SECTOR_BYTES

    def _start(
        self,
        lane: Lane,
        source: Origin,
        targets: list[Place],
        combine: Combine | None,
        cells: list[int],
        nbytes: int,
    ) -> None:
        thread = (lane.block * self.threads.extent.warps + lane.warp) * WARP + lane.lane
        group = int(self.committed[lane.block, lane.warp, lane.lane])
        transfer = Transfer(
            lane.instruction, thread, group, source, targets, combine, cells, nbytes
        )
        self.transfers.append(transfer)
        for observer in self.threads.observers:
            observer.transfer_started(transfer)

    def _block(self, lane: Lane, address: int, rank: int | None) -> tuple[int, int]:
        """Block and offset of a shared address. rank: of the target block; None uses the rank in
        the address, if any."""
        named = address >> RANK_SHIFT
        rank = named - 1 if rank is None and named else rank
        if rank is None:
            return lane.block, address
        if rank >= self.cluster_size:
            message = f"shared address {address:#x}: no rank {rank} in {self.cluster_size} blocks"
            self._fail(lane, OutOfBoundsError, message, address)
        return lane.block // self.cluster_size * self.cluster_size + rank, address & OFFSET_MASK

    def _cells(self, lane: Lane, cell: int | None, ranks: list[int | None]) -> list[int]:
        """Cells of the mbarriers that a copy signals: at the same offset in each target block."""
        if cell is None:
            return []
        row = self.shared.shape[1] // 8
        first = lane.block // self.cluster_size * self.cluster_size
        return [cell if r is None else cell % row + (first + r) * row for r in ranks]

    def _bytes(self, lane: Lane, space: str, address: int, nbytes: int, rank: int | None) -> Bytes:
        if space == "global":
            view = self.memory.span(address, nbytes)
            if view is None:
                message, _ = self.memory.miss(address, nbytes)
                self._fail(lane, OutOfBoundsError, message, address)
            return Bytes(view)
        return Bytes(self._shared(lane, address, nbytes, rank))

    def _shared(self, lane: Lane, address: int, nbytes: int, rank: int | None) -> np.ndarray:
        """`nbytes` bytes of shared memory, starting at an address."""
        block, offset = self._block(lane, address, rank)
        if offset + nbytes > self.threads.launch.shared_bytes:
            message = (
                f"bulk copy of {nbytes} bytes at shared address {offset:#x} is out of bounds: the "
                f"block has {self.threads.launch.shared_bytes} bytes of shared memory"
            )
            self._fail(lane, OutOfBoundsError, message, address)
        return self.shared[block, offset : offset + nbytes]

    def _box(self, lane: Lane, d: Descriptor, address: int, rank: int | None) -> SharedBox:
        if address % BOX_ALIGNMENT:
            message = f"shared address {address:#x} of a box is not a multiple of {BOX_ALIGNMENT}"
            self._fail(lane, MisalignedAddressError, message, address)
        self._shared(lane, address, d.extent, rank)
        block, offset = self._block(lane, address, rank)
        return SharedBox(self.shared[block].reshape(-1, CHUNK), d.chunks(offset))

    def _descriptor(self, lane: Lane, address: int, rank: int) -> Descriptor:
        window = dict(enumerate(WINDOWS)).get(address >> WINDOW_BITS)
        if window in ("shared", "local"):
            message = f"the tensor map address {address:#x} is in shared or local memory"
            rule = "declare a parameter `const __grid_constant__ CUtensorMap`"
            self._fail(lane, EmulationError, f"{message}: {rule}", address)
        if address % tensor_maps.MAP_ALIGNMENT:
            alignment = tensor_maps.MAP_ALIGNMENT
            message = f"the tensor map address {address:#x} is not a multiple of {alignment}"
            self._fail(lane, MisalignedAddressError, message, address)
        if window == "param":
            offset = address - WINDOW_STARTS["param"]
            data = self.threads.launch.parameters[offset : offset + MAP_BYTES]
        else:
            data = self._bytes(lane, "global", address, MAP_BYTES, None).view
        descriptor = tensor_maps.decode(data.tobytes())
        if descriptor is None or len(descriptor.dims) != rank:
            found = f"one of {len(descriptor.dims)} axes" if descriptor else "no tensor map"
            message = f"expected a tensor map of {rank} axes at {address:#x}, found {found}"
            self._fail(lane, EmulationError, message, address)
        return descriptor

    def _tensor(self, lane: Lane, d: Descriptor, coordinates: tuple[int, ...]) -> TensorBox:
        if coordinates[0] * d.dtype.itemsize % CHUNK:
            message = f"coordinate {coordinates[0]} of {d.format} is not at a multiple of 16 bytes"
            self._fail(lane, MisalignedAddressError, message, d.address)
        region = d.region(coordinates)
        if region.is_empty:
            return TensorBox(d, region, np.zeros(region.shape, d.dtype))
        address, nbytes = d.address + region.offset, region.nbytes + d.dtype.itemsize
        view = self._bytes(lane, "global", address, nbytes, None).view
        elements = np.ndarray(region.shape, d.dtype, view.data, 0, region.strides)
        return TensorBox(d, region, elements)

    def _fail(
        self, lane: Lane, error: type[EmulationError], message: str, address: int
    ) -> NoReturn:
        bad = np.zeros(self.threads.extent.shape, bool)
        bad[lane.block, lane.warp, lane.lane] = True
        addresses = np.full(bad.shape, address % (1 << 64), np.uint64)
        self.threads.fault(error, message, lane.instruction, bad, addresses)
