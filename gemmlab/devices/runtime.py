"""What a device gives to the host side of a kernel: memory, queues of work, and the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from gemmlab.devices.device import Buffer, Dim3, Span
from gemmlab.errors import DeviceError

Clock = Callable[[], float | None]  # milliseconds, read when all work is done; None: not timed
Times = tuple[Clock, Clock]  # when an operation began and ended


class Shared(Buffer, Protocol):
    """Managed memory."""

    @property
    def array(self) -> np.ndarray:
        """Its bytes, as the host sees them."""


class Queue(Protocol):
    """One stream of a device. Work is done in order, at the latest when it is waited for."""

    def copy_in(self, to: Span, source: np.ndarray) -> Times: ...

    def copy_out(self, to: np.ndarray, source: Span) -> Times: ...

    def prefetch(self, memory: Span, to_device: bool) -> Times: ...

    def launch(
        self, grid: Dim3, block: Dim3, args: Sequence[Span | int], dynamic_smem: int
    ) -> Times: ...

    def wait(self) -> None: ...


class Runtime(Protocol):
    """For one run around one kernel. What it gave is taken back at the end."""

    @property
    def counters(self) -> Mapping[str, int] | None:
        """Of all launches that are done; None where the device does not count."""

    def managed(self, nbytes: int) -> Shared: ...

    def pinned(self, nbytes: int) -> np.ndarray:
        """Bytes of page-locked host memory."""

    def queue(self) -> Queue: ...

    def now(self) -> Clock:
        """The time by the host's clock, from the same zero as the queues' times."""


def check_managed(wanted: int, free: int, device: str) -> None:
    """Raise DeviceError for more managed memory than the device has free, in bytes.

    The driver would grant it, and move pages to and fro while a kernel runs.
    """
    if wanted > free:
        raise DeviceError(f"{wanted} bytes of managed memory wanted, {free} are free on {device}")
