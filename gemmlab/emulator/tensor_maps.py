"""Tensor maps on the emulator: their 128 bytes, and the part of a tensor that a box covers.

The layout of the bytes is our own, as the hardware's is nobody's business but the driver's. Axes
count from the innermost one, as in PTX.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gemmlab.tensor_map import CHUNK, FORMATS, MAX_RANK, TensorMap

MAP_BYTES = 128
MAGIC = 0x7E4502A9
FORMAT_NAMES, SWIZZLES = list(FORMATS), ["none", "32B", "64B", "128B"]
FIELDS = np.dtype(
    [
        ("magic", "u4"),
        ("rank", "u1"),
        ("format", "u1"),
        ("swizzle", "u1"),
        ("fills_nan", "u1"),
        ("address", "u8"),
        ("strides", "u8", MAX_RANK),  # bytes; the first one is the size of an element
        ("dims", "u4", MAX_RANK),  # less 1
        ("box", "u2", MAX_RANK),
        ("element_strides", "u1", MAX_RANK),
    ]
)
# What the engine writes outside a tensor when it is asked for a NaN.
NAN_BITS = {"float16": 0x7FFF, "bfloat16": 0x7FFF, "float32": 0x7FFFFFFF, "tfloat32": 0x7FFFFFFF}
NAN_BITS |= {"float64": 0x7FFFFFFFFFFFFFFF}


def encode(tensor_map: TensorMap, address: int) -> bytes:
    """The bytes of a map whose array lies at a device address."""
    rank = len(tensor_map.shape)
    fields = np.zeros((), FIELDS)
    fields["magic"], fields["rank"], fields["address"] = MAGIC, rank, address
    fields["format"] = FORMAT_NAMES.index(tensor_map.format)
    fields["swizzle"] = SWIZZLES.index(tensor_map.swizzle)
    fields["fills_nan"] = tensor_map.fill == "nan"
    fields["strides"][:rank] = tensor_map.strides[::-1]
    fields["dims"][:rank] = [n - 1 for n in tensor_map.shape[::-1]]
    fields["box"][:rank] = tensor_map.box[::-1]
    fields["element_strides"][:rank] = tensor_map.element_strides[::-1]
    return fields.tobytes().ljust(MAP_BYTES, b"\0")


@dataclass(frozen=True)
class Region:
    """The part of a tensor that a box at some coordinates covers, and its place in the box."""

    offset: int  # bytes from the tensor's address to its first element
    shape: tuple[int, ...]  # elements along each axis, outermost first
    strides: tuple[int, ...]  # bytes
    place: tuple[slice, ...]  # in the box, outermost axis first

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    @property
    def nbytes(self) -> int:
        """From the first byte to the last, without the width of an element."""
        return sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Descriptor:
    """A tensor map as the copy engine reads it; tuples from the innermost axis on."""

    address: int
    format: str
    swizzle: str
    fills_nan: bool
    dims: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    box: tuple[int, ...]
    element_strides: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """Unsigned integers of an element's size: the engine moves bits."""
        return np.dtype(f"u{FORMATS[self.format]}")

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements that a copy moves along each axis."""
        return tuple(-(-n // s) for n, s in zip(self.box, self.element_strides, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of a box in shared memory, those outside the tensor included."""
        return int(np.prod(self.counts)) * self.dtype.itemsize

    def region(self, coordinates: tuple[int, ...]) -> Region:
        """The part of the tensor under a box whose first element is at these coordinates."""
        offset, shape, strides, place = 0, [], [], []
        for start, dim, count, step, stride in zip(
            coordinates, self.dims, self.counts, self.element_strides, self.strides, strict=True
        ):
            low = max(0, -(start // step))
            high = max(low, min(count, -(-(dim - start) // step)))
            offset += (start + low * step) * stride
            shape.append(high - low)
            strides.append(step * stride)
            place.append(slice(low, high))
        return Region(offset, tuple(shape[::-1]), tuple(strides[::-1]), tuple(place[::-1]))

    def empty_box(self) -> np.ndarray:
        """A box of what stands for elements outside the tensor."""
        bits = NAN_BITS[self.format] if self.fills_nan else 0
        return np.full(self.counts[::-1], bits, self.dtype)


@lru_cache(maxsize=256)
def decode(data: bytes) -> Descriptor | None:
    """The map in 128 bytes; None where they hold none."""
    fields = np.frombuffer(data[: FIELDS.itemsize], FIELDS)[0]
    if int(fields["magic"]) != MAGIC:
        return None
    rank = int(fields["rank"])

    def axes(name: str, more: int = 0) -> tuple[int, ...]:
        return tuple(int(n) + more for n in fields[name][:rank])

    return Descriptor(
        int(fields["address"]),
        FORMAT_NAMES[int(fields["format"])],
        SWIZZLES[int(fields["swizzle"])],
        bool(fields["fills_nan"]),
        axes("dims", 1),
        axes("strides"),
        axes("box"),
        axes("element_strides"),
    )


def swizzled(chunks: np.ndarray, swizzle: str) -> np.ndarray:
    """Where 16-byte chunks of shared memory lie, given by number, that is address / 16."""
    bits = {"none": 0, "32B": 1, "64B": 3, "128B": 7}[swizzle]
    places: np.ndarray = chunks ^ (chunks >> 3 & bits)
    return places


def box_chunks(address: int, nbytes: int, swizzle: str) -> np.ndarray:
    """Numbers of the 16-byte chunks of shared memory that a box at `address` fills, in order."""
    first = address // CHUNK
    return swizzled(np.arange(first, first + nbytes // CHUNK), swizzle)
