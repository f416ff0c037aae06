"""The host side of a kernel: four kinds of memory, and streams of operations.

A flow is a function `flow(config, host, *arrays)`. The arrays are a problem's inputs and outputs in
ordinary (pageable) host memory, in the order of its parameters. When the flow returns, the outputs
hold the result. The same flow runs on a GPU and on the emulator: a device provides the `host` and
records a timeline of the operations.

    memory     accessible to             how data reaches the device
    --------   -----------------------   -----------------------------------------------------
    pageable   the host                  copied by way of a pinned buffer of the driver
    pinned     the host, copy engines    copied by a copy engine, in parallel with other work
    device     the device                already there
    managed    both                      pages migrate on access, or when prefetched

CUDA C++ Programming Guide, "Page-Locked Host Memory", "Asynchronous Concurrent Execution" and
"Unified Memory Programming".
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gemmlab.kernels.rung import Geometry


class DeviceArray(Protocol):
    """Consecutive elements in device memory."""

    def __getitem__(self, part: slice) -> DeviceArray:
        """A view of some of the elements."""


class ManagedArray(Protocol):
    """Elements in memory shared by host and device. Pages are placed at the first access."""

    def write(self, values: np.ndarray) -> None:
        """Write every element on the host, which places the pages there."""

    def read(self) -> np.ndarray:
        """The elements, read on the host after it has waited for the device; pages migrate back."""


class Stream(Protocol):
    """Operations that run in order, asynchronously to the host and to other streams.

    Raises InputError for a copy between different lengths, LaunchError for a launch past a limit.
    """

    def copy_in(self, to: DeviceArray, source: np.ndarray) -> None:
        """Copy host to device. A copy from pageable memory occupies the host."""

    def copy_out(self, to: np.ndarray, source: DeviceArray) -> None:
        """Copy device to host."""

    def prefetch_in(self, memory: ManagedArray) -> None:
        """Migrate all pages to the device, before a kernel accesses them."""

    def prefetch_out(self, memory: ManagedArray) -> None:
        """Migrate all pages to the host."""

    def launch(self, geometry: Geometry, *args: DeviceArray | ManagedArray | int) -> None:
        """Launch the rung's kernel. A grid that contains a 0 launches nothing."""

    def wait(self) -> None:
        """Return when all operations of the stream have finished."""


class Host(Protocol):
    """The host side of one device. Allocations live until the flow returns.

    Raises DeviceError if an allocation exceeds the available memory.
    """

    def device_like(self, array: np.ndarray) -> DeviceArray: ...

    def managed_like(self, array: np.ndarray) -> ManagedArray: ...

    def pinned_like(self, array: np.ndarray) -> np.ndarray: ...

    def stream(self) -> Stream: ...
