"""Tensor maps on a GPU: encode them with the driver and launch kernels that take them.

cuda.core.launch passes only pointers and numbers, so these launches call the driver directly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from gemmlab.core.tensor_map import TensorMap
from gemmlab.devices.device import Dim3
from gemmlab.errors import DeviceError

FORMAT = "CU_TENSOR_MAP_DATA_TYPE_"
FILLS = {"zeros": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}


def encode(tensor_map: TensorMap, address: int) -> bytes:
    """Return the 128 bytes of a CUtensorMap. Raises DeviceError if the driver rejects it."""
    axes = [
        [cu.cuuint64_t(n) for n in tensor_map.shape[::-1]],
        # The driver takes no stride for the innermost axis, but requires at least one stride.
        [
            cu.cuuint64_t(n)
            for n in (*tensor_map.strides[-2::-1], 16)[: max(1, _rank(tensor_map) - 1)]
        ],
        [cu.cuuint32_t(n) for n in tensor_map.box[::-1]],
        [cu.cuuint32_t(n) for n in tensor_map.element_strides[::-1]],
    ]
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{tensor_map.swizzle.upper()}"
    fill = f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{FILLS[tensor_map.fill]}"
    error, encoded = cu.cuTensorMapEncodeTiled(
        getattr(cu.CUtensorMapDataType, FORMAT + tensor_map.format.upper()),
        _rank(tensor_map),
        address,
        *axes,
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cu.CUtensorMapSwizzle, swizzle),
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        getattr(cu.CUtensorMapFloatOOBfill, fill),
    )
    if int(error) != 0:
        raise DeviceError(f"cuTensorMapEncodeTiled at {address:#x}: {error.name}")
    return np.array([int(word) for word in encoded.opaque], np.uint64).tobytes()


def _rank(tensor_map: TensorMap) -> int:
    return len(tensor_map.shape)


def launch_config(grid: Dim3, block: Dim3, dynamic_smem: int, cluster: Dim3) -> Any:
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = dynamic_smem
    if cluster != (1, 1, 1):
        size = cu.CUlaunchAttribute()
        size.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size.value.clusterDim.x, size.value.clusterDim.y, size.value.clusterDim.z = cluster
        config.attrs, config.numAttrs = [size], 1
    return config


def launch(stream: Any, config: Any, kernel: Any, args: Sequence[np.generic | bytes]) -> None:
    """Enqueue a kernel of cuda.core on a stream, given its handle. `bytes` args are tensor maps."""
    config.hStream = stream
    error, function = cu.cuKernelGetFunction(kernel.handle)
    raw = [arg if isinstance(arg, bytes) else arg.tobytes() for arg in args]
    values = [ctypes.create_string_buffer(data, len(data)) for data in raw]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    if int(error) == 0:
        (error,) = cu.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)
    if int(error) != 0:
        raise DeviceError(f"cuLaunchKernelEx: {error.name}")
