"""Tensor maps: how the copy engine of Hopper GPUs (TMA) sees an array.

A kernel takes one as a parameter of 128 bytes (CUtensorMap), in a struct, or by a pointer to such
bytes in global memory. The emulator and a GPU each make the bytes from a TensorMap when a kernel is
launched. Rules and terms are those of
cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management").
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
CHUNK = 16  # bytes; addresses, strides and rows of a box are multiples of it
SWIZZLE_SPAN = {"none": None, "32B": 32, "64B": 64, "128B": 128}  # bytes of a row at most
# Element format -> bytes. bfloat16 also holds for uint16 arrays, tfloat32 for float32 ones.
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
# The engine moves these as unsigned integers.
PLAIN = {"int8": "uint8", "int16": "uint16", "bool": "uint8"}
PLAIN |= {"float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A box of an array that one copy moves, and its form in shared memory.

    array: 1 to 5 axes, the last one contiguous, other strides multiples of 16 bytes. A NumPy array
    for the emulator; for a GPU a Span of its memory, with `shape` and `format`.
    box: elements along each axis of the array, in the array's order: 1 to 256, a row (the last
    axis) a multiple of 16 bytes. Kernels give coordinates the other way round, last axis first.
    swizzle: bits 4 to 6 of a shared address are xored with bits 7 to 9 ("128B"), bits 4 and 5 with
    7 and 8 ("64B"), or bit 4 with bit 7 ("32B"); a row of the box is no longer than that.
    fill: what stands for elements outside the array; "nan" needs a floating-point format.
    element_strides: along each axis only every so many-th element of the box is moved, 1 to 8; 1
    along the last one.
    format: of an element, by default that of the array's dtype; "bfloat16" and "tfloat32" for
    arrays that have no such dtype.
    shape: of the array; needed where `array` has none. It is contiguous then.

    Raises ShapeError, DTypeError or InputError with the value and the rule it breaks.
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
        put = object.__setattr__  # of a frozen object, while it is made
        if isinstance(self.array, np.ndarray):
            name = self.array.dtype.name
            put(self, "format", self.format or PLAIN.get(name, name))
            put(self, "shape", self.array.shape)
            put(self, "strides", self.array.strides)
        if self.format not in FORMATS:
            raise DTypeError(f"format {self.format!r} is not one of {', '.join(FORMATS)}")
        size = self.itemsize
        if isinstance(self.array, np.ndarray) and self.array.itemsize != size:
            raise DTypeError(f"{self.format} takes {size} bytes, {self.array.dtype} does not")
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
        """NumPy's type of an element, or one of its size where NumPy has none."""
        return np.dtype({"bfloat16": "u2", "tfloat32": "f4"}.get(self.format, self.format))

    def _axes(self) -> range:
        return range(len(self.shape))

    def _check(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= MAX_RANK:
            raise ShapeError(f"an array of shape {self.shape}; a tensor map has 1 to 5 axes")
        for name in ("box", "element_strides", "strides"):
            if len(getattr(self, name)) != rank:
                raise ShapeError(f"{name} {getattr(self, name)} for an array of {rank} axes")
        if not all(1 <= n <= MAX_DIM for n in self.shape):
            raise ShapeError(f"an array of shape {self.shape}: axes have 1 to 2^32 elements")
        if not all(1 <= n <= MAX_BOX for n in self.box):
            raise ShapeError(f"box {self.box}: a box has 1 to {MAX_BOX} elements along an axis")
        if not all(1 <= n <= MAX_ELEMENT_STRIDE for n in self.element_strides):
            raise ShapeError(f"element strides {self.element_strides} are not between 1 and 8")
        if self.element_strides[-1] != 1:
            raise ShapeError(f"element strides {self.element_strides}: the last one must be 1")
        if self.strides[-1] != self.itemsize:
            raise ShapeError(
                f"strides {self.strides} bytes: elements along the last axis must be neighbours; "
                "give the transposed array where another axis is the contiguous one"
            )
        if any(n % CHUNK or not 0 <= n < MAX_STRIDE for n in self.strides[:-1]):
            raise ShapeError(f"strides {self.strides} bytes are not multiples of 16 below 2^40")
        row = self.box[-1] * self.itemsize
        if row % CHUNK:
            raise ShapeError(f"box {self.box}: a row has {row} bytes, no multiple of 16")
        if self.swizzle not in SWIZZLE_SPAN or self.fill not in ("zeros", "nan"):
            raise InputError(f"no swizzle {self.swizzle!r} with fill {self.fill!r}")
        span = SWIZZLE_SPAN[self.swizzle]
        if span is not None and row > span:
            raise ShapeError(f"box {self.box}: a row of {row} bytes; swizzle {span}B takes {span}")
        if self.fill == "nan" and "float" not in self.format:
            raise InputError(f"fill 'nan' needs a floating-point format, not {self.format}")


def pointed_to(arg: Any, nbytes: int) -> list[TensorMap]:
    """The tensor maps behind a parameter of `nbytes` bytes: one, or a list of them, where it is a
    pointer (`const CUtensorMap*`); none for any other argument."""
    items = arg if isinstance(arg, list) else [arg]
    is_pointer = nbytes == POINTER_BYTES and all(isinstance(x, TensorMap) for x in items)
    return items if is_pointer else []
