"""The device heap: malloc and free, and therefore new and delete.

The heap is a reserved part of global memory. Each block is a separate allocation, so an access past
its end or after free is out of bounds.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Value, three_axes
from gemmlab.emulator.memory.arena import Allocation, GlobalMemory
from gemmlab.emulator.memory.chunk import Chunk
from gemmlab.errors import EmulationError

HEAP_BYTES = 8 << 20  # the default of cudaLimitMallocHeapSize
BLOCK_ALIGNMENT = 16
BLOCK_GAP = 16  # bytes between blocks, where CUDA's heap keeps its metadata


class Heap:
    """A first-fit allocator."""

    def __init__(self, memory: GlobalMemory, part: range) -> None:
        """part: the reserved addresses in `memory`."""
        self.memory, self.part = memory, part
        self.free = [part]  # sorted; adjacent ranges are merged
        self.blocks: dict[int, range] = {}  # address that malloc returned -> occupied range
        self.freed = set[int]()  # addresses that were freed and not reused

    def reset(self) -> None:
        """Free all blocks, as at the start of a launch."""
        for address in self.blocks:
            self.memory.remove(address)
        self.memory.freed.clear()
        self.free, self.blocks, self.freed = [self.part], {}, set()

    def allocate(self, nbytes: int) -> int:
        """Allocate a block. Returns its address, or 0 if no free range is large enough."""
        wanted = -(-nbytes // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT + BLOCK_GAP
        place = next((k for k, part in enumerate(self.free) if len(part) >= wanted), None)
        if place is None:
            return 0
        address, stop = self.free[place].start, self.free[place].stop
        rest = range(address + wanted, stop)
        self.free[place : place + 1] = [rest] if rest else []
        self.blocks[address] = range(address, address + wanted)
        self.freed.discard(address)
        self.memory.insert(Allocation("device malloc", address, nbytes))
        return address

    def release(self, address: int) -> str:
        """Free a block. Returns an error message, or "" on success."""
        if address not in self.blocks:
            return "double free" if address in self.freed else "malloc did not return this address"
        part = self.blocks.pop(address)
        self.freed.add(address)
        self.memory.remove(address)
        place = bisect_left(self.free, part.start, key=lambda p: p.start)
        first = last = place
        if place and self.free[place - 1].stop == part.start:
            first, part = place - 1, range(self.free[place - 1].start, part.stop)
        if place < len(self.free) and self.free[place].start == part.stop:
            last, part = place + 1, range(part.start, self.free[place].stop)
        self.free[first:last] = [part]
        return ""


def allocate(heap: Heap, chunk: Chunk, sizes: Value, on: np.ndarray) -> np.ndarray:
    """malloc(size) for each active thread, in thread order. Returns addresses.

    on: the active threads, (blocks, warps, 32).
    """
    found = np.zeros(on.shape, np.uint64)
    wanted = chunk.spread(three_axes(sizes))
    for at in map(tuple, np.argwhere(on)):
        found[at] = heap.allocate(int(wanted[at]))
    return found


def release(heap: Heap, chunk: Chunk, index: int, addresses: Value, on: np.ndarray) -> None:
    """free(address) for each active thread; freeing a null pointer does nothing.

    index: of the call instruction. Raises EmulationError for an address that cannot be freed.
    """
    given = chunk.spread(three_axes(addresses))
    for at in map(tuple, np.argwhere(on & (given != 0))):
        address = int(given[at])
        problem = heap.release(address)
        if problem:
            bad = np.zeros(on.shape, bool)
            bad[at] = True
            chunk.fault(EmulationError, f"free of {address:#x}: {problem}", index, bad, given)
