"""Run a planned product on a GPU: its workspaces, launches and counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from cuda.bindings import driver as cu

from gemmlab.kernels.common import ceil_div
from gemmlab.linalg import cublas
from gemmlab.linalg.frameworks import DEFAULT_STREAMS, Framework
from gemmlab.linalg.planned import Counts
from gemmlab.linalg.planning.plan import REPORT_BYTES, STATUS_BYTES, Address
from gemmlab.linalg.planning.program import NAMES, Job, WorkspaceAddresses
from gemmlab.linalg.runtime.driver import call, relaxed
from gemmlab.linalg.runtime.graph import Addresses, Graph, Node, Recording, compile_all

_CLEARED = max(STATUS_BYTES, REPORT_BYTES)
PER_THREAD = 2  # cudaStreamPerThread: one handle for a different stream in each thread
_COUNTED = ("left", "right", "report")  # workspaces that begin with counters


@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU that a plan depends on."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int


class Run(Protocol):
    """A product that is ready to run once the addresses of its operands are known."""

    def enqueue(self, addresses: Addresses) -> None:
        """Enqueue the product on its stream. The GPU's context must be current."""

    def counts(self) -> Counts | None:
        """Wait for the last run and return its counts; None if it counts nothing."""


@cache
def gpu(ordinal: int) -> Gpu:
    """Return the properties of GPU number `ordinal`. Raises DeviceError."""
    call(cu.cuInit, 0)
    device, names = call(cu.cuDeviceGet, ordinal), cu.CUdevice_attribute
    major, minor, sms = (
        call(cu.cuDeviceGetAttribute, name, device)
        for name in (
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            names.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        )
    )
    name = call(cu.cuDeviceGetName, 256, device).split(b"\0")[0].decode()
    return Gpu(name, (major, minor), sms)


class Workspace:
    """Named allocations shared by the products on one stream, which run one after the other.

    Allocations grow on demand; `version` changes when one moves. A thread must hold `lock` from
    reading an address until the work that uses it is enqueued, because growth by another thread
    frees the old memory.
    """

    def __init__(self, framework: Framework, device: int, stream: int) -> None:
        self._framework, self._device, self._stream = framework, device, stream
        self._arrays: dict[str, tuple[Any, int, int]] = {}
        self.version = 0
        self.lock = threading.RLock()

    def address(self, name: str, nbytes: int) -> int:
        """Return the address of an allocation of at least `nbytes` bytes.

        The counters at the beginning of a new allocation are zero.
        """
        _, address, size = self._arrays.get(name, (None, 0, 0))
        nbytes = max(nbytes, _CLEARED)
        if size < nbytes:
            current = self._framework.stream(self._device) == self._stream
            with self._framework.entered(self._device, None if current else self._stream):
                make = self._framework.maker((ceil_div(nbytes, 4),), self._device)
                array = self._allocated(make)
            address = self._framework.address(array)
            if name in _COUNTED:
                call(cu.cuMemsetD8Async, address, 0, _CLEARED, self._stream)
            self._arrays[name] = array, address, nbytes
            self.version += 1
        return address

    def _allocated(self, make: Callable[[], Any]) -> Any:
        return self._framework.kept(make)

    def free(self) -> None:
        """Return the memory to the framework's allocator."""
        with self.lock:
            self._arrays.clear()
            self.version += 1


_workspaces: dict[tuple[str, int, int, int], Workspace] = {}
# Workspaces of products recorded in CUDA graphs, which may be replayed at any time.
_recorded: list[Workspace] = []


def workspace(framework: Framework, device: int, stream: int) -> Workspace:
    """Return the workspace of a stream, per thread for PER_THREAD."""
    thread = threading.get_ident() if stream == PER_THREAD else 0
    return _workspaces.setdefault(
        (framework.name, device, stream, thread), Workspace(framework, device, stream)
    )


class _RecordedSpace(Workspace):
    """A workspace from the pool of the graph being recorded, if the framework has one."""

    def _allocated(self, make: Callable[[], Any]) -> Any:
        return make()


def _recorded_space(framework: Framework, device: int, stream: int) -> Workspace:
    """Return a new workspace for a product being recorded in a CUDA graph.

    While PyTorch records a graph, it allocates from the graph's own pool, which keeps the memory.
    """
    space = _RecordedSpace(framework, device, stream)
    if framework.name != "torch":
        _recorded.append(space)
    return space


_SLAB, _SLOT = 1 << 16, 256  # bytes allocated at once, bytes for each report


class _RecordedReports:
    """Device memory for the reports of recorded products on one GPU.

    The driver allocates it, and it is never freed, because a graph may be replayed at any time.
    PyTorch's allocator is unsuitable: only results may outlive a recording there.
    """

    def __init__(self) -> None:
        self._next = self._end = 0

    def address(self, stream: int) -> Address:
        """Return the address of a new report, which the stream sets to zero."""
        if self._next == self._end:
            with relaxed():
                self._next = int(call(cu.cuMemAlloc, _SLAB))
            self._end = self._next + _SLAB
        address = self._next
        self._next += _SLOT
        call(cu.cuMemsetD8Async, address, 0, _CLEARED, stream)
        return address


@cache
def _recorded_reports(device: int) -> _RecordedReports:
    return _RecordedReports()


def free_workspaces() -> None:
    """Return all workspaces to the frameworks' allocators.

    Later products allocate new ones. CUDA graphs that CuPy recorded with products in them must not
    be replayed afterwards; those of PyTorch own their memory.
    """
    for space in list(_workspaces.values()):
        space.free()
    _recorded.clear()


class TensorCoreRun:
    """A product in `fp16x3` or `bf16x6` on one stream."""

    def __init__(self, job: Job, framework: Framework, device: int, stream: int) -> None:
        self._job, self._framework, self._device, self._stream = job, framework, device, stream
        self._multiprocessors = gpu(device).multiprocessors
        self._context = _primary_context(device)
        self._graph: Graph | None = None
        self._space = workspace(framework, device, stream)
        self._own = Workspace(framework, device, stream)  # holds the report
        self._version = -1
        # The addresses of the graph's report and of the last run's.
        self._eager: Address | None = None
        self._last: Address | None = None
        # Compile now, so that an error occurs before anything is written.
        compile_all(job.launches(WorkspaceAddresses(0, 0, 0), self._multiprocessors))

    def enqueue(self, addresses: Addresses) -> None:
        with self._space.lock:
            if self._stream not in DEFAULT_STREAMS and _is_recording(self._stream):
                self._record(addresses)
                return
            graph = self._graph
            if graph is None or self._version != self._space.version:
                memory = self._place(self._space, self._own.address("report", REPORT_BYTES))
                launches = self._job.launches(memory, self._multiprocessors)
                with relaxed():
                    graph = self._graph = Graph(launches)
                self._version, self._eager = self._space.version, memory.report
            self._last = self._eager
            try:
                if graph.addresses != addresses:
                    graph.move(addresses)
                graph.replay(self._stream)
            except BaseException:
                # The counters may no longer be zero; allocate new ones next time.
                self._space.free()
                raise

    def counts(self) -> Counts:
        if self._last is None:
            return Counts()
        with _Current(self._context):
            call(cu.cuStreamSynchronize, self._stream)
            raw = bytearray(REPORT_BYTES)
            call(cu.cuMemcpyDtoH, raw, self._last, REPORT_BYTES)
        risk, not_finite = (int.from_bytes(raw[i : i + 8], "little") for i in (0, 8))
        return Counts.of(risk, not_finite)

    def _place(self, space: Workspace, report: Address) -> WorkspaceAddresses:
        left, right = self._job.left.workspace, self._job.right.workspace
        totals = self._job.totals(self._multiprocessors)
        at_totals = space.address("totals", totals) if totals else 0
        return WorkspaceAddresses(
            space.address("left", left), space.address("right", right), report, at_totals
        )

    def _record(self, addresses: Addresses) -> None:
        """Add the product to the CUDA graph that the stream is recording, with its own memory.

        The report has its own memory, too, because a replay may count while other products run.
        """
        space = _recorded_space(self._framework, self._device, self._stream)
        report = _recorded_reports(self._device).address(self._stream)
        memory = self._place(space, report)
        with relaxed():
            nodes = [Node(launch) for launch in self._job.launches(memory, self._multiprocessors)]
        for node in nodes:
            node.move(addresses)
            node.launch(self._stream)
        self._last = report


class SgemmRun:
    """A product by cuBLAS on one stream.

    The second call in a row with the same addresses is recorded as a CUDA graph, whose replay costs
    the host a fifth of a call of cuBLAS.
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
        self._context = _primary_context(device)
        with _Current(self._context), relaxed():
            self._handle = _handle(device)
        self._space = workspace(framework, device, stream)
        self._addresses, self._version = (0, 0, 0), -1  # those of the last call
        self._recording: Recording | None = None

    def enqueue(self, addresses: Addresses) -> None:
        with self._space.lock:
            if self._stream not in DEFAULT_STREAMS and _is_recording(self._stream):
                space = _recorded_space(self._framework, self._device, self._stream)
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
    """Return the cuBLAS handle of a GPU, which must be current."""
    return cublas.Handle()


@cache
def _primary_context(device: int) -> Any:
    return call(cu.cuDevicePrimaryCtxRetain, call(cu.cuDeviceGet, device))


def is_current(device: int) -> bool:
    """Whether the GPU's primary context is this thread's current context."""
    current: bool = cu.cuCtxGetCurrent()[1] == _primary_context(device)
    return current


def current(device: int) -> AbstractContextManager[None]:
    """Make the GPU's primary context current within a context manager."""
    return _Current(_primary_context(device))


class _Current(AbstractContextManager[None]):
    """Makes a CUDA context current, if it is not already."""

    def __init__(self, context: Any) -> None:
        self._context, self._pushed = context, False

    def __enter__(self) -> None:
        if call(cu.cuCtxGetCurrent) != self._context:
            call(cu.cuCtxPushCurrent, self._context)
            self._pushed = True

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            call(cu.cuCtxPopCurrent)


def _is_recording(stream: int) -> bool:
    """Whether a CUDA graph is recording the stream; must not be called for a default stream."""
    capturing: bool = cu.cuStreamIsCapturing(stream)[1] == _ACTIVE
    return capturing
