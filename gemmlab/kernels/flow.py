"""What the host side of a kernel may ask for: four kinds of memory, and streams of work.

A flow is a function `flow(config, host, *arrays)`. The arrays are a problem's inputs and outputs in
ordinary (pageable) host memory, in the order of its parameters; when the flow returns, the outputs
hold the result. The same text runs on a GPU and on the emulator: a device supplies the `host`, and
keeps a time line of all that was asked of it.

    memory          who reaches it          how data gets to the device
    -------------   ---------------------   ---------------------------------------------
    pageable        the host                copied, through a pinned buffer of the driver's
    pinned          the host, copy engines  copied by the engine itself, while others work
    device          the device              it is there
    managed         both                    pages move to whoever touches them, or ahead of it

CUDA C++ Programming Guide, "Page-Locked Host Memory", "Asynchronous Concurrent Execution" and
"Unified Memory Programming".
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gemmlab.kernels.rung import Geometry


class DeviceArray(Protocol):
    """A run of elements in device memory."""

    def __getitem__(self, part: slice) -> DeviceArray:
        """A shorter run of the same memory."""


class ManagedArray(Protocol):
    """Elements in memory that host and device share. Nobody's pages until somebody touches them."""

    def write(self, values: np.ndarray) -> None:
        """The host writes every element; the pages are the host's."""

    def read(self) -> np.ndarray:
        """What the host sees, once the device was waited for; pages come back to it for that."""


class Stream(Protocol):
    """Work that is done in the order it was asked for, while the host and other streams go on.

    InputError for a copy between runs of different lengths, LaunchError past a launch limit.
    """

    def copy_in(self, to: DeviceArray, source: np.ndarray) -> None:
        """Host to device. Only from pinned memory does the host not have to take part."""

    def copy_out(self, to: np.ndarray, source: DeviceArray) -> None:
        """Device to host."""

    def prefetch_in(self, memory: ManagedArray) -> None:
        """Move all pages to the device, before a kernel touches them."""

    def prefetch_out(self, memory: ManagedArray) -> None:
        """Move all pages to the host."""

    def launch(self, geometry: Geometry, *args: DeviceArray | ManagedArray | int) -> None:
        """Run the rung's kernel; nothing, where the grid has a 0 in it."""

    def wait(self) -> None:
        """Return when all of it is done."""


class Host(Protocol):
    """The host side of one device. What it allocates lives until the flow returns.

    DeviceError where there is not so much memory.
    """

    def device_like(self, array: np.ndarray) -> DeviceArray: ...

    def managed_like(self, array: np.ndarray) -> ManagedArray: ...

    def pinned_like(self, array: np.ndarray) -> np.ndarray: ...

    def stream(self) -> Stream: ...
