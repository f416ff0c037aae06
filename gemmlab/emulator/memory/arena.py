"""Global memory: one arena for all buffers and variables, with gaps that catch overruns."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gemmlab.errors import LaunchError

if TYPE_CHECKING:
    from gemmlab.emulator.memory.heap import Heap

GLOBAL_BASE = 0x7F00_0000_0000
ALLOCATION_ALIGNMENT = 256  # cudaMalloc's
ALLOCATION_GAP = 512  # bytes between allocations that belong to nobody
NULL_BYTES = 1 << 16  # lower addresses are those of a null pointer and its elements


class Allocation(NamedTuple):
    """A piece of global memory."""

    name: str  # "argument 0", "variable table"
    address: int
    nbytes: int

    def distance(self, address: int) -> int:
        return max(self.address - address, address - self.address - self.nbytes, 0)


class GlobalMemory:
    """One flat arena of bytes that holds every buffer, every .global and .const variable, and the
    heap of kernels that have one."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []  # in the order of their addresses
        self.starts: list[int] = []
        self.end = 0
        self.data = np.zeros(0, np.uint8)
        self.heap: Heap | None = None  # of kernels that call malloc
        self._edges: tuple[np.ndarray, np.ndarray] | None = None

    def allocate(self, name: str, nbytes: int) -> Allocation:
        """Reserve zeroed memory; `commit` makes it usable."""
        allocation = Allocation(name, GLOBAL_BASE + self.end, nbytes)
        self.insert(allocation)
        aligned = -(-nbytes // ALLOCATION_ALIGNMENT) * ALLOCATION_ALIGNMENT
        self.end += aligned + ALLOCATION_GAP
        return allocation

    def insert(self, allocation: Allocation) -> None:
        """From now on these bytes may be used."""
        place = bisect_right(self.starts, allocation.address - GLOBAL_BASE)
        self.allocations.insert(place, allocation)
        self.starts.insert(place, allocation.address - GLOBAL_BASE)
        self._edges = None

    def remove(self, address: int) -> None:
        """From now on the allocation that begins at an address may not be used."""
        place = bisect_right(self.starts, address - GLOBAL_BASE) - 1
        del self.allocations[place], self.starts[place]
        self._edges = None

    def reserve(self, nbytes: int) -> range:
        """Addresses behind all that is allocated; `insert` makes parts of them usable."""
        start = GLOBAL_BASE + self.end
        self.end += nbytes + ALLOCATION_GAP
        return range(start, start + nbytes)

    @property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each allocation starts and ends, in bytes from the arena's start."""
        if self._edges is None:
            starts = np.array(self.starts, np.int64)
            self._edges = starts, starts + [a.nbytes for a in self.allocations]
        return self._edges

    def commit(self) -> None:
        """Raises LaunchError where there is not so much memory."""
        try:
            self.data = np.zeros(self.end, np.uint8)
        except (MemoryError, ValueError) as error:
            raise LaunchError(f"{self.end:,} bytes of global memory: {error}") from error
        self.views: dict[np.dtype, np.ndarray] = {}

    def bytes_of(self, allocation: Allocation) -> np.ndarray:
        start = allocation.address - GLOBAL_BASE
        return self.data[start : start + allocation.nbytes]

    def view(self, dtype: np.dtype) -> np.ndarray:
        if dtype not in self.views:
            self.views[dtype] = self.data.view(dtype)
        return self.views[dtype]

    def span(self, address: int, nbytes: int) -> np.ndarray | None:
        """The bytes at an address, where one allocation has all of them."""
        start = address - GLOBAL_BASE
        owner = bisect_right(self.starts, start) - 1
        if owner < 0 or start + nbytes > self.starts[owner] + self.allocations[owner].nbytes:
            return None
        return self.data[start : start + nbytes]

    def name_of(self, address: int) -> str:
        """An address as a distance from the nearest allocation's start."""
        nearest = min(self.allocations, key=lambda a: a.distance(address))
        return f"{nearest.name}+{address - nearest.address}"

    def describe_miss(self, offset: int, width: int) -> str:
        """Where an access at `offset` of the arena lies next to."""
        address = offset + GLOBAL_BASE
        what = f"global access of {width} bytes at {address % (1 << 64):#x} is out of bounds"
        if 0 <= address < NULL_BYTES:
            return f"{what}: that is where a null pointer points to"
        if not self.allocations:
            return f"{what}: nothing is allocated"
        nearest = min(self.allocations, key=lambda a: a.distance(address))
        past = address + width - (nearest.address + nearest.nbytes)
        before = nearest.address - address
        gap = f"{past} bytes past the end" if past > 0 else f"{before} bytes before the start"
        return f"{what}: {gap} of {nearest.name} ({nearest.nbytes} bytes), the nearest allocation"
