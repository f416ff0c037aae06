"""The heap of device code: malloc, free, and so new and delete.

It is cut from one part of global memory. Each block on it is an allocation of its own, so an access
past its end, or after it was freed, is out of bounds.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.memory.arena import Allocation, GlobalMemory
from gemmlab.errors import EmulationError

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine

HEAP_BYTES = 8 << 20  # cudaLimitMallocHeapSize unless a program sets another
BLOCK_ALIGNMENT = 16
BLOCK_GAP = 16  # between blocks, where the hardware's heap has its own records


class Heap:
    """Which bytes of the heap are in use."""

    def __init__(self, memory: GlobalMemory, part: range) -> None:
        """part: addresses in `memory` that nothing else uses."""
        self.memory, self.part = memory, part
        self.free = [part]  # in order, no two of them neighbours
        self.blocks: dict[int, range] = {}  # by the address that malloc gave
        self.freed = set[int]()

    def reset(self) -> None:
        """Make it empty, as it is when a launch begins."""
        for address in self.blocks:
            self.memory.remove(address)
        self.free, self.blocks, self.freed = [self.part], {}, set()

    def allocate(self, nbytes: int) -> int:
        """An address, or 0 where there is no room."""
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
        """Give a block back; says what is wrong with that, or nothing."""
        if address not in self.blocks:
            return "it is free already" if address in self.freed else "malloc gave no such address"
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


def allocate(m: Machine, sizes: Value, mask: Mask | None) -> np.ndarray:
    """malloc(size) of each active thread, in their order: addresses."""
    heap, on = m.launch.memory.heap, m.active(mask)
    assert heap is not None
    found = np.zeros(on.shape, np.uint64)
    wanted = m.chunk.spread(three_axes(sizes))
    for at in map(tuple, np.argwhere(on)):
        found[at] = heap.allocate(int(wanted[at]))
    return found


def release(m: Machine, index: int, addresses: Value, mask: Mask | None) -> None:
    """free(address) of each active thread; of a null pointer it does nothing. index: of the call.
    Raises EmulationError."""
    heap, on = m.launch.memory.heap, m.active(mask)
    assert heap is not None
    given = m.chunk.spread(three_axes(addresses))
    for at in map(tuple, np.argwhere(on & (given != 0))):
        address = int(given[at])
        problem = heap.release(address)
        if problem:
            bad = np.zeros(on.shape, bool)
            bad[at] = True
            m.fault(EmulationError, f"free of {address:#x}: {problem}", index, bad, given)
