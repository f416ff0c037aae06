"""GPUs: the properties that plans depend on, and their primary contexts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

from cuda.bindings import driver as cu

from gemmlab.linalg.runtime.driver import call


@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU that a plan depends on."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int


@cache
def gpu(ordinal: int) -> Gpu:
    """Return the properties of GPU number `ordinal`. Raises DeviceError."""
    call(cu.cuInit, 0)
    device, names = call(cu.cuDeviceGet, ordinal), cu.CUdevice_attribute
    major, minor, sms = (
        call(cu.cuDeviceGetAttribute, name, device)
        for name in (
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            names.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        )
    )
    name = call(cu.cuDeviceGetName, 256, device).split(b"\0")[0].decode()
    return Gpu(name, (major, minor), sms)


@cache
def primary_context(device: int) -> Any:
    return call(cu.cuDevicePrimaryCtxRetain, call(cu.cuDeviceGet, device))


def is_current(device: int) -> bool:
    """Whether the GPU's primary context is this thread's current context."""
    current: bool = cu.cuCtxGetCurrent()[1] == primary_context(device)
    return current


class current(AbstractContextManager[None]):
    """Makes the GPU's primary context current within a block, if it is not already."""

    def __init__(self, device: int) -> None:
        self._context, self._pushed = primary_context(device), False

    def __enter__(self) -> None:
        if call(cu.cuCtxGetCurrent) != self._context:
            call(cu.cuCtxPushCurrent, self._context)
            self._pushed = True

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            call(cu.cuCtxPopCurrent)
