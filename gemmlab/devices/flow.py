"""Run a kernel's host code (the interface in kernels/flow.py) on any device; record a timeline."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices.device import Device, Dim3, Launched, Queue, Runtime, Shared, Span, Times
from gemmlab.errors import InputError

Allocate = Callable[[int], Span]  # allocates bytes on the device
Program = Callable[..., None]  # a flow bound to its configuration: program(host, *arrays)
Side = Literal["host", "device"]

_LEAST_RUNS, _MOST_RUNS, _MEASURE_S = 3, 20, 1.0


@dataclass(frozen=True)
class Operation:
    """One entry of a timeline: an operation of a flow and when the GPU executed it.

    `name` is "copy in", "copy out", "prefetch in", "prefetch out", "kernel" or "host read"; "in"
    means to the device. `stream` counts from 0; None is the host. `bytes` is the data that crosses
    between host and device; for a kernel or a host read, the managed arrays that migrate because
    they are accessed. Times are in milliseconds since the first operation started; None on the
    emulator. An operation starts when its stream reaches it; a copy may still wait for a copy
    engine.
    """

    name: str
    stream: int | None
    bytes: int
    start_ms: float | None
    end_ms: float | None


class FlowRun(NamedTuple):
    """The measurements of one run of a flow."""

    timeline: tuple[Operation, ...]
    launched: Launched  # its counters are summed over all launches

    @property
    def time_s(self) -> float:
        """Seconds from the first operation's start to the last end; 0 if nothing was timed."""
        return max((operation.end_ms or 0.0 for operation in self.timeline), default=0.0) / 1e3


def run_flow(
    device: Device,
    artifact: Artifact,
    program: Program,
    arrays: Sequence[np.ndarray],
    allocate: Allocate | None = None,
) -> FlowRun:
    """Run a flow once, to completion.

    `arrays` are host arrays. `allocate` allocates device memory, by default `device.allocate`.
    Raises LaunchError if a launch limit is exceeded, DeviceError if an allocation or the run fails,
    EmulationError for an error in the kernel, and InputError for a copy between arrays of different
    sizes.
    """

    def plain(nbytes: int) -> Span:
        return Span(device.allocate(nbytes), 0, nbytes)

    with device.runtime(artifact) as runtime:
        host = Host(runtime, allocate or plain)
        program(host, *arrays)
    counters = None if runtime.counters is None else dict(runtime.counters)
    return FlowRun(host.timeline(), Launched(counters))


def measure_flow(
    device: Device, artifact: Artifact, program: Program, arrays: Sequence[np.ndarray]
) -> FlowRun:
    """Return the run of median time among 3 to 20 runs, as many as fit in one second.

    Run the flow once before, because the first run loads the kernel. Raises the errors of
    `run_flow`.
    """
    runs: list[FlowRun] = []
    stop = time.perf_counter() + _MEASURE_S
    while len(runs) < _LEAST_RUNS or (time.perf_counter() < stop and len(runs) < _MOST_RUNS):
        runs.append(run_flow(device, artifact, program, arrays))
    return sorted(runs, key=lambda run: run.time_s)[len(runs) // 2]


class DeviceArray:
    """Contiguous elements of `itemsize` bytes each in device memory."""

    def __init__(self, span: Span, itemsize: int) -> None:
        self.span, self._itemsize = span, itemsize

    def __getitem__(self, part: slice) -> DeviceArray:
        start, stop, step = part.indices(self.span.nbytes // self._itemsize)
        if step != 1:
            raise InputError(f"a slice of device memory must have step 1, not {step}")
        offset, length = start * self._itemsize, max(stop - start, 0) * self._itemsize
        span = Span(self.span.buffer, self.span.offset + offset, length)
        return DeviceArray(span, self._itemsize)


class ManagedArray:
    """Elements in managed memory; tracks whether their pages are on the host or the device."""

    def __init__(self, host: Host, shared: Shared, like: np.ndarray) -> None:
        self._host = host
        self._array = shared.array[: like.nbytes].view(like.dtype)
        self._home: Side | None = None  # None until first accessed
        self.span = Span(shared, 0, like.nbytes)

    def write(self, values: np.ndarray) -> None:
        _check_sizes(values.nbytes, self.span.nbytes)
        self._array[:] = values
        self._home = "host"

    def read(self) -> np.ndarray:
        if self.span.nbytes:
            start = self._host.runtime.now()
            self._array.view(np.uint8)[:: mmap.PAGESIZE].sum()  # touches every page
            times = start, self._host.runtime.now()
            self._host.note("host read", None, self.move("host"), times)
        return self._array

    def move(self, to: Side) -> int:
        """Migrate all pages to one side; return the number of bytes moved."""
        moved = self.span.nbytes if self._home not in (None, to) else 0
        self._home = to
        return moved


class Stream:
    """A queue that records its operations on the timeline."""

    def __init__(self, host: Host, number: int, queue: Queue) -> None:
        self._host, self._number, self._queue = host, number, queue

    def copy_in(self, to: DeviceArray, source: np.ndarray) -> None:
        _check_sizes(source.nbytes, to.span.nbytes)
        if source.nbytes:
            self._note("copy in", source.nbytes, self._queue.copy_in(to.span, source))

    def copy_out(self, to: np.ndarray, source: DeviceArray) -> None:
        _check_sizes(source.span.nbytes, to.nbytes)
        if to.nbytes:
            self._note("copy out", to.nbytes, self._queue.copy_out(to, source.span))

    def prefetch_in(self, memory: ManagedArray) -> None:
        if memory.span.nbytes:
            times = self._queue.prefetch(memory.span, to_device=True)
            self._note("prefetch in", memory.move("device"), times)

    def prefetch_out(self, memory: ManagedArray) -> None:
        if memory.span.nbytes:
            times = self._queue.prefetch(memory.span, to_device=False)
            self._note("prefetch out", memory.move("host"), times)

    def launch(
        self, geometry: tuple[Dim3, Dim3, int], *args: DeviceArray | ManagedArray | int
    ) -> None:
        grid, block, dynamic_smem = geometry
        if 0 in grid:
            return
        given = [arg if isinstance(arg, int) else arg.span for arg in args]
        times = self._queue.launch(grid, block, given, dynamic_smem)
        moved = sum(arg.move("device") for arg in args if isinstance(arg, ManagedArray))
        self._note("kernel", moved, times)

    def wait(self) -> None:
        self._queue.wait()

    def _note(self, name: str, nbytes: int, times: Times) -> None:
        self._host.note(name, self._number, nbytes, times)


class Host:
    """The host side of one run, with the interface in kernels/flow.py."""

    def __init__(self, runtime: Runtime, allocate: Allocate) -> None:
        self.runtime = runtime
        self._allocate = allocate
        self._streams = 0
        self._notes: list[tuple[str, int | None, int, Times]] = []

    def device_like(self, array: np.ndarray) -> DeviceArray:
        return DeviceArray(self._allocate(array.nbytes), array.itemsize)

    def managed_like(self, array: np.ndarray) -> ManagedArray:
        return ManagedArray(self, self.runtime.managed(array.nbytes), array)

    def pinned_like(self, array: np.ndarray) -> np.ndarray:
        return self.runtime.pinned(array.nbytes).view(array.dtype)

    def stream(self) -> Stream:
        self._streams += 1
        return Stream(self, self._streams - 1, self.runtime.queue())

    def note(self, name: str, stream: int | None, nbytes: int, times: Times) -> None:
        """Add an operation to the timeline."""
        self._notes.append((name, stream, nbytes, times))

    def timeline(self) -> tuple[Operation, ...]:
        """Return all operations in the order of their calls, after all have completed."""
        times = [(start(), end()) for *_, (start, end) in self._notes]
        zero = min((start for start, _ in times if start is not None), default=0.0)

        def since(time_ms: float | None) -> float | None:
            return None if time_ms is None else time_ms - zero

        return tuple(
            Operation(name, stream, nbytes, since(start), since(end))
            for (name, stream, nbytes, _), (start, end) in zip(self._notes, times, strict=True)
        )


def _check_sizes(source: int, to: int) -> None:
    if source != to:
        raise InputError(f"cannot copy {source} bytes to {to} bytes: the sizes must be equal")
