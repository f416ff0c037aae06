"""Pieces that GPUs of one node copy out of each other's memory, without a multiprocessor.

A process places its pieces in symmetric memory on a side stream, passes a barrier of all processes
there, and copies theirs while its main stream multiplies. The memory has two halves that products
use in turn, so that one barrier per product is enough: a process that has passed it has copied all
that it needs of the product before, whose half is free again. Blocks of a result that is scattered
are computed in this memory, and a barrier follows each.

A CUDA graph uses the half of its capture each time it is replayed. From the first capture on,
products therefore pass a barrier before they write as well.

What travels of an operand is float32, or the float16 parts with their exponents. Parts are packed
once, by their owner. Float32 lies beside them: elements that float16 may have spoiled are computed
again from it, which reads the owner's memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gemmlab.core.packages import TORCH
from gemmlab.distributed.links import ITEM
from gemmlab.linalg import frameworks
from gemmlab.linalg.planning.tiers import Choice

with TORCH.importing():
    import torch
    import torch.distributed as dist
    from torch import Tensor

if TYPE_CHECKING:
    from gemmlab.linalg.packed import PackedMatrix

_ALIGNMENT = 256  # bytes, of a place in memory

Place = tuple[int, int]  # a process and the number of one of its pieces
Piece = Any  # a Tensor or a PackedMatrix: what `entry.product` takes
Arrival = tuple[Place, Callable[[], object], Piece]  # with what waits for it
Shape = tuple[int, ...]


class Pieces(NamedTuple):
    """The pieces of all processes: the form of an exchange.

    `order` is that in which process `me` takes those of others.
    """

    me: int
    shapes: tuple[tuple[Shape, ...], ...]  # of each process
    order: tuple[Place, ...]

    def shape(self, place: Place) -> Shape:
        return self.shapes[place[0]][place[1]]


def pull(
    mine: Sequence[Tensor],
    pieces: Pieces,
    group: Any,
    recorded: Callable[[str], Any],
    side: str = "",
    choice: Choice | None = None,
) -> tuple[list[Piece], list[Arrival]]:
    """Start to copy the pieces of other processes.

    With a `choice` of precision, parts of the pieces travel, packed for a `side` of a product.
    Returns my pieces; and of each other one that is not empty its place, what lets the current
    stream wait for it, and what it will be.
    """
    memory, current = _shared(group, mine[0].device), torch.cuda.current_stream()
    way = memory.take(pieces, side, choice)
    own: list[Piece] = list(mine)
    if choice is not None:
        moves = way.moves(choice, memory.side.cuda_stream)
    else:  # allocated on the current stream, which uses them
        moves = [(place, x := mine[0].new_empty(at.shape), x, at) for place, at in way.whole]
    found: list[Arrival] = []
    memory.side.wait_stream(current)
    with torch.cuda.stream(memory.side):
        memory.reuse()
        if choice is not None:
            own = way.pack(mine, choice, memory.side.cuda_stream)
            packed = memory.side.record_event()
        for there, x in zip(way.staged, mine, strict=True):
            there.copy_(x)
        memory.barrier()
        for place, piece, target, source in moves:
            with recorded("copy"):
                target.copy_(source)
            arrived = memory.side.record_event()
            found.append((place, partial(_wait, arrived), piece))
    if choice is not None:
        current.wait_event(packed)
    if not found:  # a capture ends with all streams joined
        current.wait_stream(memory.side)
    return own, found


class Outbox:
    """Blocks of a result that other processes add: they copy them out of this one's memory.

    Each process computes its blocks for the others in one order of steps, and a barrier after each
    says that those of this step are there.
    """

    def __init__(
        self, pieces: Pieces, group: Any, device: Any, recorded: Callable[[str], Any]
    ) -> None:
        self._memory, self._pieces, self._recorded = _shared(group, device), pieces, recorded
        self._way = self._memory.take(pieces, "", None)
        self._arrays = dict(self._way.whole)
        current, side = torch.cuda.current_stream(), self._memory.side
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


class _Shared:
    """Symmetric memory of a group, and the side stream that copies."""

    def __init__(self, group: Any, device: Any) -> None:
        # Multicast objects are not needed, and some systems forbid them.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        self.group, self.device = group, device
        # Of high priority: its small kernels start before the blocks of a product fill the GPU.
        self.side = torch.cuda.Stream(device, priority=-1)
        self._is_replayed = False  # whether a CUDA graph may use a half out of turn
        self._half, self._turn, self._memory = 0, 0, None
        self._received: Tensor | None = None  # parts
        self._ways: dict[Any, _Way] = {}
        backend = group._get_backend(torch.device("cuda"))  # NOTE: not public; nor are its options
        self._timeout_ms = int(backend.options._timeout.total_seconds() * 1000)

    def take(self, pieces: Pieces, side: str, choice: Choice | None) -> _Way:
        """Take the next half, for pieces that are packed if there is a `choice`."""
        self._turn = 1 - self._turn
        self._is_replayed = self._is_replayed or torch.cuda.is_current_stream_capturing()
        key = pieces, choice and side, self._turn
        way = self._ways.get(key)
        if way is None:
            layout = _layout(pieces, side, choice)
            self._grow(layout)
            way = self._ways[key] = _Way(self, pieces, side, layout)
        return way

    def _grow(self, layout: _Layout) -> None:
        if layout.placed > self._half:
            from torch.distributed import _symmetric_memory as symmetric

            torch.cuda.synchronize(self.device)  # nothing is copied any more
            self._ways.clear()
            self._memory = None
            torch.cuda.empty_cache()  # symmetric memory is not taken from what PyTorch keeps
            self._half = layout.placed
            memory = symmetric.empty(2 * self._half, dtype=torch.uint8, device=self.device)
            self._memory = symmetric.rendezvous(memory, self.group)
        if self._received is None or layout.received > self._received.numel():
            self._ways.clear()
            self._received = torch.empty(layout.received, dtype=torch.uint8, device=self.device)

    def array(self, rank: int, shape: Shape, dtype: Any, first: int) -> Tensor:
        """The array that starts so many bytes into the half of a process."""
        assert self._memory is not None
        start = (self._turn * self._half + first) // dtype.itemsize
        return torch.as_tensor(self._memory.get_buffer(rank, shape, dtype, start))

    def received(self, first: int, size: int) -> Tensor:
        """A place in the memory for parts of other processes."""
        assert self._received is not None
        return self._received[first : first + size]

    def barrier(self) -> None:
        """Let the current stream wait for all processes; it fails after the group's timeout."""
        assert self._memory is not None
        self._memory.barrier(channel=0, timeout_ms=self._timeout_ms)

    def reuse(self) -> None:
        """Let the current stream wait until this half may be written."""
        if self._is_replayed:
            self.barrier()


_all_shared: dict[Any, _Shared] = {}


def _shared(group: Any, device: Any) -> _Shared:
    """The symmetric memory of a group; made on first use, by all processes of the group."""
    key = group.group_name, device
    found = _all_shared.get(key)
    if found is None or found.group is not group:  # a group of the same name may be a new one
        found = _all_shared[key] = _Shared(group, device)
    return found


class _Layout(NamedTuple):
    """Where pieces are: bytes from the start of a half, and of the memory for received parts."""

    whole: dict[Place, int]
    parts: dict[Place, int]
    sizes: dict[Place, int]  # of parts
    arrivals: dict[Place, int]
    placed: int  # by a process, at most
    received: int


def _layout(pieces: Pieces, side: str, choice: Choice | None) -> _Layout:
    whole, parts, sizes = dict[Place, int](), dict[Place, int](), dict[Place, int]()
    arrivals, placed, received = dict[Place, int](), _ALIGNMENT, 0
    for rank, shapes in enumerate(pieces.shapes):
        at = 0
        for place, shape in (((rank, j), shape) for j, shape in enumerate(shapes)):
            sizes[place] = _parts_size(shape, side, choice) if choice and math.prod(shape) else 0
            whole[place] = at
            parts[place] = at + _aligned(ITEM * math.prod(shape))
            at = parts[place] + _aligned(sizes[place])
        placed = max(placed, at)
    for place in pieces.order:
        arrivals[place] = received
        received += _aligned(sizes[place])
    return _Layout(whole, parts, sizes, arrivals, placed, received)


def _parts_size(shape: Shape, side: str, choice: Choice) -> int:
    from gemmlab.linalg import packed  # imports the driver's bindings

    rows, columns = shape
    return packed.layout_of((rows, columns), side, choice).nbytes


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Way:
    """The places of pieces in one half of the memory, and the pieces as parts."""

    def __init__(self, memory: _Shared, pieces: Pieces, side: str, layout: _Layout) -> None:
        self._side = side
        self._mine: list[Piece] = []
        self._moves: list[tuple[Place, Piece, Tensor, Tensor]] = []

        def whole(place: Place) -> Tensor:
            return memory.array(place[0], pieces.shape(place), torch.float32, layout.whole[place])

        def parts(place: Place) -> Tensor:
            size = (layout.sizes[place],)
            return memory.array(place[0], size, torch.uint8, layout.parts[place])

        mine = [(pieces.me, j) for j in range(len(pieces.shapes[pieces.me]))]
        others = [place for place in pieces.order if math.prod(pieces.shape(place))]
        self.staged = [whole(place) for place in mine]
        self.whole = [(place, whole(place)) for place in others]
        self._own_parts = [parts(place) for place in mine]
        self._travels = [
            (parts(x), memory.received(layout.arrivals[x], layout.sizes[x])) for x in others
        ]

    def pack(self, mine: Sequence[Tensor], choice: Choice, stream: int) -> list[Piece]:
        """Pack my pieces into the half."""
        if not self._mine:
            self._mine = [
                _matrix(x, self._side, choice, stream, memory) if x.numel() else x
                for x, memory in zip(mine, self._own_parts, strict=True)
            ]
            return self._mine
        for piece, x in zip(self._mine, mine, strict=True):
            if x.numel():
                piece.fill(x, stream)
        return self._mine

    def moves(self, choice: Choice, stream: int) -> list[tuple[Place, Piece, Tensor, Tensor]]:
        """Of each piece of others its place, what it will be, and the parts: target, source."""
        if not self._moves:
            self._moves = [
                (place, _matrix(x, self._side, choice, stream, target, True), target, source)
                for (place, x), (source, target) in zip(self.whole, self._travels, strict=True)
            ]
        return self._moves


def _matrix(x: Tensor, side: str, choice: Choice, *rest: Any) -> PackedMatrix:
    from gemmlab.linalg.packed import PackedMatrix  # imports the driver's bindings

    framework, _ = frameworks.locate(x, "a")
    assert framework is not None
    return PackedMatrix(x, framework.describe(x), framework, side, choice, *rest)


@lru_cache(64)
def shares_memory(group: Any, device: int) -> bool:
    """Whether the GPUs of a group can read each other's memory: all in one node, all visible.

    Nodes are counted as torchrun does. The answer is the same on all processes of the group.
    """
    here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 0)), torch.cuda.device_count()
    ranks = dist.get_process_group_ranks(group)
    if not here or len({rank // here for rank in ranks}) > 1:
        return False
    if os.environ.get("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"):  # for tests on one GPU
        return True
    peers = (i for i in range(here) if i != device)
    return gpus >= here and all(torch.cuda.can_device_access_peer(device, i) for i in peers)
