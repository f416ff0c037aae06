"""Launches through the CUDA driver, whose tensor maps, arguments and configuration are built once.

`cuda.core.launch` converts its arguments at every call; here the driver reads prepared bytes.
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
    """Call the driver and return its first result.

    Raises DeviceError with the function and its error code, or if there is no driver.
    """
    try:
        error, *values = function(*args)
    except DynamicLibNotFoundError as missing:
        raise DeviceError(f"{function.__name__}: {missing}") from missing
    if int(error) != 0:
        raise DeviceError(f"{function.__name__}: {error.name}")
    return values[0] if values else None


@contextmanager
def relaxed() -> Iterator[None]:
    """Allow this thread to load code and to create and destroy graphs during stream capture."""
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call(cu.cuThreadExchangeStreamCaptureMode, mode)
    try:
        yield
    finally:
        call(cu.cuThreadExchangeStreamCaptureMode, before)


def load(artifact: Artifact) -> Any:
    """Load the artifact's kernel into the current context."""
    assert artifact.cubin is not None
    module = call(cu.cuModuleLoadData, artifact.cubin)
    return call(cu.cuModuleGetFunction, module, artifact.entry.encode())


def _attributes(cluster: Dim3) -> list[Any]:
    """Return launch attributes: the cluster size and programmatic dependent launch.

    The latter lets the kernel start before the previous kernel on the stream has finished.
    """
    size, early = cu.CUlaunchAttribute(), cu.CUlaunchAttribute()
    size.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    size.value.clusterDim.x, size.value.clusterDim.y, size.value.clusterDim.z = cluster
    early.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    return [size, early]


class Prepared:
    """A launch that is ready except for its stream."""

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
        """Enqueue the launch on a stream, given its handle."""
        self._config.hStream = stream
        address = ctypes.addressof(self._pointers)
        call(cu.cuLaunchKernelEx, self._config, self._function, address, 0)
