"""Rungs of several launches, run where a device is asked for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gemmlab import problems
from gemmlab.compile.artifact import Artifact
from gemmlab.core.tensor_map import FORMATS, TensorMap
from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.device import Argument, Buffer, Device, Dim3, Launched
from gemmlab.kernels.gemm.sm90.config import LINE
from gemmlab.kernels.rung import Rung
from gemmlab.linalg.planning.plan import Launch, Map
from gemmlab.linalg.runtime.kernels import arguments, artifact_of
from gemmlab.problems.problem import WORKSPACE


class Chain:
    """A device for one rung at one shape; what it is asked to launch is the rung's own kernel."""

    def __init__(self, device: Device, rung: Rung, shape: Mapping[str, int]) -> None:
        self._device, self._rung, self._shape = device, rung, shape
        self.name, self.arch = device.name, device.arch

    def allocate(self, nbytes: int) -> Buffer:
        return self._device.allocate(nbytes)

    def launch(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> Launched:
        """Run all launches to the end; their counters and times together. Raises as a device."""
        counters: Counter[str] = Counter()
        seconds: list[float] = []
        for code, launch in self._launches(artifact, args):
            found = self._device.launch(code, *_call(launch, code))
            counters.update(found.counters or {})
            seconds += [] if found.time_s is None else [found.time_s]
        return Launched(dict(counters) or None, sum(seconds) if seconds else None)

    def measure(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> float:
        """Seconds of a GPU: the sum of all launches, each the median of its own repetitions."""
        assert isinstance(self._device, CudaDevice)
        return sum(
            self._device.measure(code, *_call(launch, code))
            for code, launch in self._launches(artifact, args)
        )

    def _launches(
        self, artifact: Artifact, args: Sequence[Argument]
    ) -> Iterator[tuple[Artifact, Launch]]:
        assert self._rung.launches is not None
        names = [p.name for p in (*problems.find(self._rung.problem).parameters, WORKSPACE)]
        given = dict(zip(names, args, strict=True))
        for launch in self._rung.launches(self._rung.config, self._shape, given):
            own = launch.config == self._rung.config
            yield artifact if own else artifact_of(launch, self.arch), launch


def chained(device: Any, rung: Rung, shape: Mapping[str, int]) -> Any:
    """The device itself, or one that runs all launches of a rung that has several."""
    return device if rung.launches is None else Chain(device, rung, shape)


def tensor_map(wanted: Map, array: Any = None) -> TensorMap:
    """What `TensorMap` says of a plan's map: a box is swizzled, and zero where it leaves the
    tensor."""
    across, down = wanted.strides
    return TensorMap(
        array,
        (1, wanted.copy.lines, LINE),
        "128B",
        format=wanted.copy.dtype,
        shape=wanted.shape[::-1],
        strides=(down, across, FORMATS[wanted.copy.dtype]),
    )


def _call(launch: Launch, artifact: Artifact) -> tuple[Dim3, Dim3, list[Any], int, Dim3 | None]:
    """What `Device.launch` takes; the plan's addresses are spans of the device's memory."""
    args = [
        *(tensor_map(wanted, wanted.address) for wanted in launch.maps),
        *arguments(launch, artifact),
    ]
    cluster = None if launch.cluster == 1 else (launch.cluster, 1, 1)
    return launch.grid, launch.block, args, launch.dynamic_smem, cluster
