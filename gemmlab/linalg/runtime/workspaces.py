"""Memory that the products on a stream share: packed operands, totals, and reports."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from cuda.bindings import driver as cu

from gemmlab.kernels.common import ceil_div
from gemmlab.linalg.arrays import Framework
from gemmlab.linalg.planned import Counts
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.plan import REPORT_BYTES
from gemmlab.linalg.planning.program import Job
from gemmlab.linalg.runtime import gpus
from gemmlab.linalg.runtime.driver import call, relaxed
from gemmlab.linalg.runtime.launches import Launcher

PER_THREAD = 2  # cudaStreamPerThread: one handle for a different stream in each thread
_NO_ARRAY = (None, 0, 0)
_GROWTH = 8  # an allocation grows by at least 1/_GROWTH, so that growing shapes seldom allocate
_SLAB, _SLOT = 1 << 16, 256  # bytes allocated at once, bytes for each report


class Workspace:
    """Named allocations shared by the products on one stream, which run one after the other.

    Allocations grow on demand; `version` changes when one moves. A thread must hold `lock` from
    reading an address until the work that uses it is enqueued, because growth by another thread
    frees the old memory. It must hold it as well to use `launcher`.
    """

    def __init__(self, framework: Framework, device: int, stream: int) -> None:
        self._framework, self._device, self._stream = framework, device, stream
        self._arrays: dict[str, tuple[Any, int, int]] = {}
        # The sizes for which `places` needs no more memory, and what it returns for them.
        self._room: tuple[int, ...] = (0, 0, 0, 0)
        self._at: tuple[int, ...] = (0, 0, 0, 0)
        self._reports: list[int] = []  # free ones
        self.version = 0
        self.lock = threading.RLock()
        self.launcher = Launcher(device)

    def address(self, name: str, nbytes: int) -> int:
        """Return the address of an allocation of at least `nbytes` bytes, with any contents.

        No CUDA graph may be recording the stream.
        """
        _, address, size = self._arrays.get(name, _NO_ARRAY)
        if size < nbytes:
            nbytes = max(nbytes, size + size // _GROWTH)
            current = self._framework.stream(self._device) == self._stream
            with (
                self._framework.entered(self._device, None if current else self._stream),
                gpus.current(self._device),
            ):
                make = self._framework.maker((ceil_div(nbytes, 4),), self._device)
                array = self._allocated(make)
                address = self._framework.address(array)
            self._arrays[name] = array, address, nbytes
            self.version += 1
        return address

    def places(self, left: int, right: int, totals: int, notes: int) -> tuple[int, int, int, int]:
        """Return the addresses of memory of `Job.sizes`; 0 for what is empty."""
        rooms = self._room
        if left > rooms[0] or right > rooms[1] or totals > rooms[2] or notes > rooms[3]:
            self._grow((left, right, totals, notes))
        at = self._at
        return left and at[0], right and at[1], totals and at[2], notes and at[3]

    def _grow(self, sizes: tuple[int, int, int, int]) -> None:
        names = "left", "right", "totals", "notes"
        for name, nbytes in zip(names, sizes, strict=True):
            if nbytes:
                self.address(name, nbytes)
        found = [self._arrays.get(name, _NO_ARRAY) for name in names]
        self._at, self._room = (tuple(x[i] for x in found) for i in (1, 2))

    def memory(self, job: Job, sms: int, report: int) -> WorkspaceAddresses:
        """Return the memory of a product's launches."""
        left, right, totals, notes = self.places(*job.sizes(sms))
        return WorkspaceAddresses(left, right, report, totals, notes)

    def take_report(self) -> int:
        """Return the address of a report for one product at a time; its counters are zero."""
        if not self._reports:
            with gpus.current(self._device):
                slab = _slab()
            self._reports += range(slab, slab + _SLAB, _SLOT)
        return self._reports.pop()

    def give_report(self, address: int) -> None:
        """Take a report back. Its product may still run: the next one runs on the same stream."""
        self._reports.append(address)

    def counts(self, report: int) -> Counts:
        """Wait until the stream is idle, and return the counts of a report."""
        with gpus.current(self._device):
            call(cu.cuStreamSynchronize, self._stream)
            raw = bytearray(REPORT_BYTES)
            call(cu.cuMemcpyDtoH, raw, report, REPORT_BYTES)
        numbers = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, REPORT_BYTES, 8)]
        return Counts.of(numbers)

    def _allocated(self, make: Callable[[], Any]) -> Any:
        return self._framework.kept(make)

    def free(self) -> None:
        """Return the memory to the framework's allocator."""
        with self.lock:
            self._arrays.clear()
            self._room = (0, 0, 0, 0)
            self.version += 1


_workspaces: dict[tuple[str, int, int, int], Workspace] = {}
# Workspaces of products recorded in CUDA graphs, which may be replayed at any time.
_recorded: list[Workspace] = []


def workspace(framework: Framework, device: int, stream: int) -> Workspace:
    """Return the workspace of a stream, per thread for PER_THREAD."""
    thread = threading.get_ident() if stream == PER_THREAD else 0
    key = framework.name, device, stream, thread
    found = _workspaces.get(key)
    if found is None:
        found = _workspaces.setdefault(key, Workspace(framework, device, stream))
    return found


def free_workspaces() -> None:
    """Return all workspaces to the frameworks' allocators; see `api.free_workspaces`."""
    for space in list(_workspaces.values()):
        space.free()
    _recorded.clear()


class _RecordedSpace(Workspace):
    """A workspace from the pool of the graph being recorded, if the framework has one."""

    def _allocated(self, make: Callable[[], Any]) -> Any:
        return make()


def recorded_space(framework: Framework, device: int, stream: int) -> Workspace:
    """Return a new workspace for products being recorded in a CUDA graph, one after the other.

    While PyTorch records a graph, it allocates from the graph's own pool, which keeps the memory.
    """
    space = _RecordedSpace(framework, device, stream)
    if framework.name != "torch":
        _recorded.append(space)
    return space


class _RecordedReports:
    """Device memory for the reports of recorded products on one GPU.

    The driver allocates it, and it is never freed, because a graph may be replayed at any time.
    PyTorch's allocator is unsuitable: only results may outlive a recording there.
    """

    def __init__(self) -> None:
        self._next = self._end = 0

    def address(self) -> int:
        """Return the address of a new report."""
        if self._next == self._end:
            self._next = _slab()
            self._end = self._next + _SLAB
        address = self._next
        self._next += _SLOT
        return address


@cache
def recorded_reports(_device: int) -> _RecordedReports:
    return _RecordedReports()


def _slab() -> int:
    """Return the address of zeroed memory for reports. A product leaves its report zero.

    A stream of its own clears it, because another might be recording a CUDA graph.
    """
    with relaxed():
        slab = int(call(cu.cuMemAlloc, _SLAB))
        stream = call(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING)
        call(cu.cuMemsetD8Async, slab, 0, _SLAB, stream)
        call(cu.cuStreamSynchronize, stream)
        call(cu.cuStreamDestroy, stream)
    return slab
