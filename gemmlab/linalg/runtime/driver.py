"""Launches through the CUDA driver, prepared once: tensor maps, arguments, launch configuration.

`cuda.core.launch` converts its arguments at every call; here they are bytes that the driver reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver as cu
from cuda.pathfinder import DynamicLibNotFoundError

from gemmlab.compile.artifact import Artifact
from gemmlab.core.tensor_map import TensorMap
from gemmlab.devices import tensor_maps
from gemmlab.devices.device import Dim3
from gemmlab.errors import DeviceError
from gemmlab.hardware.limits import STATIC_SMEM
from gemmlab.linalg.runtime.executor import Call

_C_TYPES: dict[str, Any] = {
    "u64": ctypes.c_uint64,
    "u32": ctypes.c_uint32,
    "s32": ctypes.c_int32,
    "f32": ctypes.c_float,
}


def call(function: Any, *args: Any) -> Any:
    """Call the driver; DeviceError names the function and what it said, or tells of no driver."""
    try:
        error, *values = function(*args)
    except DynamicLibNotFoundError as missing:
        raise DeviceError(f"{function.__name__}: {missing}") from missing
    if int(error) != 0:
        raise DeviceError(f"{function.__name__}: {error.name}")
    return values[0] if values else None


@contextmanager
def relaxed() -> Iterator[None]:
    """Let this thread load code, and make and destroy graphs, while a stream is recorded."""
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call(cu.cuThreadExchangeStreamCaptureMode, mode)
    try:
        yield
    finally:
        call(cu.cuThreadExchangeStreamCaptureMode, before)


def load(artifact: Artifact) -> Any:
    """The artifact's kernel as a function of the current context."""
    assert artifact.cubin is not None
    module = call(cu.cuModuleLoadData, artifact.cubin)
    return call(cu.cuModuleGetFunction, module, artifact.entry.encode())


def _attributes(cluster: Dim3) -> list[Any]:
    """Blocks per cluster, and leave to be set up before the kernel before has ended."""
    size, early = cu.CUlaunchAttribute(), cu.CUlaunchAttribute()
    size.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    size.value.clusterDim.x, size.value.clusterDim.y, size.value.clusterDim.z = cluster
    early.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    return [size, early]


class Prepared:
    """A launch that only needs its stream."""

    def __init__(self, function: Any, bound: Call) -> None:
        self._function = function
        self._values = [
            ctypes.create_string_buffer(tensor_maps.encode(value, value.array), 128)
            if isinstance(value, TensorMap)
            else _C_TYPES[parameter.ptx_type](value)
            for parameter, value in zip(bound.artifact.parameters, bound.args, strict=True)
        ]
        pointers = [ctypes.addressof(value) for value in self._values]
        self._pointers = (ctypes.c_void_p * len(pointers))(*pointers)
        self._config = cu.CUlaunchConfig()
        config = self._config
        config.gridDimX, config.gridDimY, config.gridDimZ = bound.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = bound.block
        config.sharedMemBytes = bound.dynamic_smem
        config.attrs = _attributes(bound.cluster or (1, 1, 1))
        config.numAttrs = len(config.attrs)
        if bound.dynamic_smem > STATIC_SMEM:
            name = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(cu.cuFuncSetAttribute, function, name, bound.dynamic_smem)

    def launch(self, stream: int) -> None:
        """Enqueue on the stream with that handle."""
        self._config.hStream = stream
        address = ctypes.addressof(self._pointers)
        call(cu.cuLaunchKernelEx, self._config, self._function, address, 0)
