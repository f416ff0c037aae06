"""Run a planned product on a GPU: its launches, and the counts that it leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol

from cuda.bindings import driver as cu

from gemmlab.linalg import cublas
from gemmlab.linalg.arrays import DEFAULT_STREAMS, Framework
from gemmlab.linalg.planned import Counts
from gemmlab.linalg.planning import kinds
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.program import NAMES, Job
from gemmlab.linalg.runtime import gpus
from gemmlab.linalg.runtime.driver import relaxed
from gemmlab.linalg.runtime.graph import Graph, Recording
from gemmlab.linalg.runtime.kernels import prepare
from gemmlab.linalg.runtime.launches import Addresses, BoundLaunch
from gemmlab.linalg.runtime.workspaces import (
    Workspace,
    recorded_reports,
    recorded_space,
    workspace,
)

# Runs of a product before it becomes a graph. Making one takes as long as this many launches save.
_LAUNCHED = 8
_LATER = (0,) * len(NAMES)  # the addresses of the caller's arrays, put in when the product runs
_in_turn: set[int] = set()  # streams; see `in_turn`
_shared: dict[int, Workspace | None] = {}  # by stream; see `recorded_in_turn`


@contextmanager
def in_turn(*streams: int) -> Iterator[None]:
    """Let graphs that record these streams, given as handles, use the streams' own workspaces.

    The graphs may be replayed while the `version` of the workspaces is the same, one after the
    other, and not concurrently with other work of the streams. A product then needs no memory of
    its own. Each product must have run on its stream before.
    """
    _in_turn.update(streams)
    try:
        yield
    finally:
        _in_turn.difference_update(streams)


@contextmanager
def recorded_in_turn(streams: Iterable[int]) -> Iterator[None]:
    """Let the products that a graph of PyTorch records on one of these streams, given as handles,
    share memory of the graph. They run one after the other.
    """
    streams = tuple(streams)
    _shared.update(dict.fromkeys(streams))
    try:
        yield
    finally:
        for stream in streams:
            _shared.pop(stream, None)


class Run(Protocol):
    """A product that is ready to run once the addresses of its operands are known."""

    def enqueue(self, addresses: Addresses) -> None:
        """Enqueue the product on its stream. The GPU's context must be current."""

    def counts(self) -> Counts | None:
        """Wait for the last run and return its counts; None if it counts nothing."""


class TensorCoreRun:
    """A product in `fp16x3` or `bf16x6` on one stream.

    Its kernels are launched one by one at first. A product that is repeated often becomes a CUDA
    graph, whose replay takes less host time.
    """

    def __init__(self, job: Job, framework: Framework, device: int, stream: int) -> None:
        self._job, self._framework, self._device, self._stream = job, framework, device, stream
        self._multiprocessors = gpus.gpu(device).multiprocessors
        self._space = workspace(framework, device, stream)
        self._launches: list[BoundLaunch] = []
        self._version = -1  # of the workspace that the launches use
        self._runs = 0
        self._graph: Graph | None = None
        # The addresses of the report of this product, unless recorded, and of the last run's.
        self._report = self._last = 0
        with self._space.lock:
            recorded = is_recording(stream)
            if self._space.launcher and not recorded:
                self._bind()
            else:
                # Compile now, so that an error occurs before memory is taken and before anything
                # is written. A stream that records would record the clearing of new memory, too.
                launches = job.launches(WorkspaceAddresses(0, 0, 0), self._multiprocessors)
                prepare(launch.code for launch in launches)

    def __del__(self) -> None:
        if getattr(self, "_report", 0):
            self._space.give_report(self._report)

    def enqueue(self, addresses: Addresses) -> None:
        with self._space.lock:
            recorded = is_recording(self._stream)
            if recorded and self._stream not in _in_turn:
                self._record(addresses)
                return
            if self._version != self._space.version:
                self._bind()
            graph = self._graph
            try:
                if recorded:
                    self._launch_all(addresses)
                elif graph is None:
                    self._launch(addresses)
                else:
                    if graph.addresses != addresses:
                        graph.move(addresses)
                    graph.replay(self._stream)
            except BaseException:
                # Its counters may no longer be zero: the next run takes another.
                self._report, self._version = 0, -1
                raise
            self._last = self._report

    def counts(self) -> Counts | None:
        if not self._job.choice.counts:
            return None
        return self._space.counts(self._last) if self._last else Counts()

    def _launch(self, addresses: Addresses) -> None:
        """Launch the kernels one by one, or make a graph of them and launch that."""
        self._runs += 1
        if self._runs <= _LAUNCHED:
            self._launch_all(addresses)
            return
        with relaxed():
            self._graph = Graph(self._launches)
        self._graph.move(addresses)
        self._graph.replay(self._stream)

    def _launch_all(self, addresses: Addresses) -> None:
        for bound in self._launches:
            bound.launch(self._stream, addresses)

    def _bind(self) -> None:
        """Plan the launches with the present memory of the stream."""
        if not self._report:
            self._report = self._space.take_report()
        self._launches = self._planned()
        self._version, self._graph = self._space.version, None

    def _planned(self) -> list[BoundLaunch]:
        """Plan and bind the launches, by formulas if the product is of a known kind."""
        job, sms, space = self._job, self._multiprocessors, self._space
        found, numbers = kinds.of(job, sms), kinds.numbers_of(job)
        if found and (planned := found.plan(*numbers, self._report, *_LATER, space.places)):
            index, *each = planned
            kind = found.each[index]
            return space.launcher.bind_kind(kind, kind.each(*each))
        launches = job.launches(space.memory(job, sms, self._report), sms)
        bound = space.launcher.bind(launches)
        if found is not None:
            found.add(job, sms, launches, space.launcher.parameters(launches))
        return bound

    def _record(self, addresses: Addresses) -> None:
        """Add the product to the CUDA graph that the stream is recording, with its own memory.

        The report has its own memory, too, because a replay may count while other products run. A
        product that counts nothing has none.
        """
        job, sms, report = self._job, self._multiprocessors, 0
        space = self._recorded_space()
        if job.choice.counts:
            report = recorded_reports(self._device).address()
        memory = space.memory(job, sms, report)
        for bound in self._space.launcher.bind(job.launches(memory, sms)):
            bound.launch(self._stream, addresses)
        self._last = report

    def _recorded_space(self) -> Workspace:
        stream = self._stream
        found = _shared.get(stream)
        if found is None:
            found = recorded_space(self._framework, self._device, stream)
            if stream in _shared:
                _shared[stream] = found
        return found


class SgemmRun:
    """A product by cuBLAS on one stream.

    The second call in a row with the same addresses is recorded as a CUDA graph, whose replay takes
    a fifth of the host time of a cuBLAS call.
    """

    def __init__(
        self,
        sgemm: cublas.Sgemm,
        names: tuple[str, str],
        framework: Framework,
        device: int,
        stream: int,
    ) -> None:
        self._sgemm, self._framework, self._device, self._stream = sgemm, framework, device, stream
        self._order = [NAMES.index(name) for name in (*names, "c")]
        self._handle = _handle(device)
        self._space = workspace(framework, device, stream)
        self._addresses: Addresses = ()  # those of the last call
        self._version = -1
        self._recording: Recording | None = None

    def enqueue(self, addresses: Addresses) -> None:
        with self._space.lock:
            if is_recording(self._stream):
                space = self._space
                if self._stream not in _in_turn:
                    space = recorded_space(self._framework, self._device, self._stream)
                self._start(addresses, space.address("cublas", cublas.WORKSPACE), self._stream)
                return
            if addresses != self._addresses or self._version != self._space.version:
                at = self._space.address("cublas", cublas.WORKSPACE)
                self._addresses, self._version = addresses, self._space.version
                self._recording = None
                self._start(addresses, at, self._stream)
                return
            if self._recording is None:
                at = self._space.address("cublas", cublas.WORKSPACE)
                with relaxed():
                    self._recording = Recording(lambda stream: self._start(addresses, at, stream))
            self._recording.replay(self._stream)

    def counts(self) -> None:
        return None

    def _start(self, addresses: Addresses, workspace: int, stream: int) -> None:
        left, right, c = (addresses[i] for i in self._order)
        with _cublas:
            self._handle.use(stream, workspace)
            self._sgemm.launch(self._handle, (left, right, c))


_ACTIVE = cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
_cublas = threading.Lock()  # only one thread at a time may use a handle


@cache
def _handle(device: int) -> cublas.Handle:
    """Return the cuBLAS handle of a GPU."""
    with gpus.current(device), relaxed():
        return cublas.Handle()


def is_recording(stream: int) -> bool:
    """Whether a CUDA graph is recording the stream; none can record a default stream."""
    if stream in DEFAULT_STREAMS:
        return False
    recording: bool = cu.cuStreamIsCapturing(stream)[1] == _ACTIVE
    return recording
