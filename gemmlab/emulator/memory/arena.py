"""Global memory: one arena for all buffers and variables, with gaps that expose overruns."""

from __future__ import annotations

import mmap
import os
import tempfile
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

import numpy as np

from gemmlab.errors import IllegalAccess, LaunchError

GLOBAL_BASE = 0x7F00_0000_0000
ALLOCATION_ALIGNMENT = 256  # the alignment of cudaMalloc
ALLOCATION_GAP = 512  # unallocated bytes between allocations
NULL_BYTES = 1 << 16  # accesses below this address are reported as null pointer dereferences
_MOST_FREED = 1024


class Allocation(NamedTuple):
    """A named range of global memory."""

    name: str  # "argument 0", "variable table"
    address: int
    nbytes: int

    def distance(self, address: int) -> int:
        """Bytes from the allocation to an address outside it; 0 inside and at the end."""
        return max(self.address - address, address - self.address - self.nbytes, 0)

    def overlaps(self, other: Allocation) -> bool:
        end, end_of_other = self.address + self.nbytes, other.address + other.nbytes
        return self.address < end_of_other and other.address < end


def element(name: str, offset: int, nbytes: int, itemsize: int) -> str:
    """A location in a variable of `nbytes` bytes (0: unknown), for messages: "name[index]", "name"
    if it is the only element, or "name+offset" in bytes if it is no element or `itemsize` is 0."""
    if not itemsize and not offset:
        return name
    if not itemsize or offset % itemsize:
        return f"{name}+{offset}"
    return name if nbytes == itemsize else f"{name}[{offset // itemsize}]"


class GlobalMemory:
    """One flat byte arena that holds all buffers, .global and .const variables, and the heap."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []  # sorted by address
        self.starts: list[int] = []  # their offsets in the arena
        self.end = 0
        self.data = np.zeros(0, np.uint8)
        self._edges: tuple[np.ndarray, np.ndarray] | None = None
        # The last ones that were removed, for messages.
        self.freed = deque[Allocation](maxlen=_MOST_FREED)

    def allocate(self, name: str, nbytes: int) -> Allocation:
        """Reserve zeroed memory; `commit` makes it usable."""
        allocation = Allocation(name, GLOBAL_BASE + self.end, nbytes)
        self.insert(allocation)
        aligned = -(-nbytes // ALLOCATION_ALIGNMENT) * ALLOCATION_ALIGNMENT
        self.end += aligned + ALLOCATION_GAP
        return allocation

    def insert(self, allocation: Allocation) -> None:
        """Make the bytes of an allocation accessible."""
        place = bisect_right(self.starts, allocation.address - GLOBAL_BASE)
        self.allocations.insert(place, allocation)
        self.starts.insert(place, allocation.address - GLOBAL_BASE)
        self._edges = None

    def remove(self, address: int) -> None:
        """Make the allocation that starts at an address inaccessible."""
        place = bisect_right(self.starts, address - GLOBAL_BASE) - 1
        self.freed.append(self.allocations[place])
        del self.allocations[place], self.starts[place]
        self._edges = None

    def reserve(self, nbytes: int) -> range:
        """Reserve addresses after all allocations; `insert` makes parts of them accessible."""
        start = GLOBAL_BASE + self.end
        self.end += nbytes + ALLOCATION_GAP
        return range(start, start + nbytes)

    @property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of each allocation, as byte offsets in the arena."""
        if self._edges is None:
            starts = np.array(self.starts, np.int64)
            self._edges = starts, starts + [a.nbytes for a in self.allocations]
        return self._edges

    def commit(self) -> None:
        """Allocate the arena, zeroed. Raises LaunchError if the host lacks memory."""
        try:
            self.data = np.zeros(self.end, np.uint8)
        except (MemoryError, ValueError) as error:
            raise LaunchError(f"{self.end:,} bytes of global memory: {error}") from error
        self.views: dict[np.dtype, np.ndarray] = {}

    @contextmanager
    def kept(self) -> Iterator[Callable[[], None]]:
        """Save the contents and yield a function that restores them.

        Restoring takes no time if little was written since: the arena maps a file, whose pages are
        copied on write. Raises LaunchError if the host lacks memory.
        """
        with _file() as file:
            try:
                file.truncate(max(1, self.end))
                for allocation in self.allocations:
                    data = self.bytes_of(allocation)
                    if data.any():
                        file.seek(allocation.address - GLOBAL_BASE)
                        file.write(data.data)
                file.flush()
            except OSError as error:
                raise LaunchError(f"{self.end:,} bytes of global memory: {error}") from error

            def rewind() -> None:
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                self.data = np.frombuffer(pages, np.uint8)[: self.end]
                self.views = {}

            yield rewind

    def bytes_of(self, allocation: Allocation) -> np.ndarray:
        start = allocation.address - GLOBAL_BASE
        return self.data[start : start + allocation.nbytes]

    def view(self, dtype: np.dtype) -> np.ndarray:
        if dtype not in self.views:
            self.views[dtype] = self.data.view(dtype)
        return self.views[dtype]

    def span(self, address: int, nbytes: int) -> np.ndarray | None:
        """The bytes at an address, or None unless a single allocation contains them all."""
        start = address - GLOBAL_BASE
        owner = bisect_right(self.starts, start) - 1
        if owner < 0 or start + nbytes > self.starts[owner] + self.allocations[owner].nbytes:
            return None
        return self.data[start : start + nbytes]

    def name_of(self, address: int, itemsize: int = 0) -> str:
        """An address as an element of the nearest allocation."""
        nearest = min(self.allocations, key=lambda a: a.distance(address))
        return element(nearest.name, address - nearest.address, nearest.nbytes, itemsize)

    def miss(self, address: int, width: int, itemsize: int = 0) -> tuple[str, IllegalAccess]:
        """The error message for an out-of-bounds access, and its parts.

        itemsize: bytes of an element; 0 if unknown.
        """
        what = f"global access of {width} bytes at {address % (1 << 64):#x} is out of bounds"
        if 0 <= address < NULL_BYTES:
            return f"{what}: null pointer dereference", IllegalAccess("", "through a null pointer")
        for gone in reversed(self.freed):
            end = gone.address + gone.nbytes
            is_taken = any(gone.overlaps(other) for other in self.allocations)
            if gone.address <= address < end and not is_taken:
                at = address - gone.address
                why = f"{at} bytes into a freed block of {gone.nbytes} bytes ({gone.name})"
                return f"{what}: {why}", IllegalAccess("", why, was_freed=True)
        if not self.allocations:
            why = "there are no allocations"
            return f"{what}: {why}", IllegalAccess("", why)
        nearest = min(self.allocations, key=lambda a: a.distance(address))
        past = address + width - (nearest.address + nearest.nbytes)
        before = nearest.address - address
        gap = f"{past} bytes past the end" if past > 0 else f"{before} bytes before the start"
        place = self.name_of(address, itemsize)
        why = f"{gap} of {nearest.name} ({nearest.nbytes} bytes)"
        named = f"{place}, " if itemsize else ""
        return f"{what}: {named}{why}, the nearest allocation", IllegalAccess(place, why)


def _file() -> IO[bytes]:
    """An empty file, in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("arena"), "w+b")
    return tempfile.TemporaryFile()
