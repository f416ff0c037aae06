"""Zero-copy CuPy and PyTorch arrays of gemmlab's device memory, on gemmlab's stream."""

from __future__ import annotations

from functools import cache
from typing import Any

from gemmlab.core.packages import CUPY, TORCH
from gemmlab.devices.cuda import CudaBuffer, CudaDevice
from gemmlab.devices.device import Span


class DeviceArray:
    """An array of `shape` and `dtype` in device memory; strides in elements, None for contiguous.

    Implements the CUDA Array Interface, version 3, without a stream to synchronize with.
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
        self.span = span  # keeps the memory alive
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype,
            "data": (span.buffer.address + span.offset, False),
            "strides": None if strides is None else tuple(size * step for step in strides),
            "stream": None,
        }


def matrix(span: Span, rows: int, columns: int, leading: int, row_major: bool) -> DeviceArray:
    """Return a float32 matrix; `leading` is the leading dimension in elements."""
    strides = (leading, 1) if row_major else (1, leading)
    return DeviceArray(span, (rows, columns), "<f4", strides)


def cupy_on(device: CudaDevice) -> Any:
    """Return CuPy, set to the device's stream. Raises MissingDependencyError."""
    cupy = CUPY.load()
    _enter_stream(cupy, device)
    return cupy


def torch_on(device: CudaDevice) -> Any:
    """Return PyTorch, set to the device's stream, TF32 off. Raises MissingDependencyError."""
    torch: Any = TORCH.load()
    torch.cuda.set_stream(torch.cuda.ExternalStream(int(device.stream.handle)))
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


@cache
def _enter_stream(cupy: Any, device: CudaDevice) -> Any:
    """Make the device's stream current permanently.

    Stream.use() would not suffice: its effect ends when a library leaves its own `with` block.
    """
    return cupy.cuda.Stream.from_external(device.stream).__enter__()
