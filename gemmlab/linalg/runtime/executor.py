"""Planned launches, bound to their compiled kernels and run on a device.

A product is a list of launches (`linalg/planning`). `bind` turns each into what `Device.launch`
takes. Addresses are spans of the device's memory, for the lab and the tests, or numbers, for
`driver.py` and `graph.py`, which launch through the CUDA driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gemmlab import problems
from gemmlab.compile.artifact import Artifact
from gemmlab.core.tensor_map import CHUNK, FORMATS, TensorMap
from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.device import Argument, Buffer, Device, Dim3, Launched, Span
from gemmlab.kernels.rung import Rung
from gemmlab.linalg.planning.launch import Map, PlannedLaunch
from gemmlab.linalg.runtime.kernels import arguments, artifacts
from gemmlab.problems.problem import WORKSPACE


class Call(NamedTuple):
    """A launch as `Device.launch` takes it."""

    artifact: Artifact
    grid: Dim3
    block: Dim3
    args: list[Any]  # tensor maps, then the kernel's other arguments in its order
    dynamic_smem: int
    cluster: Dim3 | None


def bind(launch: PlannedLaunch, artifact: Artifact) -> Call:
    """Bind a launch to its compiled kernel. Raises the errors of `arguments`."""
    args = [*map(_tensor_map, launch.maps), *arguments(launch, artifact)]
    cluster = None if launch.cluster == 1 else (launch.cluster, 1, 1)
    return Call(artifact, launch.grid, launch.block, args, launch.dynamic_smem, cluster)


def calls(
    rung: Rung, shape: Mapping[str, int], given: Mapping[str, Any], artifact: Artifact
) -> Iterator[Call]:
    """Yield all launches of a rung that has several, bound to their kernels.

    `given` are the problem's arguments and the workspace by name; `artifact` is the rung's kernel.
    Raises the errors of `artifacts` and `bind`.
    """
    for kernel, launch in artifacts(rung, shape, given, artifact):
        yield bind(launch, kernel)


def run(device: Device, calls: Iterable[Call]) -> Launched:
    """Run launches in order, each to completion; return the sums of their counters and times.

    Raises the errors of `Device.launch`.
    """
    counters: Counter[str] = Counter()
    seconds: list[float] = []
    for call in calls:
        found = device.launch(*call)
        counters.update(found.counters or {})
        seconds += [] if found.time_s is None else [found.time_s]
    return Launched(dict(counters) or None, sum(seconds) if seconds else None)


class Chain:
    """A device for one rung and shape: launching the kernel runs all launches of the rung."""

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
        """Run all launches with `run`."""
        return run(self._device, self._calls(artifact, args))

    def measure(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> float:
        """Return the GPU time in seconds: the sum over launches of each one's median time."""
        assert isinstance(self._device, CudaDevice)
        return sum(self._device.measure(*call) for call in self._calls(artifact, args))

    def _calls(self, artifact: Artifact, args: Sequence[Argument]) -> Iterator[Call]:
        names = [p.name for p in (*problems.find(self._rung.problem).parameters, WORKSPACE)]
        given = dict(zip(names, args, strict=True))
        return calls(self._rung, self._shape, given, artifact)


def chained(device: Any, rung: Rung, shape: Mapping[str, int]) -> Any:
    """Return the device, wrapped in a Chain if the rung has several launches."""
    return device if rung.launches is None else Chain(device, rung, shape)


def _tensor_map(wanted: Map) -> TensorMap:
    """Return the tensor map for a planned Map: swizzled boxes, zeros outside the tensor.

    Kernels do without a map that is not required if its tensor is not aligned. They then get a map
    of the elements from the aligned address before the tensor to its first element, so that the
    emulator does not move the tensor to an aligned address.
    """
    address, shape, strides = wanted.address, wanted.shape, wanted.strides
    if not wanted.required:
        assert isinstance(address, Span)
        if any(x % CHUNK for x in (address.offset, *strides)):
            beyond = address.offset % CHUNK
            address += -beyond
            shape, strides = (beyond // FORMATS["float32"] + 1, 1, 1), (CHUNK, CHUNK)
    across, down = strides
    return TensorMap(
        address,
        (1, wanted.copy.lines, wanted.copy.line),
        "128B",
        format=wanted.copy.dtype,
        shape=shape[::-1],
        strides=(down, across, FORMATS[wanted.copy.dtype]),
    )
