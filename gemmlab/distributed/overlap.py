"""A product while one operand is gathered, or while its result is scattered, in pieces.

Each process starts with its own piece and continues with those of the next processes, so that no
process serves all others at once. The order of a sum is fixed by the mesh alone: the same bits
on every run.

Pieces travel between GPUs of one node by copies from symmetric memory on a side stream, which need
no multiprocessor; else by sends and receives of the process group, on its own stream.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any, NamedTuple

from gemmlab.core.packages import TORCH
from gemmlab.distributed import pulling, replays, symmetric
from gemmlab.distributed.pulling import Arrival
from gemmlab.distributed.symmetric import Piece, Pieces, Place
from gemmlab.errors import (
    CompileError,
    GemmlabError,
    MissingDependencyError,
    PeerError,
    TierError,
)
from gemmlab.linalg import entry
from gemmlab.linalg.api import pack
from gemmlab.linalg.planning import tiers, times

with TORCH.importing():
    import torch
    import torch.distributed as dist
    from torch import Tensor

Span = tuple[int, int]  # first and end, along an axis

_LONG = 2**39  # multiplications that take a GPU so long that the host's time does not matter


class Event(NamedTuple):
    """What a process did, in seconds: "multiply", "copy" (on the side stream) or "wait"."""

    what: str
    start: float
    end: float


class Recorder:
    """The time line of one product of this process. Recording changes nothing of it.

    On the host, times are of the machine's clock; on a GPU, since the first event.
    """

    def __init__(self, is_gpu: bool) -> None:
        self._is_gpu, self._marks = is_gpu, list[tuple[str, Any, Any]]()

    def mark(self) -> Any:
        if not self._is_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()  # on the current stream
        return event

    def add(self, what: str, start: Any) -> None:
        self._marks.append((what, start, self.mark()))

    def events(self) -> list[Event]:
        """Return the events, after the GPU's work."""
        if not self._is_gpu:
            return [Event(*mark) for mark in self._marks]
        torch.cuda.synchronize()
        origin: Any = self._marks[0][1] if self._marks else None
        return [
            Event(what, *(origin.elapsed_time(mark) / 1e3 for mark in marks))
            for what, *marks in self._marks
        ]


_recorder: Recorder | None = None


@contextmanager
def recording(is_gpu: bool) -> Iterator[Recorder]:
    """Record what products of this process do within the context."""
    global _recorder
    _recorder = Recorder(is_gpu)
    try:
        yield _recorder
    finally:
        _recorder = None


@contextmanager
def recorded(what: str) -> Iterator[None]:
    start = None if _recorder is None else _recorder.mark()
    yield
    if _recorder is not None:
        _recorder.add(what, start)


@contextmanager
def communicating(what: str) -> Iterator[None]:
    """Turn an error of a process group into PeerError."""
    try:
        yield
    except GemmlabError:
        raise
    except RuntimeError as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise PeerError(
            f"{what} failed: another process of the mesh ended or does not answer ({lines[0]})"
        ) from error


def spans(length: int, count: int) -> list[Span]:
    """Cut an axis as Shard does: shards of one size, the last ones smaller or empty."""
    size = -(-length // count) if length else 0
    return [(min(i * size, length), min((i + 1) * size, length)) for i in range(count)]


def _pieces(span: Span, count: int) -> list[Span]:
    """Cut the shard of a process into pieces; the same number for every process."""
    first, end = span
    return [(first + i, first + j) for i, j in spans(end - first, count)]


def _slice(x: Tensor, axis: int, span: Span) -> Tensor:
    return x.narrow(axis, span[0], span[1] - span[0])


def gathered_product(
    a: Tensor,
    b: Tensor,
    what: str,
    axis: str,
    length: int,
    count: int,
    group: Any,
    options: dict[str, Any],
    out: Tensor | None = None,
    parts: bool = False,
    turned: bool = False,
) -> Tensor:
    """Multiply, where operand `what` is one shard of an axis of `length`, gathered in pieces.

    The axis is "m", "n" or "k"; `count` pieces per process. With `parts`, these are packed by their
    owner, if the GPUs can. If `turned`, the shard is one of the depth instead, and shards are
    exchanged for those of the axis before they are gathered. Returns a's product with b.
    """
    position = ({"m": -2, "k": -1} if what == "a" else {"k": -2, "n": -1})[axis]
    rows = length if axis == "m" else a.shape[-2]
    columns = length if axis == "n" else b.shape[-1]
    if out is None:
        stack = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = a.new_empty(*stack, rows, columns)
    depth = b.shape[-2] if what == "a" else a.shape[-1]
    if not (length if axis == "k" else depth):
        return out.zero_()
    pulls = a.is_cuda and symmetric.shares_memory(group, a.get_device())
    choice = None
    if parts and pulls and a.dim() == b.dim() == 2:
        sizes = {"m": rows, "n": columns, "k": depth}
        sizes[axis] = -(-length // (count * dist.get_world_size(group)))
        choice = _choice(*sizes.values(), a.get_device(), options["precision"])
    gather = _Gather(what, axis, length, count, position, choice, depth if turned else 0)
    work = partial(gather.multiply, a, b, out, group, options)
    if pulls and _recorder is None:
        key: Any = None
        if rows * columns * depth < _LONG:
            addresses = tuple((x.data_ptr(), x.shape, x.stride()) for x in (a, b, out))
            key = gather.form, addresses, tuple(options.values())
        replays.run(symmetric.shared(group, a.device), key, work)
    else:
        work(())
    return out


def _on(stream: Any) -> Any:
    return nullcontext() if stream is None else torch.cuda.stream(stream)


class _Gather(NamedTuple):
    """One operand, `what`, is gathered along an axis; see `gathered_product`."""

    what: str
    axis: str
    length: int
    pieces: int  # of each process
    position: int  # of the axis in the operand
    choice: tiers.Choice | None  # of precision, if packed parts travel
    depth: int  # if shards are those of the depth: its length; else 0

    @property
    def form(self) -> tuple[Any, ...]:
        return *self._replace(choice=None), self.choice and self.choice.fallback

    def multiply(
        self,
        a: Tensor,
        b: Tensor,
        out: Tensor,
        group: Any,
        options: dict[str, Any],
        beside: Sequence[Any],
    ) -> None:
        """Gather and multiply the pieces on the current stream and those `beside` it, in turn.

        A product starts while the last blocks of the one before end. Sums need their order.
        """
        is_a, axis, choice = self.what == "a", self.axis, self.choice
        shard, common = (a, b) if is_a else (b, a)
        side, other = ("left", "right") if is_a else ("right", "left")
        given = self.position, self.length, self.pieces, group, side, choice, self.depth
        pieces = gathered(shard, *given)
        # What the pieces are multiplied with: parts of the other operand along the depth, or all.
        others: list[Any] = [common]
        if axis == "k":
            others = [_slice(common, -2 if is_a else -1, span) for span, *_ in pieces]
        packed = None
        if choice is not None:
            packed = others = pulling.packed_once(others, group, other, choice)
        if axis == "k":
            beside = ()
        streams = [None, *beside]
        for stream in beside:
            stream.wait_stream(torch.cuda.current_stream())
        is_first = True
        for number, ((first, end), wait, piece) in enumerate(pieces):
            partner = others[number % len(others)]
            left, right = (piece, partner) if is_a else (partner, piece)
            into, added = out, {}
            if axis != "k":
                into = _slice(out, -2 if axis == "m" else -1, (first, end))
            elif not is_first:
                added = {"c": out, "beta": 1}
            with _on(streams[number % len(streams)]):
                arrive(wait)
                if first == end:
                    continue
                with recorded("multiply"):
                    entry.product(left, right, out=into, **added, **options)
            is_first = False
        for stream in beside:
            torch.cuda.current_stream().wait_stream(stream)
        for one in packed or ():
            if not isinstance(one, Tensor):
                one.forget()


@lru_cache(1024)
def _choice(m: int, n: int, k: int, device: int, precision: str | None) -> tiers.Choice | None:
    """The precision of a piece's product if it multiplies packed parts of 4 bytes per element.

    Unless another one is asked for: parts travel because that is predicted to be faster.
    """
    if 0 in (m, n, k) or not _packs(device):
        return None
    capability = torch.cuda.get_device_capability(device)
    packed = (times.FASTEST, times.FASTEST) if precision is None else (None, None)
    case = times.Case(m, n, k, capability=capability, packed=packed)
    choice = tiers.choose(precision, case)
    return choice if choice.tier == times.FASTEST else None


@lru_cache(8)
def _packs(device: int) -> bool:
    """Whether kernels that pack are there."""
    try:
        pack(torch.ones(64, 64, device=f"cuda:{device}"), side="right")
    except (TierError, CompileError, MissingDependencyError):
        return False
    return True


def scattered_product(
    a: Tensor, b: Tensor, axis: str, count: int, group: Any, options: dict[str, Any]
) -> Tensor:
    """Multiply, and reduce-scatter the result along its rows ("m") or columns ("n") in pieces."""
    size, me = dist.get_world_size(group), dist.get_rank(group)
    position = -2 if axis == "m" else -1
    stack = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*stack, a.shape[-2], b.shape[-1])
    cuts, pieces = _scattered(shape, position, count, size, me)
    outbox: pulling.Outbox | _Outbox
    if a.is_cuda and symmetric.shares_memory(group, a.get_device()):
        outbox = pulling.Outbox(pieces, group, a.device, recorded)
    else:
        outbox = _Outbox(pieces, group, a)

    def product(span: Span, out: Tensor | None, added: Tensor | None = None) -> Tensor:
        given = options if added is None else {**options, "c": added, "beta": 1}
        left, right = (_slice(a, -2, span), b) if axis == "m" else (a, _slice(b, -1, span))
        with recorded("multiply"):
            return torch.as_tensor(entry.product(left, right, out=out, **given))

    terms: list[list[tuple[Tensor, Callable[[], object]]]] = [[] for _ in range(count)]  # of mine
    for source, number in pieces.order:
        j, to = number % count, (2 * me - source) % size
        block = product(cuts[to][j], outbox.target(to * count + j))
        with communicating("a reduce-scatter in pieces"):
            terms[j].append(outbox.swap(block, (source, number)))

    def arrived(term: Tensor, wait: Callable[[], object]) -> Tensor:
        with recorded("wait"), communicating("a reduce-scatter in pieces"):
            wait()
        return term

    found = []
    for span, (*first, last) in zip(cuts[me], terms, strict=True):
        total = product(span, None, arrived(*first[0]) if first else None)
        for each in (*first[1:], last):
            total = total.add_(arrived(*each))
        found.append(total)
    return found[0] if count == 1 else torch.cat(found, position)


@lru_cache(1024)
def _scattered(
    shape: tuple[int, ...], axis: int, count: int, size: int, me: int
) -> tuple[list[list[Span]], Pieces]:
    """The spans of an axis of a result, by the process that gets them and piece; and the pieces
    that each process computes for the others."""
    axis %= len(shape)
    cuts = [_pieces(span, count) for span in spans(shape[axis], size)]
    lengths = [[j - i for i, j in mine] for mine in cuts]
    shapes = tuple(
        tuple(
            (*shape[:axis], length if to != rank else 0, *shape[axis + 1 :])
            for to in range(size)
            for length in lengths[to]
        )
        for rank in range(size)
    )
    steps = itertools.product(range(1, size), range(count))
    return cuts, Pieces(me, shapes, tuple(((me - i) % size, me * count + j) for i, j in steps))


class _Outbox:
    """Blocks that are sent to the processes that add them."""

    def __init__(self, pieces: Pieces, group: Any, like: Tensor) -> None:
        self._pieces, self._group, self._like = pieces, group, like
        self._sent: list[Tensor] = []

    def target(self, _: int) -> None:
        """Nowhere in particular."""

    def swap(self, block: Tensor, place: Place) -> tuple[Tensor, Callable[[], object]]:
        """Start to send a block and to receive one; return it and what waits for it."""
        term = self._like.new_empty(self._pieces.shape(place))
        to = (2 * self._pieces.me - place[0]) % len(self._pieces.shapes)
        works = _exchange([(block, to)], [(term, place[0])], self._group)
        self._sent.append(block)  # it lives until it has left

        def wait() -> None:
            for work in works:
                work.wait()

        return term, wait


def _exchange(
    sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]], group: Any
) -> list[Any]:
    """Start sends to and receives from processes of a group, but none that are empty."""
    operations = [
        dist.P2POp(start, x, group=group, group_peer=peer)
        for start, listed in ((dist.isend, sends), (dist.irecv, receives))
        for x, peer in listed
        if x.numel()
    ]
    return list(dist.batch_isend_irecv(operations)) if operations else []


def gathered(
    shard: Tensor,
    axis: int,
    length: int,
    count: int,
    group: Any,
    side: str = "",
    choice: tiers.Choice | None = None,
    depth: int = 0,
) -> list[tuple[Span, Callable[[], object], Piece]]:
    """Start to gather shards. Returns the pieces of all, mine first, with what `arrive` takes.

    With a `choice`, they are packed for a `side` of a product. Some are empty; `arrive` for these
    still reports that mine have been sent. With a `depth`, the shards are those of the other axis,
    which has that length.
    """
    size, me = dist.get_world_size(group), dist.get_rank(group)
    axis %= shard.dim()
    shape = list(shard.shape)
    if depth:
        other = 2 * shard.dim() - 3 - axis
        shape[other] = depth
    cuts, pieces = _exchanged(tuple(shape), axis, length, count, size, me)
    pulls = shard.is_cuda and symmetric.shares_memory(group, shard.get_device())
    mine: list[Tensor] | pulling.Turn
    with communicating("an all-gather in pieces"):
        if depth:
            blocks = {
                (rank, j): _slice(shard, axis, span)
                for rank, spans_ in enumerate(cuts)
                for j, span in enumerate(spans_)
            }
            parts = spans(depth, size)
            turn = pulling.Turn(shard, other, parts[me][0], blocks)
            mine = turn if pulls else _turned(turn, parts, count, group)
        else:
            first = cuts[me][0][0]
            mine = [_slice(shard, axis, (i - first, j - first)).contiguous() for i, j in cuts[me]]
        if pulls:
            arrivals = pulling.pull(mine, pieces, group, recorded, side, choice)
        else:
            assert not isinstance(mine, pulling.Turn)
            arrivals = _post(mine, pieces, group)
    return [(cuts[source][j], wait, piece) for (source, j), wait, piece in arrivals]


def arrive(wait: Callable[[], object]) -> None:
    """Let the current stream, or the host, wait for a piece."""
    if wait is not pulling.nothing:
        with recorded("wait"), communicating("an all-gather in pieces"):
            wait()


def _turned(turn: pulling.Turn, parts: Sequence[Span], count: int, group: Any) -> list[Tensor]:
    """Exchange shards of the depth for my pieces of another axis, which have the whole depth."""
    size, me, axis = dist.get_world_size(group), dist.get_rank(group), turn.axis
    found = list[Tensor]()
    for j in range(count):
        shape = list(turn.blocks[me, j].shape)
        blocks = [
            turn.shard.new_empty(*shape[:axis], end - first, *shape[axis + 1 :])
            for first, end in parts
        ]
        blocks[me] = turn.blocks[me, j]
        others = [rank for rank in range(size) if rank != me]
        sends = [(turn.blocks[rank, j].contiguous(), rank) for rank in others]
        for work in _exchange(sends, [(blocks[rank], rank) for rank in others], group):
            work.wait()
        found.append(torch.cat(blocks, axis))
    return found


@lru_cache(1024)
def _exchanged(
    shape: tuple[int, ...], axis: int, length: int, count: int, size: int, me: int
) -> tuple[list[list[Span]], Pieces]:
    """The spans of an axis that is gathered, by process and piece, and the pieces."""
    cuts = [_pieces(span, count) for span in spans(length, size)]
    axis %= len(shape)
    shapes = tuple(
        tuple((*shape[:axis], j - i, *shape[axis + 1 :]) for i, j in mine) for mine in cuts
    )
    order = itertools.product(range(count), range(1, size))
    return cuts, Pieces(me, shapes, tuple(((me + step) % size, j) for j, step in order))


def _post(mine: Sequence[Tensor], pieces: Pieces, group: Any) -> list[Arrival]:
    """Start to send my pieces to the processes before me and to receive those of the next ones."""
    size, me = dist.get_world_size(group), dist.get_rank(group)
    found: list[Arrival] = [((me, j), pulling.nothing, x) for j, x in enumerate(mine)]
    for source, j in pieces.order:
        to, piece = (2 * me - source) % size, mine[0].new_empty(pieces.shape((source, j)))
        works = _exchange([(mine[j], to)], [(piece, source)], group)

        def wait(works: list[Any] = works) -> None:
            for work in works:
                work.wait()

        found.append(((source, j), wait, piece))
    return found
