"""CuPy: descriptions of its arrays, and memory from its allocator."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

from gemmlab.errors import ArrayError
from gemmlab.linalg.arrays import ArrayDescriptor, Describer, as_context, within

_ITEM = 4  # bytes of a float32


class CuPy:
    name = "cupy"

    def __init__(self) -> None:
        self._cupy = importlib.import_module("cupy")
        self.from_dlpack = self._cupy.from_dlpack
        self._cuda = self._cupy.cuda
        self._current_stream = self._cuda.get_current_stream
        self._object_of = lru_cache(256)(self._stream_of)

    def describe(self, array: Any) -> ArrayDescriptor:
        shape, strides, data = array.shape, array.strides, array.data
        if any(stride % _ITEM for stride in strides):
            rule = f"not multiples of {_ITEM} bytes"
            raise ArrayError(f"an array of shape {shape} and strides {strides}: {rule}")
        steps = tuple([stride // _ITEM for stride in strides])
        return ArrayDescriptor(data.ptr, shape, steps, array.dtype, data.device_id)

    def address(self, array: Any) -> int:
        return array.data.ptr  # type: ignore[no-any-return]

    def matcher(self, array: Any, shaped: bool = True) -> Callable[[Any], bool]:
        # Faster than `match_by_form`: stops at the first difference and describes no array.
        kind, shape, strides, dtype = type(array), array.shape, array.strides, array.dtype
        device = array.data.device_id

        def matches(other: Any) -> bool:
            return (
                type(other) is kind
                and other.strides == strides
                and (other.dtype is dtype or other.dtype == dtype)
                and other.data.device_id == device
            )

        return (lambda x: matches(x) and x.shape == shape) if shaped else matches

    def describer(self, a: Any, b: Any) -> Describer | None:
        return None

    def is_on_host(self, array: Any) -> bool:
        return False

    def has_gpu(self) -> bool:
        return bool(self._cuda.is_available())

    def check_kind(self, kind: type) -> None:
        """All CuPy arrays have memory."""

    def stream(self, device: int) -> int:
        return self._current_stream(device).ptr  # type: ignore[no-any-return]

    def entered(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        if stream is not None:
            return as_context(self._object_of(stream, device))
        if self._cuda.runtime.getDevice() == device:
            return nullcontext()
        return as_context(self._cuda.Device(device))

    def maker(
        self, shape: tuple[int, ...], device: int, stream: int | None = None
    ) -> Callable[[], Any]:
        make = partial(self._cupy.ndarray, shape, self._cupy.float32)
        if stream is None:
            return make
        entered = self._object_of(stream, device)
        return within(lambda: entered, make)

    def _stream_of(self, handle: int, device: int) -> Any:
        # NOTE: CuPy 14 deprecates it, but its Stream.from_external destroys the caller's stream.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._cuda.ExternalStream(handle, device)

    def kept(self, make: Callable[[], Any]) -> Any:
        return make()

    def copied(self, array: Any, shape: tuple[int, ...]) -> Any:
        copy = self.maker(shape, array.device.id)()
        copy[...] = array
        return copy

    def assign(self, target: Any, source: Any) -> None:
        target[...] = source

    def scale(self, target: Any, factor: float) -> None:
        if factor:
            target *= factor
        else:
            target.fill(0)
