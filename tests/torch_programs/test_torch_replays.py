"""Products that come again are replayed: when, with what, and what ends a graph's use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmlab.distributed import replays  # noqa: E402

STREAM = SimpleNamespace(device=0, cuda_stream=7, wait_stream=lambda _: None)


class Memory:
    """Symmetric memory of which the halves are used in turn."""

    def __init__(self) -> None:
        self.half, self.version, self.done = 0, 0, list[str]()

    @property
    def state(self) -> tuple[int, ...]:
        return self.version, self.half

    def enter(self, current: Any) -> None:
        assert current is STREAM

    def skip(self) -> None:
        self.half = 1 - self.half

    @contextmanager
    def capturing(self) -> Iterator[None]:
        yield


class Place:
    """Streams for graphs, and the version of the memory of their products."""

    def __init__(self) -> None:
        self.aside, self.beside, self.pool, self.version = STREAM, (STREAM,), "pool", 0
        self.products = STREAM, STREAM


class Graph:
    """A CUDA graph that says so when it is replayed. Those of `failing` memory raise."""

    memory: Memory

    def capture_begin(self, pool: str, capture_error_mode: str) -> None:
        assert (pool, capture_error_mode) == ("pool", "thread_local")

    def capture_end(self) -> None:
        self.half = self.memory.half

    def replay(self) -> None:
        assert self.half == self.memory.half
        self.memory.done.append(f"replay {self.half}")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    found = Memory()
    monkeypatch.setattr(Graph, "memory", found, raising=False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: STREAM)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(replays, "_place", lambda *_: Place())
    monkeypatch.setattr(replays, "_known", {})
    return found


def product(memory: Memory, name: str = "call") -> Callable[[Any], None]:
    def work(beside: Any) -> None:
        memory.skip()
        memory.done.append(f"{name} {memory.half}{' alone' * (not beside)}")

    return work


def run(memory: Any, key: Any, times: int, name: str = "call") -> list[str]:
    memory.done.clear()
    for _ in range(times):
        replays.run(memory, key, product(memory, name))
    return list(memory.done)


def test_a_product_has_a_graph_for_each_half(memory: Memory) -> None:
    assert run(memory, "x", 6) == ["call 1", "call 0"] * 3
    # Work that is captured is not done yet: its graph is replayed at once.
    assert run(memory, "x", 2) == ["call 1", "replay 1", "call 0", "replay 0"]
    assert run(memory, "x", 3) == ["replay 1", "replay 0", "replay 1"]
    assert run(memory, "y", 1) == ["call 0"]
    assert run(memory, "x", 2) == ["replay 1", "replay 0"]


def test_graphs_end_with_the_memory_they_use(memory: Memory) -> None:
    run(memory, "x", 8)
    memory.version += 1
    assert run(memory, "x", 2) == ["call 1", "call 0"]


def test_the_least_recent_ones_are_forgotten(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "_MOST", 2)
    run(memory, "x", 8)
    run(memory, "y", 2)
    assert len(replays._known) == 2
    assert run(memory, "x", 1) == ["call 1"]


def test_what_cannot_be_captured_is_done_as_before(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Graph) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Graph, "capture_end", fails)
    run(memory, "x", 6)
    failed = ["call 1", "call 1", "call 0", "call 0"]
    assert run(memory, "x", 2) == failed
    assert run(memory, "x", 3) == ["call 1", "call 0", "call 1"]


def test_a_graph_of_the_program_records_the_work(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(memory, "x", 8)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert run(memory, "x", 2) == ["call 1", "call 0"]


def test_work_without_a_key_is_done_each_time(memory: Memory) -> None:
    assert run(memory, None, 9) == [f"call {(i + 1) % 2}" for i in range(9)]
