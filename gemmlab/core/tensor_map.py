"""Tensor maps: descriptions of arrays for Hopper's Tensor Memory Accelerator (TMA).

A kernel takes a tensor map as a 128-byte parameter (CUtensorMap), as a member of a struct, or by a
pointer to global memory. The emulator and a GPU each encode the bytes from a TensorMap at launch.
Rules and terms follow cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gemmlab.errors import DTypeError, InputError, ShapeError

Swizzle = Literal["none", "32B", "64B", "128B"]
Fill = Literal["zeros", "nan"]

MAX_RANK, MAX_BOX, MAX_ELEMENT_STRIDE = 5, 256, 8
MAX_DIM, MAX_STRIDE = 1 << 32, 1 << 40
POINTER_BYTES = 8
CHUNK = 16  # bytes; addresses, strides and the rows of a box are multiples of it
SWIZZLE_SPAN = {"none": None, "32B": 32, "64B": 64, "128B": 128}  # longest row of a box, bytes
# Element format -> bytes. "bfloat16" also describes uint16 arrays, "tfloat32" float32 arrays.
FORMATS = {
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "tfloat32": 4,
}
# Formats that TMA does not have: it copies these types as unsigned integers.
PLAIN = {"int8": "uint8", "int16": "uint16", "bool": "uint8"}
PLAIN |= {"float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


@dataclass(frozen=True, eq=False)
class TensorMap:
    """The box of an array that one TMA copy moves, and the box's layout in shared memory.

    Attributes:
        array: a NumPy array for the emulator, or a Span of GPU memory together with `shape` and
            `format`. 1 to 5 axes; the last one is contiguous, other strides are multiples of 16
            bytes.
        box: elements along each axis, in the order of the array's axes: 1 to 256 each. A row (the
            last axis) is a multiple of 16 bytes. Kernels pass coordinates in reverse order, last
            axis first.
        swizzle: "128B" XORs bits 4 to 6 of a shared address with bits 7 to 9, "64B" bits 4 and 5
            with bits 7 and 8, "32B" bit 4 with bit 7. A row of the box is at most that many bytes.
        fill: the value of elements outside the array. "nan" requires a floating-point format.
        element_strides: along each axis, TMA copies every n-th element of the box: 1 to 8, and 1
            along the last axis.
        format: the element format, by default that of the array's dtype. "bfloat16" and "tfloat32"
            describe arrays whose dtype NumPy lacks.
        shape: the shape of an `array` that has none.
        strides: bytes, of an `array` that has no shape; it is contiguous by default.

    Raises:
        ShapeError: a shape, box or stride breaks a rule; the message names both.
        DTypeError: `format` is unknown or does not have the dtype's size.
        InputError: `swizzle` or `fill` is unknown, or `fill` does not apply to the format.

    Examples:
        >>> x = np.zeros((256, 256), np.float16)
        >>> gemmlab.TensorMap(x, box=(64, 64), swizzle="128B").format
        'float16'
    """

    array: Any
    box: tuple[int, ...]
    swizzle: Swizzle = "none"
    fill: Fill = "zeros"
    element_strides: tuple[int, ...] = ()
    format: str = ""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()  # bytes

    def __post_init__(self) -> None:
        put = object.__setattr__  # a frozen dataclass allows no other way to set fields
        if isinstance(self.array, np.ndarray):
            name = self.array.dtype.name
            put(self, "format", self.format or PLAIN.get(name, name))
            put(self, "shape", self.array.shape)
            put(self, "strides", self.array.strides)
        if self.format not in FORMATS:
            raise DTypeError(f"format {self.format!r} is not one of {', '.join(FORMATS)}")
        size = self.itemsize
        if isinstance(self.array, np.ndarray) and self.array.itemsize != size:
            dtype = self.array.dtype
            raise DTypeError(
                f"format {self.format} has {size} bytes per element, dtype {dtype} has "
                f"{dtype.itemsize}"
            )
        if not self.strides:
            put(self, "strides", tuple(math.prod(self.shape[k + 1 :]) * size for k in self._axes()))
        put(self, "box", tuple(int(n) for n in self.box))
        if not self.element_strides:
            put(self, "element_strides", (1,) * len(self.shape))
        self._check()

    @property
    def itemsize(self) -> int:
        return FORMATS[self.format]

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype of an element; one of the same size if NumPy has no such type."""
        return np.dtype({"bfloat16": "u2", "tfloat32": "f4"}.get(self.format, self.format))

    def _axes(self) -> range:
        return range(len(self.shape))

    def _check(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= MAX_RANK:
            raise ShapeError(f"array of shape {self.shape}: a tensor map has 1 to 5 axes")
        for name in ("box", "element_strides", "strides"):
            if len(getattr(self, name)) != rank:
                raise ShapeError(f"{name} {getattr(self, name)} for an array of {rank} axes")
        if not all(1 <= n <= MAX_DIM for n in self.shape):
            raise ShapeError(f"array of shape {self.shape}: each axis must have 1 to 2^32 elements")
        if not all(1 <= n <= MAX_BOX for n in self.box):
            raise ShapeError(f"box {self.box}: each axis must have 1 to {MAX_BOX} elements")
        if not all(1 <= n <= MAX_ELEMENT_STRIDE for n in self.element_strides):
            raise ShapeError(f"element strides {self.element_strides} are not between 1 and 8")
        if self.element_strides[-1] != 1:
            raise ShapeError(f"element strides {self.element_strides}: the last one must be 1")
        if self.strides[-1] != self.itemsize:
            raise ShapeError(
                f"strides {self.strides} bytes: the last axis must be contiguous; "
                "pass the transposed array if another axis is contiguous"
            )
        if any(n % CHUNK or not 0 <= n < MAX_STRIDE for n in self.strides[:-1]):
            raise ShapeError(f"strides {self.strides} bytes are not multiples of 16 below 2^40")
        row = self.box[-1] * self.itemsize
        if row % CHUNK:
            raise ShapeError(f"box {self.box}: a row has {row} bytes, not a multiple of 16")
        if self.swizzle not in SWIZZLE_SPAN or self.fill not in ("zeros", "nan"):
            raise InputError(f"no swizzle {self.swizzle!r} with fill {self.fill!r}")
        span = SWIZZLE_SPAN[self.swizzle]
        if span is not None and row > span:
            raise ShapeError(
                f"box {self.box}: a row has {row} bytes, swizzle {span}B allows {span}"
            )
        if self.fill == "nan" and "float" not in self.format:
            raise InputError(f"fill 'nan' needs a floating-point format, not {self.format}")


def pointed_to(arg: Any, nbytes: int) -> list[TensorMap]:
    """Return the tensor maps that a parameter of `nbytes` bytes points to.

    A pointer parameter (`const CUtensorMap*`) takes one TensorMap or a list of them. The result is
    empty for any other argument.
    """
    items = arg if isinstance(arg, list) else [arg]
    is_pointer = nbytes == POINTER_BYTES and all(isinstance(x, TensorMap) for x in items)
    return items if is_pointer else []
