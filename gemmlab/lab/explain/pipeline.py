"""The pipeline of a block: when warps fill tiles in shared memory, wait, and read them.

Time is counted in instructions. A warp's clock advances by one per instruction; at a barrier or an
mbarrier it moves on to the clock of the last warp that arrived. So it shows who must wait for whom
if instructions took one cycle each and warps never competed. It is not GPU time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import Mask, Value
from gemmlab.emulator.copies.places import SharedBox
from gemmlab.emulator.counters.rules import BANK_BYTES, LANES
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.memory.chunk import offsets_of
from gemmlab.emulator.observer import Observer, Pending, Request, Transfer
from gemmlab.emulator.program import Block
from gemmlab.emulator.trace import Trace

TILES = 8  # shown
_MOST_EVENTS = 20_000  # recorded per warp
_ENDS = ("wait", "arrive", "landed")  # events that end a run of others
_WAITS = ("wait_group", "wait_all")  # of cp.async


@dataclass
class Event:
    """What a warp does from `start` to `end`: "store", "copy", "landed", "read", "wait", "arrive".

    words: of shared memory, by index. groups: of cp.async.
    """

    what: str
    start: int
    end: int
    words: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Span:
    """What happens to a tile in a row from `start` to `end`. `tile` is None for a wait."""

    row: str  # "warps 0–7" or "stage 0"
    what: str  # rows of warps: "fill", "multiply", "wait"; of stages: "in flight", "ready", "read"
    tile: int | None
    start: int
    end: int


@dataclass(frozen=True)
class Pipeline:
    """The first tiles of the k loop. `stages`: places in shared memory that tiles take in turn."""

    stages: int
    spans: tuple[Span, ...]


@dataclass
class PipelineTrace(Trace):
    """A trace that also records the events of a pipeline: `events`, by warp of the first block."""

    events: list[list[Event]] = field(default_factory=list)

    def watch(self, machine: Machine) -> None:
        super().watch(machine)
        here = np.flatnonzero(machine.blocks == 0)
        if here.size:
            self.events = [[] for _ in range(machine.extent.warps)]
            recorder = _Recorder(machine, int(here[0]), self.events)
            machine.observers.append(recorder)
            machine.space_shared.observers.append(_Accesses(recorder))
            machine.space_matrices.observers.append(_Accesses(recorder))


class _Recorder(Observer):
    """Records the events of one block and keeps the clocks of its warps."""

    def __init__(self, machine: Machine, block: int, events: list[list[Event]]) -> None:
        self.machine, self.block, self.events = machine, block, events
        self.clock = np.zeros(machine.extent.warps, np.int64)
        self.running: np.ndarray = np.zeros(machine.extent.warps, bool)
        self.body: Block | None = None
        self.last = 0  # instruction of the last event
        self.arrivals: dict[int, int] = {}  # mbarrier -> clock of the last arrival
        self.done: dict[int, int] = {}  # mbarrier -> clock at which its last phase was complete

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        self.running = np.asarray(self._lanes(mask).any(axis=1))
        self.body, self.last = block, block.first

    def after(self, number: int, block: Block, mask: Mask | None) -> None:
        self.clock[self.running] += block.last - block.first
        self.body = None

    def _lanes(self, mask: Mask | None) -> np.ndarray:
        found: np.ndarray = self.machine.active(mask)[self.block]
        return found

    def _now(self, warp: int, index: int) -> int:
        self.last = index
        inside = index - self.body.first if self.body else 0
        return int(self.clock[warp]) + inside

    def _add(self, warp: int, event: Event) -> None:
        if len(self.events[warp]) < _MOST_EVENTS:
            self.events[warp].append(event)

    def touched(self, request: Request) -> None:
        """A load or store of shared memory is about to execute."""
        access, active = request.access, self._lanes(request.mask)
        offsets = offsets_of(access, request.address)
        own = np.broadcast_to(offsets[self.block if len(offsets) > 1 else 0], active.shape)
        wide = np.arange(max(access.width // BANK_BYTES, 1))
        what = "store" if request.kind == "store" else "read"
        for warp in np.flatnonzero(active.any(axis=1)).tolist():
            words = own[warp][active[warp]][:, None] // BANK_BYTES + wide
            now = self._now(warp, access.instruction)
            self._add(warp, Event(what, now, now + 1, frozenset(words.ravel().tolist())))

    def copy_issued(self, source: Request, _: Value, copy: Pending) -> None:
        itemsize = copy.values[0].dtype.itemsize
        first = copy.cells * itemsize - self.block * self.machine.space_shared.data.shape[1]
        wide = np.arange(max(len(copy.values) * itemsize // BANK_BYTES, 1))
        for warp, own in self._warps(copy):
            words = first[own][:, None] // BANK_BYTES + wide
            now = self._now(warp, source.access.instruction)
            groups = frozenset(copy.group[own].tolist())
            self._add(warp, Event("copy", now, now + 1, frozenset(words.ravel().tolist()), groups))

    def copy_completed(self, copy: Pending) -> None:
        index = self._wait()
        for warp, own in self._warps(copy):
            now = self._now(warp, index)
            self._add(warp, Event("landed", now, now, groups=frozenset(copy.group[own].tolist())))

    def transfer_started(self, transfer: Transfer) -> None:
        lanes = len(self.clock) * LANES
        chunks = [box.chunks.ravel() for box in transfer.targets if isinstance(box, SharedBox)]
        if transfer.thread // lanes == self.block and chunks:
            self._chunks(transfer.thread % lanes // LANES, transfer.instruction, "copy", *chunks)

    def wgmma_read(self, index: int, at: tuple[np.ndarray, ...], chunks: np.ndarray) -> None:
        for block, warp, own in zip(at[0].tolist(), at[1].tolist(), chunks, strict=True):
            if block == self.block:
                self._chunks(warp, index, "read", own.ravel())

    def _chunks(self, warp: int, index: int, what: str, *chunks: np.ndarray) -> None:
        """Add an event for chunks of 16 bytes of shared memory."""
        per_chunk = CHUNK // BANK_BYTES
        words = np.concatenate(chunks)[:, None] * per_chunk + np.arange(per_chunk)
        now = self._now(warp, index)
        self._add(warp, Event(what, now, now + 1, frozenset(words.ravel().tolist())))

    def _warps(self, copy: Pending) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the warps of the block that have lanes in a copy, and which."""
        lanes = len(self.clock) * LANES
        warps = np.where(copy.lanes // lanes == self.block, copy.lanes % lanes // LANES, -1)
        for warp in np.unique(warps[warps >= 0]).tolist():
            yield warp, warps == warp

    def _wait(self) -> int:
        """Return the instruction that waits for copies: the next one in the basic block."""
        code = self.machine.launch.program.function.instructions
        inside = range(self.last, self.body.last) if self.body else range(0)
        return next((i for i in inside if any(x in _WAITS for x in code[i].opcode)), self.last)

    def _meet(self, warps: np.ndarray) -> None:
        latest = int(self.clock[warps].max(initial=0))
        for warp in np.flatnonzero(warps).tolist():
            self._add(warp, Event("wait", int(self.clock[warp]), latest))
        self.clock[warps] = latest

    def barrier_passed(self) -> None:
        self._meet(np.ones(len(self.clock), bool))

    def barrier_opened(
        self, barrier: int, groups: list[tuple[Block, np.ndarray]], *_: np.ndarray
    ) -> None:
        lanes = [free[self.block].any(axis=1) for _, free in groups]
        met = np.logical_or.reduce(lanes)
        if met.any():
            self._meet(met)

    def mbarrier_arrived(self, index: int, cells: np.ndarray, mask: Mask | None) -> None:
        blocks, warps, _ = np.nonzero(self.machine.active(mask))
        here = blocks == self.block
        for cell, warp in {*zip(cells[here].tolist(), warps[here].tolist(), strict=True)}:
            now = self._now(warp, index)
            self.arrivals[cell] = max(self.arrivals.get(cell, 0), now)
            self._add(warp, Event("arrive", now, now))

    def mbarrier_completed(self, cells: np.ndarray) -> None:
        for cell in cells.tolist():
            self.done[cell] = self.arrivals.get(cell, 0)

    def mbarrier_passed(self, index: int, cells: np.ndarray, lanes: np.ndarray) -> None:
        for warp in np.flatnonzero(lanes[self.block].any(axis=1)).tolist():
            cell = int(cells[self.block, warp, int(lanes[self.block, warp].argmax())])
            now = int(self.clock[warp])
            self.clock[warp] = max(now, self.done.get(cell, 0))
            self._add(warp, Event("wait", now, int(self.clock[warp])))


class _Accesses(Observer):
    """Passes the accesses of a state space on."""

    def __init__(self, recorder: _Recorder) -> None:
        self.recorder = recorder

    def accessing(self, request: Request) -> None:
        if request.kind != "update":
            self.recorder.touched(request)


@dataclass
class _Run:
    """Consecutive events of one kind, between waits."""

    start: int
    end: int
    words: set[int]
    groups: frozenset[int]
    landed: int


def pipeline(trace: PipelineTrace) -> Pipeline | None:
    """Return the pipeline of the first tiles; None if shared memory is filled only once."""
    fills = [_runs(own, ("store", "copy")) for own in trace.events]
    reads = [_runs(own, ("read",)) for own in trace.events]
    filling = [own for own in fills if own]
    tiles = min(map(len, filling), default=0)
    if tiles < 2:
        return None
    shown = min(tiles, TILES)
    words = [set[int]().union(*(own[t].words for own in filling)) for t in range(tiles)]
    stage_of = [next(s for s in range(t + 1) if words[s] & words[t]) for t in range(tiles)]
    stages = sorted(set(stage_of))
    starts = [min(own[t].start for own in filling) for t in range(tiles)]
    tiles_of = [_tiles_read(own, words, stage_of, starts) for own in reads]
    spans: list[Span] = []
    for name, warp in _roles(fills, reads):
        spans += [
            Span(name, "fill", t, run.start, run.end) for t, run in enumerate(fills[warp][:shown])
        ]
        spans += [
            Span(name, "multiply", t, run.start, run.end)
            for numbers, run in zip(tiles_of[warp], reads[warp], strict=True)
            for t in numbers
            if t < shown
        ]
        spans += [
            Span(name, "wait", None, event.start, event.end)
            for event in trace.events[warp]
            if event.what == "wait" and event.end > event.start
        ]
    for t in range(shown):
        row = f"stage {stages.index(stage_of[t])}"
        landed = max(own[t].landed for own in filling)
        taken = [
            run
            for own, numbers in zip(reads, tiles_of, strict=True)
            for number, run in zip(numbers, own, strict=True)
            if t in number
        ]
        spans.append(Span(row, "in flight", t, starts[t], landed))
        if taken:
            first, last = min(run.start for run in taken), max(run.end for run in taken)
            spans += [Span(row, "ready", t, landed, first), Span(row, "read", t, first, last)]
    last = max(span.end for span in spans if span.tile is not None)
    kept = tuple(span for span in spans if span.start < last and span.end >= span.start)
    return Pipeline(len(stages), kept)


def _runs(events: Sequence[Event], kinds: tuple[str, ...]) -> list[_Run]:
    """Return the runs of events of some kinds. A wait, an arrival or another group of copies ends
    a run, which lasts until then; a copy lands when its thread has waited for its group."""
    found: list[_Run] = []
    is_open = False
    for event in events:
        if event.what in kinds:
            run = found[-1] if found and is_open else None
            if run is None or run.groups != event.groups:
                run = _Run(event.start, event.end, set(), event.groups, event.end)
                found.append(run)
            run.end = run.landed = event.end
            run.words |= event.words
            is_open = True
            continue
        for run in found:
            if event.what == "landed" and run.groups & event.groups:
                run.landed = event.start
        if event.what in _ENDS:
            if is_open and "read" in kinds:
                found[-1].end = event.start
            is_open = False
    return found


def _tiles_read(
    runs: Sequence[_Run], words: Sequence[set[int]], stage_of: Sequence[int], starts: Sequence[int]
) -> list[list[int]]:
    """Return the tiles that each run reads: in each of its stages, the one that was filled last."""
    found = []
    for run in runs:
        touched = {stage for stage in set(stage_of) if words[stage] & run.words}
        begun = [t for t, start in enumerate(starts) if start <= run.start]
        filled = [t for t in begun if stage_of[t] in touched]
        found.append(sorted({stage_of[t]: t for t in filled}.values()))
    return found


def _roles(fills: Sequence[Any], reads: Sequence[Any]) -> list[tuple[str, int]]:
    """Return groups of warps that do the same, by name, and the first warp of each."""
    roles: dict[tuple[bool, bool], list[int]] = {}
    for warp, (fill, read) in enumerate(zip(fills, reads, strict=True)):
        if fill or read:
            roles.setdefault((bool(fill), bool(read)), []).append(warp)
    return [
        (f"warps {own[0]}–{own[-1]}" if len(own) > 1 else f"warp {own[0]}", own[0])
        for own in roles.values()
    ]
