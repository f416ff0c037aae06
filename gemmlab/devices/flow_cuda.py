"""Flows on a GPU: streams, events, pinned and managed memory, with cuda.core and the driver."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import cuda.core as core
import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices.cuda import TIMING, CudaBuffer, CudaDevice, driver_errors
from gemmlab.devices.device import Clock, Dim3, Span, Times, check_managed

_ATTACH_GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL: accessible from every stream


class SharedBuffer(CudaBuffer):
    """Managed memory, at the same address on host and device."""

    def __init__(self, device: CudaDevice, address: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.array = _host_view(address, nbytes)
        self._device = device
        self._memory = core.ManagedBuffer.from_handle(address, nbytes)


class CudaQueue:
    """A stream of the GPU."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime, self._device = runtime, runtime.device
        with driver_errors(f"creating a stream on {self._device.name}"):
            self._stream = self._device.gpu.create_stream()

    def copy_in(self, to: Span, source: np.ndarray) -> Times:
        return self._copy("cuMemcpyHtoDAsync", _address(to), source.ctypes.data, source.nbytes)

    def copy_out(self, to: np.ndarray, source: Span) -> Times:
        return self._copy("cuMemcpyDtoHAsync", to.ctypes.data, _address(source), to.nbytes)

    def prefetch(self, memory: Span, to_device: bool) -> Times:
        where = self._device.gpu if to_device else core.Host()
        pages = core.ManagedBuffer.from_handle(_address(memory), memory.nbytes)
        with driver_errors(f"prefetching {memory.nbytes} bytes on {self._device.name}"):
            start = self._mark()
            pages.prefetch(where, stream=self._stream)
            return self._clock(start), self._clock(self._mark())

    def launch(
        self, grid: Dim3, block: Dim3, args: Sequence[Span | int], dynamic_smem: int
    ) -> Times:
        artifact = self._runtime.artifact
        start, end = self._device.enqueue(self._stream, artifact, grid, block, args, dynamic_smem)
        return self._clock(start), self._clock(end)

    def wait(self) -> None:
        with driver_errors(f"running {self._runtime.artifact.entry} on {self._device.name}"):
            self._stream.sync()

    def _copy(self, function: str, *what: int) -> Times:
        with driver_errors(f"copying {what[-1]} bytes on {self._device.name}"):
            start = self._mark()
            self._device.call_async(function, *what, self._stream.handle)
            return self._clock(start), self._clock(self._mark())

    def _mark(self) -> Any:
        return self._stream.record(options=TIMING)

    def _clock(self, event: Any) -> Clock:
        return lambda: float(event - self._runtime.zero)


class CudaRuntime:
    """One run of a flow around one kernel; `resources` releases what it allocates."""

    counters: Mapping[str, int] | None = None  # hardware counters require a profiler

    def __init__(self, device: CudaDevice, artifact: Artifact, resources: ExitStack) -> None:
        self.device, self.artifact, self._resources = device, artifact, resources
        self._managed = 0  # bytes
        with driver_errors(f"recording an event on {device.name}"):
            self.zero: Any = device.stream.record(options=TIMING)
            self.zero.sync()
        self._zero_s = time.perf_counter()

    def managed(self, nbytes: int) -> SharedBuffer:
        self._managed += nbytes
        check_managed(self._managed, self.device.call("cuMemGetInfo"), self.device.name)
        # NOTE: not from a pool, whose pages may already be resident from an earlier use.
        pointer = self.device.call("cuMemAllocManaged", max(nbytes, 1), _ATTACH_GLOBAL)
        self._resources.callback(self.device.call, "cuMemFree", pointer)
        return SharedBuffer(self.device, int(pointer), nbytes)

    def pinned(self, nbytes: int) -> np.ndarray:
        with driver_errors(f"allocating {nbytes} bytes of pinned memory"):
            memory = core.LegacyPinnedMemoryResource().allocate(max(nbytes, 1))
        self._resources.callback(memory.close)
        return _host_view(int(memory.handle), nbytes)

    def queue(self) -> CudaQueue:
        queue = CudaQueue(self)
        self._resources.callback(queue.wait)  # runs before its memory is released
        return queue

    def now(self) -> Clock:
        time_ms = 1e3 * (time.perf_counter() - self._zero_s)
        return lambda: time_ms


def _address(span: Span) -> int:
    assert isinstance(span.buffer, CudaBuffer)
    return span.buffer.address + span.offset


def _host_view(address: int, nbytes: int) -> np.ndarray:
    """Return a view of the bytes at an address accessible to the host."""
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
    return np.ctypeslib.as_array(pointer, (nbytes,))
