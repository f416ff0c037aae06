"""Launches of a plan on the emulated device, whose memory here is that of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.devices.device import Span
from gemmlab.devices.emulated import EmulatedDevice, HostBuffer
from gemmlab.linalg.planning.launch import PlannedLaunch
from gemmlab.linalg.runtime import executor
from gemmlab.linalg.runtime.kernels import artifact_of


class DeviceImage:
    """An emulated device, and arrays in its memory."""

    def __init__(self, **checks: Any) -> None:
        """checks: `check` and `order` of the device; a finding is an error."""
        self._device = EmulatedDevice(**checks)

    def place(self, array: np.ndarray) -> Span:
        """The array as device memory; launches change the array itself."""
        buffer = HostBuffer(0)
        buffer.data, buffer.nbytes = array.reshape(-1).view(np.uint8), array.nbytes
        return Span(buffer, 0, array.nbytes)

    def run(self, launch: PlannedLaunch) -> None:
        """Run one launch to its end."""
        executor.run(self._device, [executor.bind(launch, artifact_of(launch))])
