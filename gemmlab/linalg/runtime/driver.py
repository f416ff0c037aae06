"""Calls of the CUDA driver, whose errors become exceptions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cuda import bindings
from cuda.bindings import driver as cu
from cuda.pathfinder import DynamicLibNotFoundError

from gemmlab.compile.artifact import Artifact
from gemmlab.errors import DeviceError


def call(function: Any, *args: Any) -> Any:
    """Call the driver and return its first result. Raises as `results`."""
    values = results(function, *args)
    return values[0] if values else None


def results(function: Any, *args: Any) -> list[Any]:
    """Call the driver and return its results.

    Raises DeviceError with the function and its error code, or if there is no driver or it lacks
    the function.
    """
    values: list[Any]
    try:
        error, *values = function(*args)
    except DynamicLibNotFoundError as missing:
        raise DeviceError(f"{function.__name__}: {missing}") from missing
    except RuntimeError as missing:
        raise DeviceError(
            f"{function.__name__}: {missing}; the driver is older than cuda-bindings "
            f"{bindings.__version__} needs. For CUDA 12, run: pip install 'gemmlab[cu12]'"
        ) from missing
    if int(error) != 0:
        raise DeviceError(f"{function.__name__}: {error.name}")
    return values


@cache
def library() -> Any:
    """The driver's C interface, for calls that each product makes.

    The Python bindings, which have loaded it before, take as long as the driver itself.
    """
    return ctypes.CDLL("libcuda.so.1")


def failed(function: str, status: int) -> DeviceError:
    """Return the error for a status of the C interface."""
    return DeviceError(f"{function}: {cu.CUresult(status).name}")


@contextmanager
def relaxed() -> Iterator[None]:
    """Allow this thread to load code and to create and destroy graphs during stream capture."""
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call(cu.cuThreadExchangeStreamCaptureMode, mode)
    try:
        yield
    finally:
        call(cu.cuThreadExchangeStreamCaptureMode, before)


def copy_rows(
    addresses: tuple[int, int], pitches: tuple[int, int], shape: tuple[int, int], stream: int
) -> None:
    """Enqueue a copy of rows; `shape` is their number and their bytes.

    addresses and pitches: of the target and of the source, on any GPUs.
    """
    copy = cu.CUDA_MEMCPY2D()
    copy.dstMemoryType = copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_UNIFIED
    copy.dstDevice, copy.srcDevice = addresses
    copy.dstPitch, copy.srcPitch = pitches
    copy.Height, copy.WidthInBytes = shape
    call(cu.cuMemcpy2DAsync, copy, stream)


def load(artifact: Artifact) -> Any:
    """Load the artifact's kernel into the current context."""
    assert artifact.cubin is not None
    module = call(cu.cuModuleLoadData, artifact.cubin)
    return call(cu.cuModuleGetFunction, module, artifact.entry.encode())
