"""Flows on the emulator: operations run when the flow waits for them, and are not timed.

A flow that reads a result without waiting for it therefore always reads the old contents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices.device import Clock, Dim3, Span, Times
from gemmlab.devices.emulated import EmulatedDevice, HostBuffer, view


def _untimed() -> None:
    return None


_UNTIMED = (_untimed, _untimed)


class SharedBuffer(HostBuffer):
    """Managed memory: host and device share one array."""

    @property
    def array(self) -> np.ndarray:
        return self.data


class EmulatedQueue:
    """A stream whose operations run when `wait` is called."""

    def __init__(self, runtime: EmulatedRuntime) -> None:
        self._runtime = runtime
        self._work: list[Callable[[], None]] = []

    def copy_in(self, to: Span, source: np.ndarray) -> Times:
        self._work.append(partial(np.copyto, view(to), source.view(np.uint8)))
        return _UNTIMED

    def copy_out(self, to: np.ndarray, source: Span) -> Times:
        self._work.append(partial(np.copyto, to.view(np.uint8), view(source)))
        return _UNTIMED

    def prefetch(self, memory: Span, to_device: bool) -> Times:
        return _UNTIMED  # nothing to do: host and device share the memory

    def launch(
        self, grid: Dim3, block: Dim3, args: Sequence[Span | int], dynamic_smem: int
    ) -> Times:
        self._work.append(partial(self._runtime.launch, grid, block, args, dynamic_smem))
        return _UNTIMED

    def wait(self) -> None:
        work, self._work = self._work, []
        for do in work:
            do()


class EmulatedRuntime:
    """One run of a flow around one kernel."""

    def __init__(self, device: EmulatedDevice, artifact: Artifact) -> None:
        self._device, self._artifact = device, artifact
        self.counters: Counter[str] = Counter()

    def managed(self, nbytes: int) -> SharedBuffer:
        return SharedBuffer(nbytes)

    def pinned(self, nbytes: int) -> np.ndarray:
        return np.zeros(nbytes, np.uint8)

    def queue(self) -> EmulatedQueue:
        return EmulatedQueue(self)

    def now(self) -> Clock:
        return _untimed

    def launch(
        self, grid: Dim3, block: Dim3, args: Sequence[Span | int], dynamic_smem: int
    ) -> None:
        launched = self._device.launch(self._artifact, grid, block, args, dynamic_smem)
        self.counters.update(launched.counters or {})
