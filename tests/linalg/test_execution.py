"""Ownership of memory, with a driver that does nothing."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import fake_driver
import pytest

from gemmlab.linalg import execution
from gemmlab.linalg.execution import Gpu, TensorCoreRun
from gemmlab.linalg.planning.plan import PlannedLaunch
from gemmlab.linalg.planning.program import Factor, Job, WorkspaceAddresses
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.runtime import graph
from gemmlab.linalg.shapes import Stack

BY_DEFAULT = Choice("fp16x3", "", "bf16x6")


class Node:
    """A launch that does nothing."""

    def __init__(self, launch: PlannedLaunch) -> None: ...

    def move(self, addresses: Any) -> None: ...

    def launch(self, stream: int) -> None: ...


class Driver:
    """Records the calls that runs make to the driver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recording = False
        self.compiled: list[str] = []
        self.memories: list[WorkspaceAddresses] = []  # one per launch, in order
        driver = self

        class Graph:
            def __init__(self, launches: Any) -> None:
                self.reports, self.addresses = driver.memories[-1], None

            def move(self, addresses: Any) -> None:
                self.addresses = addresses

            def replay(self, stream: int) -> None:
                assert self.addresses is not None
                driver.launched.append(self.reports)

        self.launched: list[WorkspaceAddresses] = []
        of_job = Job.launches

        def launches(job: Job, memory: WorkspaceAddresses, sms: int) -> Any:
            self.memories.append(memory)
            return of_job(job, memory, sms)

        monkeypatch.setattr(Job, "launches", launches)
        monkeypatch.setattr(execution, "Graph", Graph)
        monkeypatch.setattr(graph, "artifact", lambda *code: self.compiled.append(code[0]))
        monkeypatch.setattr(execution, "Node", Node)
        monkeypatch.setattr(execution, "call", lambda function, *args: 0)
        monkeypatch.setattr(execution, "gpu", lambda device: Gpu("fake", (9, 0), 132))
        monkeypatch.setattr(execution, "_primary_context", lambda device: 0)
        monkeypatch.setattr(execution, "_is_recording", lambda stream: self.recording)
        monkeypatch.setattr(execution, "relaxed", contextlib.nullcontext)
        monkeypatch.setattr(execution, "_workspaces", {})
        monkeypatch.setattr(execution, "_recorded", [])
        execution._recorded_reports.cache_clear()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def run_of(size: int, stream: int = 7) -> TensorCoreRun:
    stack = Stack(size, size, size, 1)
    factors = (Factor(name, stack.operand(), "fp16x3", "bf16x6") for name in "ab")
    job = Job(*factors, stack, BY_DEFAULT)
    return TensorCoreRun(job, fake_driver.Framework(), 0, stream)


def test_kernels_are_compiled_before_anything_runs(driver: Driver) -> None:
    run_of(100)
    assert set(driver.compiled) == {
        "pack_k_major",
        "multiply_packed",
        "repack",
        "repair_non_finite",
    }
    assert not driver.launched


@pytest.mark.parametrize(("size", "totals"), [(100, False), (1100, True)])
def test_every_recorded_product_has_memory_of_its_own(
    driver: Driver, size: int, totals: bool
) -> None:
    run = run_of(size)
    run.enqueue((1, 2, 3))
    driver.recording = True
    run.enqueue((1, 2, 3))
    run.enqueue((1, 2, 3))
    driver.recording = False
    run.enqueue((1, 2, 3))
    _, eager, first, second = driver.memories  # the first plan of all is compiled alone
    assert len({eager.report, first.report, second.report}) == 3
    assert len({eager.left, first.left, second.left}) == 3
    assert driver.launched == [eager, eager]
    kept = {at for space in execution._recorded for _, at, _ in space._arrays.values()}
    # Reports are the driver's memory: the allocator of a graph wants back what it gave.
    parts = [memory.__class__(**vars(memory) | {"report": 0}) for memory in (first, second)]
    assert kept == {x for memory in parts for x in vars(memory).values() if x}
    assert all((memory.totals != 0) == totals for memory in (eager, first, second))


def test_a_graph_is_made_again_where_memory_moved(driver: Driver) -> None:
    small, large = run_of(100), run_of(300)
    for run in (small, large, small, small):
        run.enqueue((1, 2, 3))
    first, grown, again, same = driver.launched
    assert first.left != grown.left == again.left and again is same


@pytest.mark.parametrize(("stream", "shared"), [(7, True), (execution.PER_THREAD, False)])
def test_threads_share_a_workspace_where_they_share_a_stream(
    driver: Driver, stream: int, shared: bool
) -> None:
    framework, found = fake_driver.Framework(), []

    def look() -> None:
        found.append(execution.workspace(framework, 0, stream))

    look()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert (found[0] is found[1]) == shared


def test_a_workspace_grows_for_one_thread_at_a_time(driver: Driver) -> None:
    run, went_on = run_of(100), threading.Event()
    with execution.workspace(fake_driver.Framework(), 0, 7).lock:
        thread = threading.Thread(target=lambda: (run.enqueue((1, 2, 3)), went_on.set()))
        thread.start()
        assert not went_on.wait(0.05)
    thread.join()
    assert went_on.is_set()
