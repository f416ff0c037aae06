"""The scheduling order of warps, thread blocks and asynchronous copies."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

from gemmlab.emulator.launch.threads import Ready, Threads
from gemmlab.emulator.observer import Transfer
from gemmlab.errors import InputError

WarpOrder = str | int


class Order:
    """An execution order of warps and blocks. A correct kernel gives the same results in all.

    "in-order": all warps of a chunk advance together, one basic block at a time. "reversed": the
    last warp runs until it has to wait, then the one before it; the last blocks of the grid run
    first. An integer seeds a generator that draws the next warp after each basic block and the
    order of blocks. See copies/bulk_copies.py for the order of asynchronous copies.

    Raises InputError for any other name.
    """

    def __init__(self, name: WarpOrder = "in-order") -> None:
        seeded = isinstance(name, (int, np.integer)) and not isinstance(name, bool)
        if not seeded and name not in ("in-order", "reversed"):
            raise InputError(f"order {name!r} is not 'in-order', 'reversed' or a whole number")
        self.name = name
        self.is_lockstep, self.is_reversed = name == "in-order", name == "reversed"
        self.random = random.Random(int(name)) if seeded else None

    def of_blocks(self, firsts: range) -> Sequence[int]:
        """The order in which to run chunks of the grid, or clusters of a chunk. firsts: their
        numbers."""
        if self.random is not None:
            return self.random.sample(firsts, len(firsts))
        return firsts[::-1] if self.is_reversed else firsts

    def to_complete(self, transfers: list[Transfer]) -> list[Transfer]:
        """The in-flight copies that complete now, although no thread waits for them yet."""
        if self.random is not None:
            return [t for t in transfers if self.random.random() < 0.1]
        return transfers if self.is_reversed else []

    def pick(self, warps: Sequence[int]) -> int:
        """The warp to run next, out of those that can run."""
        return warps[-1] if self.random is None else self.random.choice(warps)


def candidates(threads: Threads, order: Order) -> Iterator[Ready]:
    """Sets of ready lanes to try in turn: all of them if the order is lockstep, else one warp of
    every thread block at a time."""
    if order.is_lockstep:
        yield threads.ready
        return
    lanes = {pc: threads.active(mask) for pc, mask in threads.ready.items()}
    warps = np.flatnonzero(np.logical_or.reduce(list(lanes.values())).any(axis=(0, 2))).tolist()
    while warps:
        warps.remove(warp := order.pick(warps))
        here = np.arange(threads.extent.warps).reshape(1, -1, 1) == warp
        parts = {pc: threads.make_mask(array & here) for pc, array in lanes.items()}
        yield {pc: part for pc, part in parts.items() if part is None or part.lanes}
