"""The interface that a device offers to a flow: memory, queues and clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from gemmlab.devices.device import Buffer, Dim3, Span
from gemmlab.errors import DeviceError

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


def check_managed(wanted: int, free: int, device: str) -> None:
    """Raise DeviceError if more managed memory is requested than the device has free (bytes).

    The driver would grant it and then move pages back and forth while a kernel runs.
    """
    if wanted > free:
        raise DeviceError(
            f"{wanted} bytes of managed memory requested, {free} are free on {device}"
        )
