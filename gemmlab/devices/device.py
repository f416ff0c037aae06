"""The interface of devices, which GPUs and the emulator share: launches, and what a flow needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.core.tensor_map import TensorMap
from gemmlab.errors import DeviceError, LaunchError

Dim3 = tuple[int, int, int]


class Buffer(Protocol):
    """Device memory of `nbytes` bytes."""

    nbytes: int

    def write(self, data: np.ndarray, offset: int = 0) -> None:
        """Copy an array's bytes to the buffer, from byte `offset` on."""

    def read(self) -> np.ndarray:
        """Return a copy of all bytes, as uint8."""


@dataclass(frozen=True)
class Span:
    """A pointer argument: the bytes of a buffer that a kernel may access."""

    buffer: Buffer
    offset: int  # bytes from the start of the buffer
    nbytes: int

    def __add__(self, nbytes: int) -> Span:
        """Advance by `nbytes`, as a pointer does; the end stays the same."""
        return Span(self.buffer, self.offset + nbytes, self.nbytes - nbytes)


# The array of a TensorMap is a Span. For a parameter `const CUtensorMap*`, a map or a list of maps
# is copied to device memory and the kernel receives its address.
Argument = Span | TensorMap | list[TensorMap] | int | float


@dataclass(frozen=True)
class Launched:
    """The measurements of one launch: counters on the emulator, seconds on a GPU."""

    counters: dict[str, int] | None = None  # by Nsight Compute's names
    time_s: float | None = None


Clock = Callable[[], float | None]  # milliseconds, read after all work completed; None: untimed
Times = tuple[Clock, Clock]  # start and end of an operation


class Shared(Buffer, Protocol):
    """Managed memory."""

    @property
    def array(self) -> np.ndarray:
        """The host's view of its bytes."""


class Queue(Protocol):
    """One stream of a device. Operations run in order, at the latest when `wait` is called."""

    def copy_in(self, to: Span, source: np.ndarray) -> Times: ...

    def copy_out(self, to: np.ndarray, source: Span) -> Times: ...

    def prefetch(self, memory: Span, to_device: bool) -> Times: ...

    def launch(
        self, grid: Dim3, block: Dim3, args: Sequence[Span | int], dynamic_smem: int
    ) -> Times: ...

    def wait(self) -> None: ...


class Runtime(Protocol):
    """The resources of one run of a flow around one kernel, released at the end."""

    @property
    def counters(self) -> Mapping[str, int] | None:
        """Counters summed over all completed launches; None if the device does not count."""

    def managed(self, nbytes: int) -> Shared: ...

    def pinned(self, nbytes: int) -> np.ndarray:
        """Allocate page-locked host memory, as uint8."""

    def queue(self) -> Queue: ...

    def now(self) -> Clock:
        """Return the time by the host's clock, with the same zero as the queues' times."""


class Device(Protocol):
    """Allocates memory and launches artifacts: a GPU or the emulator."""

    name: str  # "emulated", "cuda:0 NVIDIA H200"
    arch: str  # architecture to compile for, "sm_90a"

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate device memory. It is freed with the last reference to the buffer."""

    def launch(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> Launched:
        """Run a kernel to completion.

        Args:
            artifact: the kernel.
            grid: blocks in x, y, z.
            block: threads per block in x, y, z.
            args: one item per kernel parameter: a `Span` for a pointer, a `TensorMap`, or a list
                of them for a pointer to maps, an int or a float.
            dynamic_smem: dynamic shared memory per block, in bytes.
            cluster: blocks per cluster in x, y, z; by default as compiled.

        Raises:
            LaunchError: a limit is exceeded, or arguments do not fit.
            EmulationError: an error in the kernel, on the emulator.
            DeviceError: an error from the driver, on a GPU.
        """

    def runtime(self, artifact: Artifact) -> AbstractContextManager[Runtime]:
        """Return the runtime of one host flow. All work is complete when the context ends."""

    def versions(self) -> dict[str, str]:
        """Return the driver and library versions needed to reproduce a result."""


def check_compiled_block(artifact: Artifact, block: Dim3) -> None:
    """Raise LaunchError if the kernel was compiled for another block size."""
    if artifact.block is not None and artifact.block != block:
        raise LaunchError(
            f"block {block}: {artifact.entry} was compiled for block {artifact.block} only"
        )


def check_managed(wanted: int, free: int, device: str) -> None:
    """Raise DeviceError if more managed memory is requested than the device has free (bytes).

    The driver would grant it and then move pages back and forth while a kernel runs.
    """
    if wanted > free:
        raise DeviceError(
            f"{wanted} bytes of managed memory requested, {free} are free on {device}"
        )
