"""What the state spaces of a chunk of blocks share: addresses, alignment, error reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Extent, Mask, Value, spread, three_axes
from gemmlab.emulator.counters.rules import SiteCounts
from gemmlab.emulator.memory.addresses import excess_bits
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.names import shared_place
from gemmlab.emulator.program import Access, Program
from gemmlab.errors import EmulationError, IllegalAccess, MisalignedAddressError


class Fault(Protocol):
    """Raises an error for the first faulting lane; see `Threads.fault`."""

    def __call__(
        self,
        error: type[EmulationError],
        message: str,
        index: int,
        bad: np.ndarray,
        addresses: np.ndarray,
        access: IllegalAccess | None = None,
    ) -> NoReturn: ...


def offsets_of(access: Access, address: Value) -> np.ndarray:
    """The effective addresses, wrapped to the width of the base register; int64."""
    offsets: np.ndarray = access.at(three_axes(address))
    return offsets


def arena_offsets(access: Access, address: Value) -> np.ndarray:
    """The effective addresses in global memory, as offsets in the arena."""
    base = np.uint64((access.offset - GLOBAL_BASE) % (1 << 64))
    return three_axes((address + base).view(np.int64))


class Space(Protocol):
    """A state space of one chunk of blocks."""

    def load(self, access: Access, address: Value, mask: Mask | None) -> tuple[Value, ...]: ...

    def store(
        self, access: Access, address: Value, values: Sequence[Value], mask: Mask | None
    ) -> None: ...


@dataclass
class Chunk:
    """What the spaces need to know about the chunk of blocks."""

    extent: Extent
    counts: defaultdict[tuple[int, str], SiteCounts]  # (instruction, space) -> counts
    fault: Fault
    program: Program

    def spread(self, array: np.ndarray) -> np.ndarray:
        """Broadcast to (blocks, warps, 32)."""
        return spread(array, self.extent.shape)

    def check_alignment(
        self,
        access: Access,
        offsets: np.ndarray,
        mask: Mask | None,
        name_of: Callable[[int, int], str] = lambda _, __: "",
        base: int = 0,
    ) -> None:
        """Raise MisalignedAddressError unless the active offsets are multiples of the access width.

        name_of: names the element at an address, given its bytes. base: address of offset 0, a
        multiple of every width.
        """
        active = offsets if mask is None else self.spread(offsets)[mask.array]
        if excess_bits(np.bitwise_or.reduce(active, axis=None), access.width):
            bad = self.spread(excess_bits(offsets, access.width)) != 0
            first = self.first(bad, offsets, mask) + base
            place = name_of(first, access.dtype.itemsize)
            why = f"not a multiple of the access width, {access.width} bytes"
            message = f"address {first:#x}{f' of {place}' if place else ''} is {why}"
            illegal = IllegalAccess(place, f"address {first:#x} is {why}")
            self.report(MisalignedAddressError, message, access, bad, offsets + base, mask, illegal)

    def first(self, bad: np.ndarray, offsets: np.ndarray, mask: Mask | None) -> int:
        """The offset of the first active lane in `bad`."""
        among = self.spread(bad if mask is None else bad & mask.array)
        return int(self.spread(offsets)[among][0])

    def name_of_shared(self, address: int, itemsize: int) -> str:
        return shared_place(self.program, address, itemsize)

    def report(
        self,
        error: type[EmulationError],
        message: str,
        access: Access,
        bad: np.ndarray,
        address: np.ndarray,
        mask: Mask | None,
        illegal: IllegalAccess | None = None,
    ) -> NoReturn:
        bad = self.spread(bad) if mask is None else self.spread(bad) & mask.array
        self.fault(error, message, access.instruction, bad, self.spread(address), illegal)
