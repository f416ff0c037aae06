"""Pieces that GPUs of one node copy out of each other's memory, without a multiprocessor.

A process places its pieces in symmetric memory on a side stream, passes a barrier of all processes
there, and copies theirs while its main stream multiplies. Or it writes blocks of its shard where
others have pieces of another axis, and a barrier follows, too. Blocks of a result that is scattered
are computed in this memory, and a barrier follows each.
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
    memory.side.wait_stream(current)
    with torch.cuda.stream(memory.side):
        memory.reuse()
        if isinstance(mine, Turn):
            found = _turned(mine, way, memory, recorded, choice)
        else:
            found = _staged(mine, way, memory, choice)
        memory.barrier()
        for place, piece, target, source in moves:
            with recorded("copy"):
                target.copy_(source)
            found.append((place, partial(_wait, memory.side.record_event()), piece))
    if not moves:  # a capture ends with all streams joined
        current.wait_stream(memory.side)
    return found


def _staged(
    mine: Sequence[Tensor], way: Way, memory: SharedMemory, choice: Choice | None
) -> list[Arrival]:
    """Place my pieces, and their parts, where others copy them; return them."""
    found, side = list[Arrival](), memory.side
    memory.beside.wait_stream(side)
    with torch.cuda.stream(memory.beside):  # both read the pieces, once from memory
        for there, x in zip(way.staged, mine, strict=True):
            there.copy_(x)
    for j, x in enumerate(mine):
        place = way.me, j
        if choice is None or not x.numel():
            found.append((place, nothing, x))
        else:
            piece = way.pack(j, x, choice, side.cuda_stream)
            found.append((place, partial(_wait, side.record_event()), piece))
    side.wait_stream(memory.beside)
    return found


def _turned(
    turn: Turn,
    way: Way,
    memory: SharedMemory,
    recorded: Callable[[str], Any],
    choice: Choice | None,
) -> list[Arrival]:
    """Write blocks of my shard into the pieces of all processes; return my pieces.

    The half that is written was last used before a barrier that this process has passed.
    """
    found, beside = list[Arrival](), memory.beside
    for j, x in enumerate(way.staged):
        beside.wait_stream(memory.side)
        with recorded("copy"):
            for place, there in way.everywhere:
                if place[1] == j:
                    block = turn.blocks[place]
                    part = there.narrow(turn.axis, turn.first, block.shape[turn.axis])
                    with torch.cuda.stream(beside if place[0] == way.me else memory.side):
                        _copy(part, block)
        memory.side.wait_stream(beside)
        memory.barrier()
        piece: Piece = x
        if choice is not None and x.numel():
            piece = way.pack(j, x, choice, memory.side.cuda_stream)
        found.append(((way.me, j), partial(_wait, memory.side.record_event()), piece))
    return found


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
        side = self._memory.side
        side.wait_stream(torch.cuda.current_stream())
        term = block.new_empty(self._pieces.shape(place))
        with torch.cuda.stream(side):
            self._memory.barrier()
            if term.numel():
                with self._recorded("copy"):
                    term.copy_(self._arrays[place])
            return term, partial(_wait, side.record_event())


def _wait(event: Any) -> None:
    torch.cuda.current_stream().wait_event(event)
