"""What a few blocks of a launch execute: counts of each basic block, and addresses of loads.

Some blocks run to their end, for the counts. The blocks that share one multiprocessor, and those of
one wave, run until they have passed through their loops a few times, for the addresses.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes
from gemmlab.emulator.counters.rules import SiteCounts, sector, wavefronts
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.execution.schedule import Order
from gemmlab.emulator.launch.launch import Dim3, Launch
from gemmlab.emulator.native.compiler import missing
from gemmlab.emulator.native.values import NotCovered
from gemmlab.emulator.observer import Observer, Pending, Request
from gemmlab.emulator.program import Block

if TYPE_CHECKING:
    from gemmlab.emulator.native.code import Code

COUNTED_BLOCKS = 6  # whose executions are counted
TRACED = 4  # executions of a load whose addresses are recorded
MOST_STEPS = 3000  # basic blocks of a traced launch


@dataclass(frozen=True)
class Load:
    """One execution of a load from global memory, or of a store or an atomic operation.

    sectors: (blocks, warps, 32), -1 is none. wavefronts: of L1's banks, the mean of the warps.
    hottest: the share of the lanes that access the address that most of them access.
    """

    instruction: int
    turn: int  # counts the executions of the instruction
    sectors: np.ndarray
    wavefronts: float
    kind: str  # "load", "store" or "update"
    hottest: float = 0.0

    @property
    def is_store(self) -> bool:
        return self.kind != "load"


class _Enough(Exception):
    """Ends a traced launch."""


@dataclass
class _Recorder(Observer):
    """Records the addresses of loads from global memory."""

    machine: Machine
    most: int
    loads: list[Load] = field(default_factory=list)
    turns: dict[int, int] = field(default_factory=dict)
    steps: int = 0  # basic blocks executed

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise _Enough

    def accessing(self, request: Request) -> None:
        self._record(request)

    def copy_issued(self, source: Request, nbytes: Value, copy: Pending) -> None:
        self._record(source)

    def _record(self, request: Request) -> None:
        index = request.access.instruction
        turn = self.turns[index] = self.turns.get(index, -1) + 1
        if turn == self.most:
            raise _Enough
        active = self.machine.active(request.mask)
        if request.access.width < 1 or not active.any():
            return
        addresses = three_axes(request.address).astype(np.int64) + request.access.offset
        addresses = np.broadcast_to(addresses, active.shape)
        kind, width = request.kind, request.access.width
        block = next(i for i, on in enumerate(active) if on.any())
        waves, _ = wavefronts(addresses[block], active[block], width, kind == "load")
        found = np.where(active, sector(addresses), -1)
        mean = float(waves[waves > 0].mean())
        hottest = 0.0
        if kind == "update":
            _, times = np.unique(addresses[active], return_counts=True)
            hottest = float(times.max() / times.sum())
        self.loads.append(Load(index, turn, found, mean, kind, hottest))


def counts(launch: Launch, blocks: Sequence[int]) -> list[Tally]:
    """Execute some blocks to their end, one after another. Raises EmulationError."""
    native, found = _native(launch), list[Tally]()
    if native is not None:
        from gemmlab.emulator.native.launch import execute

        return [execute(launch, native, 1, range(block, block + 1)) for block in blocks]
    for block in blocks:
        found.append(Tally.of(launch.program))
        machine = Machine(launch, np.array([block]), found[-1], order=Order("in-order"))
        with np.errstate(all="ignore"):
            for _ in machine.run():
                pass
    return found


def added(tallies: Sequence[Tally]) -> Tally:
    """Return the sum of counts of one program."""
    first, *others = tallies
    total = Tally(
        first.warps.copy(),
        first.lanes.copy(),
        defaultdict(SiteCounts),
        first.guarded_off.copy(),
        first.divergent.copy(),
    )
    for one in others:
        total.warps += one.warps
        total.lanes += one.lanes
        total.guarded_off += one.guarded_off
        total.divergent += one.divergent
    for one in tallies:
        for place, site in one.sites.items():
            total.sites[place].add(site)
    return total


def classes(tallies: Sequence[Tally]) -> list[list[Tally]]:
    """Return the tallies in groups that executed each basic block equally often, the largest
    group first; those beyond the third are in the third."""
    found: dict[bytes, list[Tally]] = {}
    for one in tallies:
        found.setdefault(one.warps.tobytes(), []).append(one)
    ordered = sorted(found.values(), key=len, reverse=True)
    rest = [one for group in ordered[2:] for one in group]
    return [*ordered[:2], rest] if len(ordered) > 3 else ordered


def _native(launch: Launch) -> Code | None:
    """Return the launch's native code, or None if the NumPy tier has to run it."""
    if missing() is not None or math.prod(launch.cluster) > 1:
        return None
    from gemmlab.emulator.native import code

    try:
        return code.code_of(launch.program, launch.block[0] % WARP == 0)
    except NotCovered:
        return None


def loads(launch: Launch, blocks: Sequence[int], most: int = TRACED) -> list[Load]:
    """Trace the loads of some blocks, until one of them was executed `most` times."""
    machine = Machine(launch, np.array(blocks), Tally.of(launch.program), order=Order("in-order"))
    recorder = _Recorder(machine, most)
    machine.space_global.observers.append(recorder)
    machine.observers.append(recorder)
    try:
        with np.errstate(all="ignore"):
            for _ in machine.run():
                break  # waits for blocks that are not traced
    except _Enough:
        pass
    return recorder.loads


def spread(count: int, most: int = COUNTED_BLOCKS) -> list[int]:
    """Return up to `most` numbers below `count`, evenly spread."""
    if count <= most:
        return list(range(count))
    return [int((i + 0.5) * count / most) for i in range(most)]


def groups(grid: Dim3) -> list[int]:
    """Return blocks spread over x and y, each with all blocks along z: those often share a task."""
    plane, deep = grid[0] * grid[1], grid[2]
    most = max(1, COUNTED_BLOCKS // deep)
    if deep > 4 * COUNTED_BLOCKS:
        return spread(plane * deep)
    return [i + z * plane for i in spread(plane, most) for z in range(deep)]
