"""Pieces copied out of symmetric memory, of which threads play the GPUs: places, halves, order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.distributed import _symmetric_memory as torch_symmetric  # noqa: E402

from gemmlab.distributed import overlap, pulling, symmetric  # noqa: E402
from gemmlab.linalg.planning.plan import STATUS_BYTES  # noqa: E402

SIZE = 3


class World:
    """Symmetric memory of threads. Process 0 is slow to copy."""

    def __init__(self) -> None:
        self.memory: dict[tuple[int, int], Any] = {}  # by generation and process
        self.barrier = threading.Barrier(SIZE)
        self.passed = 0  # barriers, by process 0

    def rendezvous(self, tensor: Any, group: Any) -> Any:
        group.generation += 1
        self.memory[group.generation, group.rank] = tensor
        self.barrier.wait(5)
        return Memory(self, group.rank, group.generation)


class Memory:
    def __init__(self, world: World, rank: int, generation: int) -> None:
        self.world, self.rank, self.generation = world, rank, generation

    def get_buffer(self, rank: int, shape: tuple[int, ...], dtype: Any, start: int) -> Any:
        whole = self.world.memory[self.generation, rank].view(dtype)
        return whole[start : start + torch.Size(shape).numel()].view(shape)

    def barrier(self, channel: int, timeout_ms: int) -> None:
        assert (channel, timeout_ms) == (0, 7000)
        self.world.barrier.wait(5)
        if self.rank == 0:
            self.world.passed += 1
            time.sleep(0.01)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, world: World) -> Callable[[Callable[[Any], None]], None]:
    """Return what runs a function as each process, given its group."""
    event = SimpleNamespace(record=lambda *_: None)
    stream = SimpleNamespace(
        wait_stream=lambda _: None,
        wait_event=lambda _: None,
        record_event=lambda: event,
        cuda_stream=11,
    )
    monkeypatch.setattr(torch.cuda, "Stream", lambda *_, **__: stream)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch_symmetric, "empty", torch.empty)
    monkeypatch.setattr(torch_symmetric, "rendezvous", world.rendezvous)
    options = SimpleNamespace(_timeout=timedelta(seconds=7))

    def runs(work: Callable[[Any], None]) -> None:
        groups = [
            SimpleNamespace(
                rank=rank,
                generation=0,
                group_name=f"{id(world)} {rank}",
                _get_backend=lambda _: SimpleNamespace(options=options),
            )
            for rank in range(SIZE)
        ]
        with ThreadPoolExecutor(SIZE) as pool:
            list(pool.map(work, groups))

    return runs


class Parts:
    """Stands in for a packed matrix: its parts are the bytes of the float32 array."""

    def __init__(
        self, x: Any, side: str, choice: Any, stream: int, memory: Any, arrives: bool = False
    ) -> None:
        assert (side, choice, stream) == ("right", CHOICE, 11)
        self.array, self.memory = x, memory
        if not arrives:
            self.fill(x, stream)

    def fill(self, x: Any, _: int, is_clear: bool = True) -> None:
        assert is_clear and not self.memory[:STATUS_BYTES].any()
        self.array = x
        self.memory.copy_(x.reshape(-1).view(torch.uint8))

    @property
    def unpacked(self) -> Any:
        assert torch.equal(self.array, self.memory.view(torch.float32).view(self.array.shape))
        return self.array


CHOICE: Any = object()


@pytest.mark.parametrize("choice", [None, CHOICE], ids=["float32", "parts"])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_process_gets_every_piece(
    run: Any, axis: int, choice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symmetric, "_matrix", Parts)
    monkeypatch.setattr(symmetric, "_parts_size", lambda shape, *_: 4 * torch.Size(shape).numel())

    def work(group: Any) -> None:
        # The second length needs more memory; then both come in turn.
        for turn, (length, count) in enumerate([(7, 2), (7, 2), (40, 1), (7, 2), (40, 1), (7, 2)]):
            shape = (length, 5) if axis == 0 else (5, length)
            whole = torch.arange(5.0 * length).view(shape) + 1000 * turn
            spans = overlap.spans(length, SIZE)[group.rank]
            shard = whole.narrow(axis, spans[0], spans[1] - spans[0])
            cuts, pieces = overlap._exchanged(shard.shape, axis, length, count, SIZE, group.rank)
            mine = [
                shard.narrow(axis, i - spans[0], j - i).contiguous() for i, j in cuts[group.rank]
            ]
            options = pieces, group, lambda _: nullcontext(), "right", choice
            check_pieces(pulling.pull(mine, *options), whole, axis, cuts, group.rank)

    run(work)


def check_pieces(arrivals: Any, whole: Any, axis: int, cuts: Any, me: int) -> None:
    """My pieces come first, then those of the next processes, but for empty ones."""
    seen = []
    for (rank, j), wait, piece in arrivals:
        wait()
        first, end = cuts[rank][j]
        found = piece.unpacked if isinstance(piece, Parts) else piece
        assert torch.equal(found, whole.narrow(axis, first, end - first)), (me, rank, j)
        seen.append((rank, j))
    count = len(cuts[me])
    full = [(me, j) for j in range(count)]
    full += [((me + step) % SIZE, j) for j in range(count) for step in range(1, SIZE)]
    assert seen == [(r, j) for r, j in full if r == me or cuts[r][j][0] < cuts[r][j][1]]


@pytest.mark.parametrize("choice", [None, CHOICE], ids=["float32", "parts"])
@pytest.mark.parametrize("axis", [0, 1])
def test_shards_of_the_depth_become_pieces_of_the_whole_depth(
    run: Any, axis: int, choice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symmetric, "_matrix", Parts)
    monkeypatch.setattr(symmetric, "_parts_size", lambda shape, *_: 4 * torch.Size(shape).numel())

    def work(group: Any) -> None:
        me = group.rank
        # Of a depth of 4, the last process has nothing; of an axis of 4 as well.
        for turn, (length, depth, count) in enumerate(
            [(7, 5, 2), (7, 5, 2), (40, 7, 1), (4, 4, 2), (40, 7, 1), (7, 5, 2)]
        ):
            shape = (length, depth) if axis == 0 else (depth, length)
            whole = torch.arange(1.0 * length * depth).view(shape) + 1000 * turn
            first, end = overlap.spans(depth, SIZE)[me]
            shard = whole.narrow(1 - axis, first, end - first)
            cuts, pieces = overlap._exchanged(shape, axis, length, count, SIZE, me)
            blocks = {
                (rank, j): shard.narrow(axis, i, k - i)
                for rank, spans in enumerate(cuts)
                for j, (i, k) in enumerate(spans)
            }
            given = pulling.Turn(shard, 1 - axis, first, blocks)
            options = pieces, group, lambda _: nullcontext(), "right", choice
            check_pieces(pulling.pull(given, *options), whole, axis, cuts, me)

    run(work)


@pytest.mark.parametrize("axis", [0, 1])
def test_every_process_gets_its_blocks_of_a_result(run: Any, axis: int) -> None:
    def term(turn: int, rank: int, to: int, j: int) -> float:
        return 1000 * turn + 100 * rank + 10 * to + j

    def work(group: Any) -> None:
        me = group.rank
        # The third length needs more memory, and shards of 4 leave the last process none.
        for turn, (length, count) in enumerate([(7, 2), (7, 1), (40, 2), (7, 2), (4, 3), (7, 2)]):
            shape = (length, 5) if axis == 0 else (5, length)
            cuts, pieces = overlap._scattered(shape, axis, count, SIZE, me)
            outbox = pulling.Outbox(pieces, group, torch.device("cpu"), lambda _: nullcontext())
            found = {}
            for source, number in pieces.order:
                j, to = number % count, (2 * me - source) % SIZE
                block = outbox.target(to * count + j).fill_(term(turn, me, to, j))
                first, end = cuts[to][j]
                assert block.shape[axis] == end - first
                found[source, j], wait = outbox.swap(block, (source, number))
                wait()
            assert len(found) == (SIZE - 1) * count
            for (source, j), x in found.items():
                first, end = cuts[me][j]
                assert x.shape == ((end - first, 5) if axis == 0 else (5, end - first))
                assert (x == term(turn, source, me, j)).all(), (turn, source, j)

    run(work)


class Stream:
    """What comes before the next work on a stream: barriers of its process, counted."""

    cuda_stream = 11
    current = threading.local()

    def __init__(self, *_: Any, **__: Any) -> None:
        self.passed = 0

    def wait_stream(self, other: Any) -> None:
        self.passed = max(self.passed, other.passed)

    wait_event = wait_stream

    def record_event(self) -> Any:
        return SimpleNamespace(passed=self.passed)

    @staticmethod
    @contextmanager
    def use(stream: Stream) -> Iterator[None]:
        before, Stream.current.stream = Stream.current.stream, stream
        yield
        Stream.current.stream = before


@pytest.mark.parametrize(
    ("count", "turned", "own"), [(2, False, [1, 1]), (1, True, [2]), (2, True, [1, 3])]
)
def test_a_product_starts_after_the_barrier_of_what_it_leaves_behind(
    run: Any, count: int, turned: bool, own: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else that barrier waits until the product has ended, on all processes."""
    monkeypatch.setattr(symmetric, "_matrix", Parts)
    monkeypatch.setattr(symmetric, "_parts_size", lambda shape, *_: 4 * torch.Size(shape).numel())
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream.current.stream)
    monkeypatch.setattr(torch.cuda, "stream", Stream.use)
    barrier = Memory.barrier

    def counted(self: Memory, channel: int, timeout_ms: int) -> None:
        barrier(self, channel, timeout_ms)
        Stream.current.stream.passed += 1

    monkeypatch.setattr(Memory, "barrier", counted)

    def work(group: Any) -> None:
        me, main = group.rank, Stream()
        Stream.current.stream = main
        whole = torch.arange(72.0).view(6, 12)
        cuts, pieces = overlap._exchanged((6, 12), 1, 12, count, SIZE, me)
        given: Any = [whole[:, i:j].contiguous() for i, j in cuts[me]]
        if turned:
            shard = whole[2 * me : 2 * me + 2]
            blocks = {
                (r, n): shard[:, i:j] for r in range(SIZE) for n, (i, j) in enumerate(cuts[r])
            }
            given = pulling.Turn(shard, 0, 2 * me, blocks)
        found = []
        arrivals = pulling.pull(given, pieces, group, lambda _: nullcontext(), "right", CHOICE)
        for _, wait, _ in arrivals:
            wait()
            found.append(main.passed)
        assert found[:count] == own
        assert found[count:] == sorted(found[count:]) and found[-1] == max(own)

    run(work)


def test_a_half_that_a_graph_uses_again_is_written_after_a_barrier(
    run: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pieces = overlap._scattered((6, 5), 0, 1, SIZE, 0)
    passed = []

    def work(group: Any) -> None:
        mine = [torch.ones(2, 5)]
        _, exchanged = overlap._exchanged((2, 5), 0, 6, 1, SIZE, group.rank)
        pulling.pull(mine, exchanged, group, lambda _: nullcontext())
        pulling.Outbox(pieces._replace(me=group.rank), group, mine[0].device, nullcontext)
        if group.rank == 0:
            passed.append(world.passed)

    run(work)  # an exchange in turn passes one barrier, and a result none before its blocks
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run(work)
    assert passed == [1, 4]


def test_products_on_two_streams_run_one_after_the_other(run: Any) -> None:
    waits = []

    def stream(name: str) -> Any:
        return SimpleNamespace(wait_stream=lambda other: waits.append((name, other)))

    def work(group: Any) -> None:
        memory, one, other = symmetric.shared(group, torch.device("cpu")), stream("1"), stream("2")
        for current in (one, one, other, one):
            memory.enter(current)
        if group.rank == 0:
            assert [name for name, of in waits if of in (one, other)] == ["2", "1"]

    run(work)


def test_the_state_tells_the_half_and_whether_places_are_the_same(run: Any) -> None:
    def work(group: Any) -> None:
        memory = symmetric.shared(group, torch.device("cpu"))
        states = []
        for rows in (6, 6, 6, 60, 6):
            shape = (rows // SIZE, 5)
            _, pieces = overlap._exchanged(shape, 0, rows, 1, SIZE, group.rank)
            pulling.pull([torch.ones(shape)], pieces, group, lambda _: nullcontext())
            states.append(memory.state)
        first, second, again, grown, after = states
        assert first != second and first == again
        assert len({first, second, grown, after}) == 4  # places of the larger memory are new

    run(work)
