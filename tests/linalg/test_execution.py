"""Ownership of memory, with a driver that does nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import fake_driver
import pytest
from cuda import bindings, pathfinder
from cuda.bindings import driver as cu

from gemmlab.errors import DeviceError, MissingDependencyError
from gemmlab.linalg import cublas
from gemmlab.linalg.planning import kinds
from gemmlab.linalg.planning.launch import Code, WorkspaceAddresses
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.planning.times import DIRECT
from gemmlab.linalg.runtime import gpus, graph, products, workspaces
from gemmlab.linalg.runtime.driver import call, results
from gemmlab.linalg.runtime.gpus import Gpu
from gemmlab.linalg.runtime.products import TensorCoreRun
from gemmlab.linalg.runtime.workspaces import PER_THREAD, Workspace, workspace
from gemmlab.linalg.shapes import Stack

BY_DEFAULT = Choice("fp16x3", "", "bf16x6")


class Driver:
    """Records the calls that runs make to the driver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recording, self.has_kernels = False, True
        self.compiled: list[str] = []
        self.memories: list[WorkspaceAddresses] = []  # one per plan, in order
        self.launched: list[WorkspaceAddresses] = []  # one per product
        self.graphs = 0  # number made
        self.allocated = 0  # calls
        self.cleared: list[int] = []  # streams of memsets
        driver = self

        class Launcher:
            """Binds each product to its memory, as a single launch."""

            def __init__(self, _device: int) -> None: ...

            def __bool__(self) -> bool:
                return driver.has_kernels

            def bind(self, _launches: Any) -> list[Any]:
                memory = driver.memories[-1]
                return [SimpleNamespace(launch=lambda *_: driver.launched.append(memory))]

        class Graph:
            def __init__(self, launches: Any) -> None:
                self._launches, self.addresses = launches, None
                driver.graphs += 1

            def move(self, addresses: Any) -> None:
                self.addresses = addresses

            def replay(self, stream: int) -> None:
                assert self.addresses is not None
                for bound in self._launches:
                    bound.launch(stream, self.addresses)

        of_job = Job.launches

        def launches(job: Job, memory: WorkspaceAddresses, sms: int) -> Any:
            self.memories.append(memory)
            return of_job(job, memory, sms)

        def call(function: Any, *args: Any) -> int:
            if function is cu.cuMemAlloc:
                self.allocated += 1
            if function is cu.cuMemsetD8Async:
                self.cleared.append(args[-1])
            return self.allocated << 20

        monkeypatch.setattr(Job, "launches", launches)
        monkeypatch.setattr(kinds, "of", lambda job, sms: None)  # plan in general
        monkeypatch.setattr(products, "Graph", Graph)
        monkeypatch.setattr(products, "prepare", self._prepare)
        monkeypatch.setattr(products, "is_recording", lambda stream: self.recording)
        monkeypatch.setattr(products, "relaxed", contextlib.nullcontext)
        monkeypatch.setattr(workspaces, "relaxed", contextlib.nullcontext)
        monkeypatch.setattr(workspaces, "call", call)
        monkeypatch.setattr(workspaces, "Launcher", Launcher)
        monkeypatch.setattr(workspaces, "_workspaces", {})
        monkeypatch.setattr(workspaces, "_recorded", [])
        monkeypatch.setattr(gpus, "gpu", lambda device: Gpu("fake", (9, 0), 132))
        monkeypatch.setattr(gpus, "current", lambda device: contextlib.nullcontext())
        workspaces.recorded_reports.cache_clear()

    def fail(self, *_: Any) -> None:
        raise DeviceError("cuLaunchKernelEx: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")

    def _prepare(self, codes: Iterable[Code]) -> None:
        self.compiled += [name for name, *_ in codes]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def run_of(
    size: int, stream: int = 7, framework: Any = None, choice: Choice = BY_DEFAULT
) -> TensorCoreRun:
    stack = Stack(size, size, size, 1)
    operand = stack.operand()
    assert operand is not None
    left, right = (Factor(name, operand, "fp16x3", "bf16x6") for name in "ab")
    job = Job(left, right, stack, choice)
    library: Any = framework or fake_driver.Framework()
    return TensorCoreRun(job, library, 0, stream)


def test_kernels_are_compiled_before_anything_runs(driver: Driver) -> None:
    driver.has_kernels = False
    run_of(100)
    assert set(driver.compiled) == {
        "pack_k_major",
        "multiply_packed",
        "repack",
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
    eager, first, second = driver.memories
    assert len({eager.report, first.report, second.report}) == 3
    assert len({eager.left, first.left, second.left}) == 3
    assert driver.launched == [eager, first, second, eager]
    kept = {at for space in workspaces._recorded for _, at, _ in space._arrays.values()}
    # Reports are the driver's memory: the allocator of a graph wants back what it gave.
    parts = [replace(memory, report=0) for memory in (first, second)]
    assert kept == {x for memory in parts for x in astuple(memory) if x}
    assert all((memory.totals != 0) == totals for memory in (eager, first, second))


@pytest.mark.parametrize("choice", [BY_DEFAULT, Choice(DIRECT, "")])
def test_no_node_of_a_recorded_graph_clears_memory(driver: Driver, choice: Choice) -> None:
    """Each would cost as much time as a small product."""
    run = run_of(100, choice=choice)
    run.enqueue((1, 2, 3))
    driver.recording = True
    run.enqueue((1, 2, 3))
    assert 7 not in driver.cleared


def test_counters_of_a_product_that_failed_are_not_used_again(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may not be zero. Those of others are."""
    run, other = run_of(100), run_of(100)
    run.enqueue((1, 2, 3))
    other.enqueue((1, 2, 3))
    with monkeypatch.context() as patch:
        patch.setattr(run, "_launch", driver.fail)
        with pytest.raises(DeviceError):
            run.enqueue((1, 2, 3))
    run.enqueue((1, 2, 3))
    del run
    first, kept, again = driver.launched
    run_of(100).enqueue((1, 2, 3))
    reports = [x.report for x in (first, kept, again, driver.launched[-1])]
    assert len({*reports[:3]}) == 3 and reports[3] == reports[2]


def test_products_that_a_graph_records_in_turn_share_its_memory(driver: Driver) -> None:
    run = run_of(100)
    run.enqueue((1, 2, 3))
    driver.recording = True
    with products.recorded_in_turn((7, 8)):
        run.enqueue((1, 2, 3))
        run.enqueue((1, 2, 3))
    run.enqueue((1, 2, 3))
    eager, first, second, later = driver.memories
    assert replace(first, report=0) == replace(second, report=0)
    assert len({eager.report, first.report, second.report, later.report}) == 4
    assert len({eager.left, first.left, later.left}) == 3


def test_products_that_are_replayed_in_turn_share_the_streams_memory(driver: Driver) -> None:
    run = run_of(100)
    for _ in range(2 * products._LAUNCHED):  # a graph cannot be launched into another
        run.enqueue((1, 2, 3))
    graphs, driver.recording = driver.graphs, True
    with products.in_turn(7):
        run.enqueue((1, 2, 3))
        run.enqueue((1, 2, 3))
    assert len({id(memory) for memory in driver.launched}) == 1 and driver.graphs == graphs
    with products.in_turn(8):  # another stream's
        run.enqueue((1, 2, 3))
    assert len(driver.memories) == 2


def test_only_a_product_that_comes_again_becomes_a_graph(driver: Driver) -> None:
    run = run_of(100)
    for count in range(3 * products._LAUNCHED):
        run.enqueue((1, 2, count))
        assert driver.graphs == (count >= products._LAUNCHED)
        assert len(driver.launched) == count + 1
    assert len(driver.memories) == 1  # planned once


def test_new_shapes_seldom_take_memory(driver: Driver) -> None:
    """Reports go back when a product is dropped, and workspaces grow in steps."""
    framework: Any = fake_driver.Framework()
    for size in range(1, 2048):
        run_of(size, framework=framework).enqueue((1, 2, 3))
    assert driver.allocated == 1 and driver.graphs == 0
    assert len(framework.made) < 250


def test_products_that_are_kept_have_reports_of_their_own(driver: Driver) -> None:
    runs = [run_of(100) for _ in range(600)]
    for run in runs:
        run.enqueue((1, 2, 3))
    assert len({memory.report for memory in driver.launched}) == 600


def test_a_graph_is_made_again_where_memory_moved(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_LAUNCHED", 0)
    small = run_of(100)
    small.enqueue((1, 2, 3))
    run_of(300).enqueue((1, 2, 3))
    for _ in range(2):
        small.enqueue((1, 2, 3))
    first, grown, again, same = driver.launched
    assert first.left != grown.left == again.left and again is same
    assert driver.graphs == 3


@pytest.mark.parametrize(("stream", "shared"), [(7, True), (PER_THREAD, False)])
@pytest.mark.usefixtures("driver")
def test_threads_share_a_workspace_where_they_share_a_stream(stream: int, shared: bool) -> None:
    framework: Any = fake_driver.Framework()
    found: list[Workspace] = []

    def look() -> None:
        found.append(workspace(framework, 0, stream))

    look()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert (found[0] is found[1]) == shared


@pytest.mark.usefixtures("driver")
def test_a_workspace_grows_for_one_thread_at_a_time() -> None:
    run, went_on = run_of(100), threading.Event()
    framework: Any = fake_driver.Framework()

    def enqueue() -> None:
        run.enqueue((1, 2, 3))
        went_on.set()

    with workspace(framework, 0, 7).lock:
        thread = threading.Thread(target=enqueue)
        thread.start()
        assert not went_on.wait(0.05)
    thread.join()
    assert went_on.is_set()


def test_a_driver_without_a_function_is_too_old_for_the_bindings() -> None:
    def cuNew() -> None:
        raise RuntimeError("function cuNew is not found")

    with pytest.raises(
        DeviceError, match=r"cuNew is not found; .* run: pip install 'gemmlab\[cu12"
    ):
        call(cuNew)


def test_errors_name_the_function() -> None:
    def cuOld() -> tuple[cu.CUresult]:
        return (cu.CUresult.CUDA_ERROR_LOSSY_QUERY,)

    for run in (call, results):
        with pytest.raises(DeviceError, match="cuOld: CUDA_ERROR_LOSSY_QUERY"):
            run(cuOld)


def test_a_graph_is_read_with_the_edges_of_dependent_launches() -> None:
    """Without them, reading a recorded product is CUDA_ERROR_LOSSY_QUERY."""
    name = graph._dependent_nodes.__name__
    assert name.endswith("_v2") or int(bindings.__version__.partition(".")[0]) >= 13


@pytest.mark.parametrize("version", ["12.9.4", "13.5.0"])
def test_a_missing_cublas_is_brought_for_the_major_version_of_the_bindings(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    def missing(name: str) -> None:
        raise pathfinder.DynamicLibNotFoundError(f"no lib{name}")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    monkeypatch.setattr(bindings, "__version__", version)
    said = rf"no libcublas.* pip install 'gemmlab\[cu{version[:2]}\]'"
    with pytest.raises(MissingDependencyError, match=said):
        cublas.library.__wrapped__()
