"""gemmlab's device memory as arrays of CuPy and PyTorch, without a copy, on gemmlab's stream."""

from __future__ import annotations

from functools import cache
from typing import Any

from gemmlab.core.packages import CUPY, TORCH
from gemmlab.devices.cuda import CudaBuffer, CudaDevice
from gemmlab.devices.device import Span


class DeviceArray:
    """`shape` elements of `dtype` in device memory; strides in elements, None for contiguous.

    Speaks the CUDA Array Interface, version 3, and names no stream to wait for.
    """

    def __init__(
        self,
        span: Span,
        shape: tuple[int, ...],
        dtype: str,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        assert isinstance(span.buffer, CudaBuffer)
        size = int(dtype[-1])
        self.span = span  # keeps the memory
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype,
            "data": (span.buffer.address + span.offset, False),
            "strides": None if strides is None else tuple(size * step for step in strides),
            "stream": None,
        }


def matrix(span: Span, rows: int, columns: int, leading: int, row_major: bool) -> DeviceArray:
    """A float32 matrix; `leading` elements from one row (column) to the next."""
    strides = (leading, 1) if row_major else (1, leading)
    return DeviceArray(span, (rows, columns), "<f4", strides)


def cupy_on(device: CudaDevice) -> Any:
    """CuPy, its work on the device's stream. Raises MissingDependencyError."""
    cupy = CUPY.load()
    _enter_stream(cupy, device)
    return cupy


def torch_on(device: CudaDevice) -> Any:
    """PyTorch, its work on the device's stream and TF32 off. Raises MissingDependencyError."""
    torch: Any = TORCH.load()
    torch.cuda.set_stream(torch.cuda.ExternalStream(int(device.stream.handle)))
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


@cache
def _enter_stream(cupy: Any, device: CudaDevice) -> Any:
    """For good. One that is only `use`d is forgotten when a library leaves a `with` of its own."""
    return cupy.cuda.Stream.from_external(device.stream).__enter__()
