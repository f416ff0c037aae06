"""Pieces that GPUs of one node copy out of each other's memory, without a multiprocessor.

A process places its pieces in symmetric memory on a side stream, passes a barrier of all processes
there, and copies theirs on another one, the lane, while its main stream multiplies. Or the lane
first writes blocks of its shard where others have pieces of another axis. Blocks of a result that
is scattered are computed in this memory, and a barrier follows each.

Copies between GPUs run one after another, also those on different streams. A product takes all
multiprocessors until it ends: a barrier that comes after its start waits for its end, and so does
every other process. Products therefore start after the barrier of what they leave behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gemmlab.core.packages import TORCH
from gemmlab.distributed.links import ITEM
from gemmlab.distributed.symmetric import Piece, Pieces, Place, SharedMemory, Way, shared
from gemmlab.linalg.planning.tiers import Choice

with TORCH.importing():
    import torch
    from torch import Tensor

Arrival = tuple[Place, Callable[[], object], Piece]  # with what waits for it


class Turn(NamedTuple):
    """Shards of the depth, exchanged for pieces of another axis that have the whole depth."""

    shard: Tensor
    axis: int  # of the depth
    first: int  # of this shard along it
    blocks: dict[Place, Tensor]  # of the shard, one for each piece


def pull(
    mine: Sequence[Tensor] | Turn,
    pieces: Pieces,
    group: Any,
    recorded: Callable[[str], Any],
    side: str = "",
    choice: Choice | None = None,
) -> list[Arrival]:
    """Start to copy the pieces of other processes.

    With a `choice` of precision, parts of the pieces travel, packed for a `side` of a product.
    Returns of each piece, mine first, its place, what lets the current stream wait for it, and what
    it will be. Empty ones of other processes are left out.
    """
    shard = mine.shard if isinstance(mine, Turn) else mine[0]
    memory, current = shared(group, shard.device), torch.cuda.current_stream()
    way = memory.take(pieces, side, choice)
    if choice is not None:
        moves = way.moves(choice, memory.side.cuda_stream)
    else:  # allocated on the current stream, which uses them
        moves = [(place, x := shard.new_empty(at.shape), x, at) for place, at in way.whole]
    work = _Pull(way, memory, moves, recorded, choice)
    memory.side.wait_stream(current)
    with torch.cuda.stream(memory.side):
        memory.reuse()
        if isinstance(mine, Turn):
            work.turn(mine)
        else:
            work.stage(mine)
        return work.arrivals(current)


class _Pull:
    """One exchange of pieces. Its methods run on the side stream."""

    def __init__(
        self,
        way: Way,
        memory: SharedMemory,
        moves: list[tuple[Place, Piece, Tensor, Tensor]],
        recorded: Callable[[str], Any],
        choice: Choice | None,
    ) -> None:
        self._way, self._memory, self._moves = way, memory, moves
        self._recorded, self._choice = recorded, choice
        self._own, self._others = list[Arrival](), list[Arrival]()

    def stage(self, mine: Sequence[Tensor]) -> None:
        """Place my pieces, and their parts, where others copy them."""
        memory, way = self._memory, self._way
        memory.beside.wait_stream(memory.side)
        with torch.cuda.stream(memory.beside):  # both read the pieces, once from memory
            for there, x in zip(way.staged, mine, strict=True):
                there.copy_(x)
        way.clear()
        pieces = [self._packed(j, x) for j, x in enumerate(mine)]
        memory.side.wait_stream(memory.beside)
        met = self._meet()
        self._own = [((way.me, j), partial(_wait, met), x) for j, x in enumerate(pieces)]
        self._fetch(range(len(mine)))

    def turn(self, turn: Turn) -> None:
        """Write blocks of my shard into the pieces of all processes, which pack them.

        The half that is written was last used before a barrier that this process has passed. The
        next blocks travel while those that have come are packed and multiplied, and then the parts
        of these.
        """
        memory, last = self._memory, len(self._way.staged) - 1
        memory.lane.wait_stream(memory.side)
        memory.beside.wait_stream(memory.side)
        sent = self._send(turn, 0)
        self._way.clear()  # while blocks travel
        for j, x in enumerate(self._way.staged):
            for event in sent:
                memory.side.wait_event(event)
            self._meet()
            if j < last:
                sent = self._send(turn, j + 1)
            if j:
                self._fetch([j - 1])
            piece = self._packed(j, x)
            ready = self._meet() if j == last else memory.side.record_event()
            self._own.append(((self._way.me, j), partial(_wait, ready), piece))
        self._fetch([last])

    def arrivals(self, current: Any) -> list[Arrival]:
        """All pieces, mine first. Who waits for them has waited for all streams.

        Captures of graphs ask for that.
        """
        lane = self._memory.lane
        if self._others:
            place, _, piece = self._others[-1]
            self._others[-1] = place, partial(_wait, lane.record_event()), piece
        else:
            current.wait_stream(lane)
        return self._own + self._others

    def _packed(self, j: int, x: Tensor) -> Piece:
        """Pack my piece number j, if parts travel."""
        if self._choice is None or not x.numel():
            return x
        return self._way.pack(j, x, self._choice, self._memory.side.cuda_stream)

    def _meet(self) -> Any:
        """Let the side stream wait for all processes; returns an event after that."""
        self._memory.barrier()
        return self._memory.side.record_event()

    def _send(self, turn: Turn, j: int) -> list[Any]:
        """Start to write my blocks of all pieces number j; returns events after that."""
        memory = self._memory
        for place, there in self._way.everywhere:
            if place[1] == j:
                block, is_mine = turn.blocks[place], place[0] == self._way.me
                part = there.narrow(turn.axis, turn.first, block.shape[turn.axis])
                stream = memory.beside if is_mine else memory.lane
                with torch.cuda.stream(stream), self._recorded("copy"):
                    if is_mine:  # by a kernel: copy engines are for the links
                        part.copy_(block)
                    else:
                        _copy(part, block)
        return [stream.record_event() for stream in (memory.beside, memory.lane)]

    def _fetch(self, numbers: Sequence[int]) -> None:
        """Start to copy the pieces of others that have these numbers."""
        memory = self._memory
        memory.lane.wait_stream(memory.side)
        with torch.cuda.stream(memory.lane):
            for place, piece, target, source in self._moves:
                if place[1] in numbers:
                    with self._recorded("copy"):
                        target.copy_(source)
                    arrived = partial(_wait, memory.lane.record_event())
                    self._others.append((place, arrived, piece))


def _copy(target: Tensor, source: Tensor) -> None:
    """Copy a matrix, by a copy engine if its rows are contiguous; PyTorch would use a kernel."""
    is_matrix = target.dim() == 2 and target.stride(1) == source.stride(1) == 1
    if target.is_cuda and target.numel() and is_matrix:
        from gemmlab.linalg.runtime.driver import copy_rows  # imports the driver's bindings

        pitches = (ITEM * target.stride(0), ITEM * source.stride(0))
        shape = target.shape[0], ITEM * target.shape[1]
        stream = torch.cuda.current_stream().cuda_stream
        copy_rows((target.data_ptr(), source.data_ptr()), pitches, shape, stream)
    else:
        target.copy_(source)


def packed_once(given: Sequence[Tensor], group: Any, side: str, choice: Choice) -> list[Piece]:
    """Pack what the pieces are multiplied with, on the current stream."""
    xs = [x if 1 in x.stride() else x.contiguous() for x in given]
    return shared(group, xs[0].device).packed_once(xs, side, choice)


def nothing() -> None:
    """Wait for nothing."""


class Outbox:
    """Blocks of a result that other processes add: they copy them out of this one's memory.

    Each process computes its blocks for the others in one order of steps, and a barrier after each
    says that those of this step are there.
    """

    def __init__(
        self, pieces: Pieces, group: Any, device: Any, recorded: Callable[[str], Any]
    ) -> None:
        self._memory, self._pieces, self._recorded = shared(group, device), pieces, recorded
        self._way = self._memory.take(pieces, "", None)
        self._arrays = dict(self._way.whole)
        current, side = torch.cuda.current_stream(), self._memory.side
        if not torch.cuda.is_current_stream_capturing():
            self._memory.enter(current)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            self._memory.reuse()
        current.wait_stream(side)  # it has passed the barrier of the product before

    def target(self, number: int) -> Tensor:
        """Where a block of this process is computed."""
        return self._way.staged[number]

    def swap(self, block: Tensor, place: Place) -> tuple[Tensor, Callable[[], object]]:
        """Offer a block, and start to copy the one at `place`; return it and what waits for it."""
        memory, current = self._memory, torch.cuda.current_stream()
        memory.side.wait_stream(current)
        term = block.new_empty(self._pieces.shape(place))
        with torch.cuda.stream(memory.side):
            memory.barrier()
        current.wait_stream(memory.side)  # the next product starts behind it
        memory.lane.wait_stream(memory.side)
        with torch.cuda.stream(memory.lane):
            if term.numel():
                with self._recorded("copy"):
                    term.copy_(self._arrays[place])
            return term, partial(_wait, memory.lane.record_event())


def _wait(event: Any) -> None:
    torch.cuda.current_stream().wait_event(event)
