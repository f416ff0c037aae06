"""The `__device__` and `__constant__` variables of a kernel's module, as a Python mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from gemmlab.compile.artifact import Artifact, VariableType
from gemmlab.errors import DeviceError, DTypeError, ShapeError, UnknownNameError
from gemmlab.ptx.parser import parse


class Variables(MutableMapping[str, Any]):
    """The module's variables by name, as the last launch left them and the next launch finds them.

    Reading returns a read-only copy, or a NumPy scalar. A value to set must have the declared
    shape; an array must also have the declared dtype, while numbers and lists are converted.

    Raises:
        UnknownNameError: the module has no variable of that name.
        ShapeError: a value does not have the declared shape.
        DTypeError: an array does not have the declared dtype, or a variable is deleted.
        DeviceError: a GPU's driver cannot find the variable.

    Examples:
        >>> kernel = gemmlab.load(
        ...     "__constant__ float scale; __device__ int calls;"
        ...     "__global__ void multiply(float *x) { *x *= scale; calls++; }"
        ... )
        >>> kernel.variables["scale"] = 3
        >>> x = np.ones(1, np.float32)
        >>> run = gemmlab.emulate(kernel, grid=1, block=1, args=[x])
        >>> x.item(), kernel.variables["calls"].item()
        (3.0, 1)
    """

    def __init__(self, images: Mapping[VariableType, bytes]) -> None:
        """`images` has the initial bytes of each variable, padded with zeros to its size."""
        self._types = {type_.name: type_ for type_ in images}
        self._set: set[str] = set()  # PTX names
        self._missing: dict[str, str] = {}  # PTX name -> the device that lacks the variable
        # PTX name -> bytes. A device reads them before a launch and writes them after it.
        self.images: dict[str, np.ndarray] = {}
        for type_, initial in images.items():
            image = np.zeros(type_.nbytes, np.uint8)
            image[: len(initial)] = np.frombuffer(initial, np.uint8)
            self.images[type_.symbol] = image

    def mark_missing(self, symbol: str, device: str) -> None:
        """Record that the driver of a device does not find the variable by name.

        Reading it is an error from then on. Raises DeviceError if it was set.
        """
        self._missing[symbol] = device
        if symbol in self._set:
            raise self._missing_error(symbol)

    def _missing_error(self, symbol: str) -> DeviceError:
        (name,) = (name for name, type_ in self._types.items() if type_.symbol == symbol)
        why = f"the driver of {self._missing[symbol]} does not find it by name"
        return DeviceError(f"variable {name}: {why}; declare it outside functions, not static")

    def __getitem__(self, name: str) -> Any:
        type_ = self._type(name)
        if type_.symbol in self._missing:
            raise self._missing_error(type_.symbol)
        value = self.images[type_.symbol].view(type_.dtype).reshape(type_.shape).copy()
        value.flags.writeable = False  # a write to the copy would not reach the variable
        return value[()]

    def __setitem__(self, name: str, value: Any) -> None:
        type_ = self._type(name)
        self.images[type_.symbol][:] = _array(type_, value).reshape(-1).view(np.uint8)
        self._set.add(type_.symbol)

    def __delitem__(self, name: str) -> None:
        raise DTypeError(f"the variable {self._type(name).name} cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {_text(type_)}" for name, type_ in self._types.items())
        return f"Variables({types})"

    def _type(self, name: str) -> VariableType:
        if name not in self._types:
            known = ", ".join(self._types) or "none"
            raise UnknownNameError(f"the kernel's module has no variable {name!r}; it has: {known}")
        return self._types[name]


def of(artifact: Artifact) -> Variables:
    """Return an artifact's variables with the initial values in its PTX."""
    types = {type_.symbol: type_ for type_ in artifact.variable_types}
    declared = parse(artifact.ptx).variables if types else []
    return Variables({types[v.name]: v.initial for v in declared if v.name in types})


def _array(type_: VariableType, value: Any) -> np.ndarray:
    """Convert a value for a variable. Raises ShapeError and DTypeError."""
    what = f"variable {type_.name} is {_text(type_)}"
    if isinstance(value, (bytes, bytearray)):
        if len(value) != type_.nbytes:
            raise ShapeError(f"{what}, {type_.nbytes} bytes; {len(value)} bytes do not fit")
        return np.frombuffer(value, np.uint8)
    if not isinstance(value, (np.ndarray, np.generic)):
        try:
            if np.array(value).dtype.kind == "f" and np.dtype(type_.dtype).kind != "f":
                raise ValueError("the conversion would lose digits")
            value = np.array(value, type_.dtype)
        except (TypeError, ValueError, OverflowError):
            raise DTypeError(f"{what}; {value!r} does not fit") from None
    if value.dtype != type_.dtype:
        raise DTypeError(f"{what}, not {value.dtype}")
    if value.shape != type_.shape:
        raise ShapeError(f"{what}, not of shape {value.shape}")
    return np.ascontiguousarray(value)


def _text(type_: VariableType) -> str:
    return f"{type_.dtype}{list(type_.shape)}" if type_.shape else type_.dtype
