"""Pieces that GPUs of one node copy out of each other's memory, without a multiprocessor.

A process places its pieces in symmetric memory on a side stream, passes a barrier of all processes
there, and copies theirs while its main stream multiplies. The memory has two halves that products
use in turn, so that one barrier per product is enough: a process that has passed it has copied all
that it needs of the product before, whose half is free again.

What travels is float32, or the float16 parts with their exponents. Parts are packed once, by their
owner. Float32 lies beside them: elements that float16 may have spoiled are computed again from it,
which reads the owner's memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

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

_ALIGNMENT = 256  # bytes, of a place in symmetric memory

Place = tuple[int, int]  # a process and the number of one of its pieces
Piece = Any  # a Tensor or a PackedMatrix: what `entry.product` takes
Arrival = tuple[Place, Callable[[], object], Piece]  # with what waits for it
Shape = tuple[int, ...]


class Shared:
    """Symmetric memory of a group, and the side stream that copies."""

    def __init__(self, group: Any, device: Any) -> None:
        # Multicast objects are not needed, and some systems forbid them.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        self.group, self.device = group, device
        # Of high priority: its small kernels start before the blocks of a product fill the GPU.
        self.side = torch.cuda.Stream(device, priority=-1)
        self._passed = torch.cuda.Event()  # of the last barrier
        self._half, self._turn, self._tensor, self._memory = 0, 0, None, None
        self._received: Tensor | None = None  # parts
        self._packed: dict[Any, PackedMatrix] = {}
        backend = group._get_backend(torch.device("cuda"))  # NOTE: not public; nor are its options
        self._timeout_ms = int(backend.options._timeout.total_seconds() * 1000)

    def turn(self, size: int, received: int) -> None:
        """Take the half for a product of which each process places at most `size` bytes.

        `received` bytes are for parts of other processes.
        """
        from torch.distributed import _symmetric_memory as symmetric

        if size > self._half:
            self._half = _aligned(size)
            torch.cuda.synchronize(self.device)  # nothing is copied any more
            self._packed.clear()
            self._tensor = symmetric.empty(2 * self._half, dtype=torch.uint8, device=self.device)
            self._memory = symmetric.rendezvous(self._tensor, self.group)
        if received and (self._received is None or received > self._received.numel()):
            self._packed.clear()
            self._received = torch.empty(received, dtype=torch.uint8, device=self.device)
        self._turn = 1 - self._turn

    def array(self, rank: int, shape: Shape, dtype: Any, first: int) -> Tensor:
        """The array that starts so many bytes into the half of a process."""
        assert self._memory is not None
        start = (self._turn * self._half + first) // dtype.itemsize
        return torch.as_tensor(self._memory.get_buffer(rank, shape, dtype, start))

    def parts(self, first: int, size: int) -> Tensor:
        """A place in the memory for received parts."""
        assert self._received is not None
        return self._received[first : first + size]

    def barrier(self) -> None:
        """Let the current stream wait for all processes; it fails after the group's timeout."""
        assert self._memory is not None
        self._memory.barrier(channel=0, timeout_ms=self._timeout_ms)
        self._passed.record()

    def wait_until_free(self) -> None:
        """Let the current stream wait until it may write to my half: for the last barrier."""
        torch.cuda.current_stream().wait_event(self._passed)

    def packed(self, x: Tensor, side: str, choice: Choice, first: int) -> PackedMatrix:
        """Pack my piece on the current stream into my half; made once per form and place."""
        stream = torch.cuda.current_stream().cuda_stream
        key = side, x.shape, choice.tier, stream, self._turn, first
        found = self._packed.get(key)
        if found is None:
            size = _packed_size(tuple(x.shape), side, choice)
            memory = self.array(dist.get_rank(self.group), (size,), torch.uint8, first)
            found = self._packed[key] = _matrix(x, side, choice, stream, memory)
        else:
            found.fill(x, stream)
        return found

    def arriving(self, x: Tensor, side: str, choice: Choice, first: int) -> PackedMatrix:
        """The parts, so many bytes into the memory for received ones, of x of another process."""
        stream = torch.cuda.current_stream().cuda_stream
        key = side, x.shape, choice.tier, stream, "arriving", first
        found = self._packed.get(key)
        if found is None:
            size = _packed_size(tuple(x.shape), side, choice)
            memory = self.parts(first, size)
            found = self._packed[key] = _matrix(x, side, choice, stream, memory, True)
        found.array = x
        return found


_packed_sizes: dict[Any, int] = {}


def _packed_size(shape: Shape, side: str, choice: Choice) -> int:
    from gemmlab.linalg import packed  # imports the driver's bindings

    key = shape, side, choice.tier
    size = _packed_sizes.get(key)
    if size is None:
        rows, columns = shape
        size = _packed_sizes[key] = packed.layout_of((rows, columns), side, choice).nbytes
    return size


def _matrix(x: Tensor, side: str, choice: Choice, *rest: Any) -> PackedMatrix:
    from gemmlab.linalg.packed import PackedMatrix  # imports the driver's bindings

    framework, _ = frameworks.locate(x, "a")
    assert framework is not None
    return PackedMatrix(x, framework.describe(x), framework, side, choice, *rest)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


_shared: dict[Any, Shared] = {}


def shared(group: Any, device: Any) -> Shared:
    """The symmetric memory of a group; made on first use, by all processes of the group."""
    key = group.group_name, device
    found = _shared.get(key)
    # A group of the same name may be a new one.
    if found is None or found.group is not group:
        found = _shared[key] = Shared(group, device)
    return found


def pull(
    mine: Sequence[Tensor],
    shapes: dict[Place, Shape],
    order: Sequence[Place],
    group: Any,
    recorded: Callable[[str], Any],
    side: str = "",
    choice: Choice | None = None,
) -> tuple[list[Piece], list[Arrival]]:
    """Start to copy the pieces of other processes, in this order.

    With a `choice` of precision, parts of the pieces travel, packed for a `side` of a product.
    Returns my pieces; and of each other one its place, what lets the current stream wait for it,
    and what it will be. `shapes` are those of all pieces.
    """
    me, count, ranks = dist.get_rank(group), len(mine), dist.get_world_size(group)
    sizes = {
        place: _packed_size(shape, side, choice) if choice and math.prod(shape) else 0
        for place, shape in shapes.items()
    }
    starts: dict[Place, tuple[int, int]] = {}  # of float32 and of parts, in the owner's half
    most = 0
    for rank in range(ranks):
        at = 0
        for place in ((rank, j) for j in range(count)):
            starts[place] = at, at + _aligned(ITEM * math.prod(shapes[place]))
            at = starts[place][1] + _aligned(sizes[place])
        most = max(most, at)
    order = [place for place in order if math.prod(shapes[place])]
    received, end = dict[Place, int](), 0
    for place in order:
        received[place], end = end, end + _aligned(sizes[place])
    memory, current = shared(group, mine[0].device), torch.cuda.current_stream()
    memory.turn(max(most, _ALIGNMENT), end)

    def float32(place: Place) -> Tensor:
        return memory.array(place[0], shapes[place], torch.float32, starts[place][0])

    memory.side.wait_stream(current)
    with torch.cuda.stream(memory.side):
        for j in range(count):
            float32((me, j)).copy_(mine[j])
    own: list[Piece] = list(mine)
    moves: list[tuple[Place, Piece, Tensor, Tensor]] = []  # what it will be, target, source
    if choice is None:
        for place in order:
            target = mine[0].new_empty(shapes[place])
            moves.append((place, target, target, float32(place)))
    else:
        memory.wait_until_free()
        for j, x in enumerate(mine):
            if x.numel():
                own[j] = memory.packed(x, side, choice, starts[me, j][1])
        for place in order:
            piece = memory.arriving(float32(place), side, choice, received[place])
            target = memory.parts(received[place], sizes[place])
            source = memory.array(place[0], (sizes[place],), torch.uint8, starts[place][1])
            moves.append((place, piece, target, source))
        memory.side.wait_stream(current)
    found: list[Arrival] = []
    with torch.cuda.stream(memory.side):
        memory.barrier()
        for place, piece, target, source in moves:
            with recorded("copy"):
                target.copy_(source)
            event = torch.cuda.Event()
            event.record(memory.side)

            def wait(event: Any = event) -> None:
                torch.cuda.current_stream().wait_event(event)

            found.append((place, wait, piece))
    return own, found


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
