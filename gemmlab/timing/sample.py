"""What a few blocks of a launch execute: counts of each basic block, and addresses of loads.

Some blocks run to their end, for the counts. The blocks that share one multiprocessor, and those of
one wave, run until they have passed through their loops a few times, for the addresses.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from gemmlab.core import forks
from gemmlab.emulator import tiers
from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes
from gemmlab.emulator.copies.places import Bytes, TensorBox
from gemmlab.emulator.counters.rules import SECTOR_BYTES, SiteCounts, sector, wavefronts
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.execution.schedule import Order
from gemmlab.emulator.launch.coordinates import blocks_of_clusters
from gemmlab.emulator.launch.launch import Dim3, Launch
from gemmlab.emulator.memory.arena import GLOBAL_BASE, GlobalMemory
from gemmlab.emulator.native.compiler import missing
from gemmlab.emulator.native.values import NotCovered
from gemmlab.emulator.observer import Observer, Origin, Pending, Request, Transfer
from gemmlab.emulator.program import Block
from gemmlab.timing import flow
from gemmlab.timing.flow import FlowMachine
from gemmlab.timing.signals import MOST_STEPS, Enough, Recorder

COUNTED_BLOCKS, COUNTED_CLUSTERS = 6, 2  # whose executions are counted
WAVEFRONT_BLOCKS = 8  # of those traced, whose bank conflicts in L1 are counted
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples, less their whole part, are spread evenly
TRACED = 4  # executions of a load whose addresses are recorded


@dataclass(frozen=True)
class Load:
    """One execution of a load from global memory, or of a store or an atomic operation.

    sectors: (blocks, warps, 32), -1 is none. wavefronts: of L1's banks, the mean of the warps; of
    bulk copies, whose sectors are more than 32, the number of lanes that copy.
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
    """Records the addresses of accesses to global memory."""

    machine: Machine
    most: int
    loads: list[Load] = field(default_factory=list)
    turns: dict[int, int] = field(default_factory=dict)
    steps: int = 0  # basic blocks executed
    # bulk copies: (instruction, turn, kind) -> (block, warp) -> sectors; and turns of each thread
    copies: dict[tuple[int, int, str], dict[tuple[int, int], list[np.ndarray]]] = field(
        default_factory=dict
    )
    copying: dict[tuple[int, int], int] = field(default_factory=dict)

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise _Enough

    def accessing(self, request: Request) -> None:
        self._record(request)

    def copy_issued(self, source: Request, nbytes: Value, copy: Pending) -> None:
        self._record(source)

    def transfer_started(self, transfer: Transfer) -> None:
        """Bulk copies complete in any order, so each thread's copies are numbered."""
        index, memory = transfer.instruction, self.machine.launch.memory
        key = index, transfer.thread
        turn = self.copying[key] = self.copying.get(key, -1) + 1
        if turn == self.most:
            raise _Enough
        place = divmod(transfer.thread // WARP, self.machine.extent.warps)
        for kind, end in (("load", transfer.source), ("store", transfer.targets[0])):
            found = touched(end, memory)
            if found is not None:
                of_turn = self.copies.setdefault((index, turn, kind), {})
                of_turn.setdefault(place, []).append(found)

    def copied(self) -> list[Load]:
        """The bulk copies from and to global memory, as accesses to all their sectors at once."""
        found, shape = [], self.machine.extent.shape
        for (index, turn, kind), places in sorted(self.copies.items()):
            rows = {place: np.concatenate(some) for place, some in places.items()}
            sectors = np.full((*shape[:2], max(map(len, rows.values()))), -1, np.int64)
            for place, row in rows.items():
                sectors[place][: len(row)] = row
            each = sum(map(len, places.values())) / len(places)
            found.append(Load(index, turn, sectors, each, kind))
        return found

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
        some = np.flatnonzero(active.any(axis=(1, 2)))
        some = some[spread(len(some), WAVEFRONT_BLOCKS)]
        rows, on = addresses[some].reshape(-1, WARP), active[some].reshape(-1, WARP)
        waves, _ = wavefronts(rows, on, width, kind == "load")
        found = np.where(active, sector(addresses), -1)
        mean = float(waves[waves > 0].mean())
        hottest = 0.0
        if kind == "update":
            _, times = np.unique(addresses[active], return_counts=True)
            hottest = float(times.max() / times.sum())
        self.loads.append(Load(index, turn, found, mean, kind, hottest))


def touched(source: Origin, memory: GlobalMemory) -> np.ndarray | None:
    """Return the sectors of global memory at one end of a bulk copy; None if it is other memory."""
    if isinstance(source, Bytes):
        if not np.shares_memory(source.view, memory.data):
            return None
        start = GLOBAL_BASE + source.view.ctypes.data - memory.data.ctypes.data
        return np.arange(start // SECTOR_BYTES, -(-(start + len(source.view)) // SECTOR_BYTES))
    if not isinstance(source, TensorBox):
        return None
    view, place = source.view, source.descriptor.address + source.region.offset
    rows = np.zeros(1, np.int64)
    for size, step in zip(view.shape[:-1], view.strides[:-1], strict=True):
        rows = (rows[:, None] + np.arange(size) * step).reshape(-1)
    inner = (view.shape[-1] - 1) * view.strides[-1] + view.itemsize
    starts, ends = (place + rows) // SECTOR_BYTES, -(-(place + rows + inner) // SECTOR_BYTES)
    most = int((ends - starts).max(initial=0))
    all_ = starts[:, None] + np.arange(most)
    return np.unique(all_[all_ < ends[:, None]])


def chunks(launch: Launch) -> list[np.ndarray]:
    """Return blocks whose executions are counted, each cluster of them in a row."""
    size = math.prod(launch.cluster)
    if size == 1:
        return [np.array([block]) for block in groups(launch.grid)]
    numbers = spread(math.prod(launch.grid) // size, COUNTED_CLUSTERS)
    return [blocks_of_clusters(launch.grid, launch.cluster, [number]) for number in numbers]


def together(launch: Launch, resident: int, sms: int) -> np.ndarray:
    """Return blocks that share one multiprocessor; of a launch with clusters, one cluster."""
    size, blocks = math.prod(launch.cluster), math.prod(launch.grid)
    if size == 1:
        return np.arange(0, blocks, sms)[:resident]
    return blocks_of_clusters(launch.grid, launch.cluster, [0])


def first(launch: Launch, most: int) -> np.ndarray:
    """Return the first `most` blocks of a launch, in whole clusters."""
    size, blocks = math.prod(launch.cluster), math.prod(launch.grid)
    if size == 1:
        return np.arange(min(blocks, most))
    number = max(1, min(blocks, most) // size)
    return blocks_of_clusters(launch.grid, launch.cluster, range(number))


def _machine(
    launch: Launch, blocks: np.ndarray, tally: Tally, kind: type[Machine] = Machine
) -> Machine:
    """Products are not computed: they take long, and no branch depends on their results."""
    return kind(launch, blocks, tally, order=Order("in-order"), multiplies=False)


def signals(launch: Launch) -> Recorder:
    """Trace the uses of mbarriers by the first block or cluster."""
    machine = _machine(launch, first(launch, 1), Tally.of(launch.program))
    recorder = Recorder(machine, launch)
    machine.observers.append(recorder)
    try:
        with np.errstate(all="ignore"):
            for _ in machine.run():
                break
    except Enough:
        pass
    return recorder


def counts(launch: Launch, blocks: Sequence[np.ndarray]) -> list[Tally]:
    """Execute some blocks to their end, each chunk apart. Raises EmulationError."""
    kind = FlowMachine if flow.follows(launch.program) else Machine

    def counted(chunk: np.ndarray, limit: float = math.inf) -> Tally:
        tally = Tally.of(launch.program)
        tally.limit, tally.at_limit = limit, _stop
        machine = _machine(launch, chunk, tally, kind)
        with np.errstate(all="ignore"):
            for _ in machine.run():
                pass
        return tally

    if kind is FlowMachine or missing() is not None or math.prod(launch.cluster) > 1:
        return forks.share(counted, blocks)
    if _is_tried(launch):
        first, *rest = blocks
        with suppress(_Long):
            tally = counted(first, tiers.WORTH_COMPILING / len(blocks))
            return [tally, *forks.share(counted, rest)]
    try:
        return _natively(launch, blocks)
    except NotCovered:
        return forks.share(counted, blocks)


class _Long(Exception):
    """The blocks execute so much that compiling native code pays off."""


def _stop() -> None:
    raise _Long


def _is_tried(launch: Launch) -> bool:
    """Whether to run one block on the NumPy tier first, to find out if compiling pays off.

    This is unnecessary if native code exists, and wrong if blocks wait for others, because later
    runs could see what an aborted block has written.
    """
    from gemmlab.emulator.native import code

    return not (tiers.is_compiled(launch) or code.blocks_wait(launch.program))


def _natively(launch: Launch, blocks: Sequence[np.ndarray]) -> list[Tally]:
    """Count natively. Raises NotCovered and EmulationError."""
    from gemmlab.emulator.native import code
    from gemmlab.emulator.native.launch import execute

    native = code.code_of(launch.program, launch.block[0] % WARP == 0)
    return [execute(launch, native, 1, range(int(x[0]), int(x[0]) + 1)) for x in blocks]


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


def loads(launch: Launch, blocks: np.ndarray, most: int = TRACED) -> list[Load]:
    """Trace the loads of some blocks, until one of them was executed `most` times."""
    machine = _machine(launch, blocks, Tally.of(launch.program))
    machine.space_global.counted = machine.copies.counted = False  # the recorder has its own counts
    machine.space_shared.counted = machine.space_matrices.counted = False
    recorder = _Recorder(machine, most)
    machine.space_global.observers.append(recorder)
    machine.observers.append(recorder)
    try:
        with np.errstate(all="ignore"):
            for _ in machine.run():
                break  # waits for blocks that are not traced
    except _Enough:
        pass
    return recorder.loads + recorder.copied()


def spread(count: int, most: int = COUNTED_BLOCKS) -> list[int]:
    """Return up to `most` numbers below `count`: one of each of as many equal parts.

    Their places in the parts differ, because blocks at equal distances can have the same task.
    """
    if count <= most:
        return list(range(count))
    return [int((i + (i + 1) * _GOLDEN % 1) * count / most) for i in range(most)]


def groups(grid: Dim3) -> list[int]:
    """Return blocks spread over x and y, each with all blocks along z, which often share a task;
    if there are very many along z, spread over all axes."""
    plane, deep = grid[0] * grid[1], grid[2]
    most = max(1, COUNTED_BLOCKS // deep)
    if deep > 4 * COUNTED_BLOCKS:
        return spread(plane * deep)
    return [i + z * plane for i in spread(plane, most) for z in range(deep)]
