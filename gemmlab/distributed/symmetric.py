"""Memory that the GPUs of one node read and write at each other: where pieces and their parts are.

The memory has two halves that products use in turn, so that one barrier per product is enough: a
process that has passed it has copied all that it needs of the product before, whose half is free
again. A CUDA graph uses the half of its capture each time it is replayed. From the first capture
by a program on, products therefore pass a barrier before they write as well.

What travels of an operand is float32, or the float16 parts with their exponents. Parts are packed
once, by their owner. Float32 lies beside them: elements that float16 may have spoiled are computed
again from it, which reads the owner's memory.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gemmlab.core.packages import TORCH
from gemmlab.distributed.links import ITEM
from gemmlab.linalg import frameworks
from gemmlab.linalg.planning.plan import STATUS_BYTES
from gemmlab.linalg.planning.tiers import Choice

with TORCH.importing():
    import torch
    import torch.distributed as dist
    from torch import Tensor

if TYPE_CHECKING:
    from gemmlab.linalg.packed import PackedMatrix

_ALIGNMENT = 256  # bytes, of a place in memory
_MOST_COMMON = 4  # operands whose memory for parts is kept
_serials = itertools.count()

Place = tuple[int, int]  # a process and the number of one of its pieces
Piece = Any  # a Tensor or a PackedMatrix: what `entry.product` takes
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


class SharedMemory:
    """Symmetric memory of a group, and the streams that prepare pieces and copy them."""

    def __init__(self, group: Any, device: Any) -> None:
        # Multicast objects are not needed, and some systems forbid them.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        self.group, self.device, self._serial = group, device, next(_serials)
        # Of high priority: its small kernels start before the blocks of a product fill the GPU.
        self.side = torch.cuda.Stream(device, priority=-1)
        self.beside = torch.cuda.Stream(device, priority=-1)
        self.lane = torch.cuda.Stream(device, priority=-1)
        self._is_replayed = False  # whether a CUDA graph may use a half out of turn
        self._is_captured = False  # whether a graph is captured that uses its half in turn
        self._version = 0  # of the places
        self._half, self._turn, self._memory = 0, 0, None
        self._last: Any = None  # stream of a product
        self._received: Tensor | None = None  # parts
        self._ways: dict[Any, Way] = {}
        self._common: dict[Any, _Common] = {}  # what pieces are multiplied with
        backend = group._get_backend(torch.device("cuda"))  # NOTE: not public; nor are its options
        self._timeout_ms = int(backend.options._timeout.total_seconds() * 1000)

    def take(self, pieces: Pieces, side: str, choice: Choice | None) -> Way:
        """Take the next half, for pieces that are packed if there is a `choice`."""
        self._turn = 1 - self._turn
        if not self._is_captured and torch.cuda.is_current_stream_capturing():
            self._is_replayed = True
        key = pieces, choice and side, self._turn
        way = self._ways.get(key)
        if way is None:
            layout = _layout(pieces, side, choice)
            self._grow(layout)
            way = self._ways[key] = Way(self, pieces, side, layout)
        return way

    def enter(self, current: Any) -> None:
        """Let the current stream wait for products on the stream of the last one."""
        if self._last is not None and self._last != current:
            current.wait_stream(self._last)
        self._last = current

    @property
    def state(self) -> tuple[int, ...]:
        """What the work of the next product depends on, besides the product."""
        return self._serial, self._version, self._turn, self._is_replayed

    def skip(self) -> None:
        """Leave the next half to a graph."""
        self._turn = 1 - self._turn

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Within the context, graphs are captured that are replayed where `state` is as it was."""
        self._is_captured = True
        try:
            yield
        finally:
            self._is_captured = False

    def packed_once(self, xs: Sequence[Tensor], side: str, choice: Choice) -> list[Piece]:
        """Pack matrices on the current stream, but empty ones, into memory for their forms."""
        stream = torch.cuda.current_stream().cuda_stream
        if torch.cuda.is_current_stream_capturing() and not self._is_captured:
            return _Common(xs, side, choice, stream).matrices  # their memory belongs to the graph
        key = side, choice.tier, choice.fallback, *((x.shape, x.stride()) for x in xs)
        found = self._common.get(key)
        if found is not None:
            return found.fill(xs, stream)
        if len(self._common) >= _MOST_COMMON:
            self._common.clear()
            self._version += 1
        found = self._common[key] = _Common(xs, side, choice, stream)
        return found.matrices

    def _grow(self, layout: _Layout) -> None:
        if layout.placed > self._half:
            from torch.distributed import _symmetric_memory as symmetric

            torch.cuda.synchronize(self.device)  # all copies have ended
            self._ways.clear()
            self._memory = None
            torch.cuda.empty_cache()  # symmetric memory is not taken from what PyTorch keeps
            self._half, self._version = layout.placed, self._version + 1
            memory = symmetric.empty(2 * self._half, dtype=torch.uint8, device=self.device)
            self._memory = symmetric.rendezvous(memory, self.group)
        if self._received is None or layout.received > self._received.numel():
            self._ways.clear()
            self._version += 1
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


_all_shared: dict[Any, SharedMemory] = {}


def shared(group: Any, device: Any) -> SharedMemory:
    """The symmetric memory of a group; made on first use, by all processes of the group."""
    key = group.group_name, device
    found = _all_shared.get(key)
    if found is None or found.group is not group:  # a group of the same name may be a new one
        found = _all_shared[key] = SharedMemory(group, device)
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


class Way:
    """The places of pieces in one half of the memory, and the pieces as parts."""

    def __init__(self, memory: SharedMemory, pieces: Pieces, side: str, layout: _Layout) -> None:
        self.me, self._side = pieces.me, side
        self._mine: dict[int, PackedMatrix] = {}
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
        self.everywhere = [*zip(mine, self.staged, strict=True), *self.whole]
        self._own_parts = [parts(place) for place in mine]
        self._travels = [
            (parts(x), memory.received(layout.arrivals[x], layout.sizes[x])) for x in others
        ]

    def clear(self) -> None:
        """Clear the counts of my pieces, on the current stream, before they are packed."""
        for parts in self._own_parts:
            _clear(parts)

    def pack(self, j: int, x: Tensor, choice: Choice, stream: int) -> PackedMatrix:
        """Pack my piece number j into the half, whose counts are cleared."""
        piece = self._mine.get(j)
        if piece is None:
            piece = _matrix(x, self._side, choice, stream, self._own_parts[j])
            self._mine[j] = piece
        else:
            piece.fill(x, stream, True)
        return piece

    def moves(self, choice: Choice, stream: int) -> list[tuple[Place, Piece, Tensor, Tensor]]:
        """Of each piece of others its place, what it will be, and the parts: target, source."""
        if not self._moves:
            self._moves = [
                (place, _matrix(x, self._side, choice, stream, target, True), target, source)
                for (place, x), (source, target) in zip(self.whole, self._travels, strict=True)
            ]
        return self._moves


class _Common:
    """Matrices that are packed together, without empty ones, which stay as they are."""

    def __init__(self, xs: Sequence[Tensor], side: str, choice: Choice, stream: int) -> None:
        sizes = [_aligned(_parts_size(tuple(x.shape), side, choice)) for x in xs if x.numel()]
        size = len(sizes), max(sizes, default=0)
        self._memory = torch.empty(size, dtype=torch.uint8, device=xs[0].device)
        _clear(self._memory)
        places = iter(self._memory)
        self.matrices: list[Piece] = [
            _matrix(x, side, choice, stream, next(places)) if x.numel() else x for x in xs
        ]

    def fill(self, xs: Sequence[Tensor], stream: int) -> list[Piece]:
        """Pack other matrices of the same forms."""
        _clear(self._memory)
        for piece, x in zip(self.matrices, xs, strict=True):
            if x.numel():
                piece.fill(x, stream, True)
        return self.matrices


def _clear(parts: Tensor) -> None:
    """Clear the counts, at the beginning of packed matrices, on the current stream.

    By a kernel: copy engines are for the links, and a graph's memset would wait for their copies.
    """
    parts[..., :STATUS_BYTES].fill_(0)


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
