"""Tensor maps on the emulator: their 128 bytes, and the part of a tensor that a box covers.

The layout of the bytes is our own, as the hardware's is nobody's business but the driver's. Axes
count from the innermost one, as in PTX.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gemmlab.core.tensor_map import (
    CHUNK,
    FORMATS,
    MAX_BOX,
    MAX_ELEMENT_STRIDE,
    MAX_RANK,
    SWIZZLE_SPAN,
    TensorMap,
)

MAP_BYTES = 128
MAP_ALIGNMENT = 64
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
# Numbers that tensormap.replace has for formats (PTX ISA, "tensormap.replace").
ELEMENT_TYPES = dict(
    enumerate(("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16"))
)
ELEMENT_TYPES |= {7: "float32", 9: "float64", 10: "bfloat16", 11: "tfloat32"}
# Seen on an H200: every 16 bits outside a tensor when it is asked for a NaN; and the NaN that any
# float32 NaN becomes on its way to tfloat32.
FILL_NAN, TFLOAT32_NAN = 0x7FF7, np.uint32(0x7FFFE000)


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


def replace(data: np.ndarray, field: str, axis: int, value: int) -> bool:
    """Change one field of the map in 128 bytes, in place; whether it can have that value.

    field, axis, value: as tensormap.replace has them. Bytes that were no map are one from then on.
    """
    fields = data[: FIELDS.itemsize].view(FIELDS)
    fields["magic"] = MAGIC
    match field:
        case "global_address":
            fields["address"] = value
        case "rank" if value < MAX_RANK:
            fields["rank"] = value + 1
        case "box_dim" if axis < MAX_RANK and 0 < value <= MAX_BOX:
            fields["box"][0, axis] = value
        case "global_dim" if axis < MAX_RANK and value > 0:
            fields["dims"][0, axis] = value - 1
        case "global_stride" if axis + 1 < MAX_RANK and value % CHUNK == 0:
            fields["strides"][0, axis + 1] = value
        case "element_stride" if axis < MAX_RANK and 0 < value <= MAX_ELEMENT_STRIDE:
            fields["element_strides"][0, axis] = value
        case "elemtype" if value in ELEMENT_TYPES:
            name = ELEMENT_TYPES[value]
            fields["format"] = FORMAT_NAMES.index(name)
            fields["strides"][0, 0] = FORMATS[name]
        case "swizzle_mode" if value < len(SWIZZLES):
            fields["swizzle"] = value
        case "fill_mode" if value < 2:
            fields["fills_nan"] = value
        case "interleave_layout" if value == 0:
            pass
        case _:
            return False
    return True


def sectors(address: np.ndarray, nbytes: int) -> np.ndarray:
    """How many 32-byte sectors `nbytes` bytes from each address on touch."""
    count: np.ndarray = (address + nbytes - 1 >> 5) - (address >> 5) + 1
    return count


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

    def sectors(self, address: int) -> int:
        """32-byte sectors that the rows touch, in a tensor at an address."""
        if self.is_empty:
            return 0
        rows = np.array([address + self.offset])
        for count, stride in zip(self.shape[:-1], self.strides[:-1], strict=True):
            rows = (rows[:, None] + np.arange(count) * stride).reshape(-1)
        return int(sectors(rows, self.shape[-1] * self.strides[-1]).sum())


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
        """Bytes of a box, those outside the tensor included."""
        return int(np.prod(self.counts)) * self.dtype.itemsize

    @property
    def row(self) -> int:
        """Bytes of a row of the box."""
        return self.counts[0] * self.dtype.itemsize

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next in shared memory: those of the swizzle's pattern."""
        return SWIZZLE_SPAN[self.swizzle] or self.row

    def chunks(self, address: int) -> np.ndarray:
        """Numbers of the 16-byte chunks of shared memory that a box at an address fills."""
        rows = np.arange(self.nbytes // self.row)[:, None] * (self.pitch // CHUNK)
        first = address // CHUNK + np.arange(self.row // CHUNK)
        return swizzled(rows + first, self.swizzle).reshape(-1)

    @property
    def extent(self) -> int:
        """Bytes of shared memory from the first of a box to its last."""
        return (self.nbytes // self.row - 1) * self.pitch + self.row

    def whole(self, coordinates: tuple[int, ...]) -> Region:
        """All that a box covers, as if the tensor had no end."""
        pairs = list(zip(coordinates, self.strides, strict=True))
        steps = [n * s for n, s in zip(self.element_strides, self.strides, strict=True)]
        place = tuple(slice(None) for _ in self.counts)
        offset = sum(x * stride for x, stride in pairs)
        return Region(offset, self.counts[::-1], tuple(steps[::-1]), place)

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
        box = np.zeros(self.counts[::-1], self.dtype)
        if self.fills_nan:
            box.view(np.uint16)[...] = FILL_NAN
        return box


@lru_cache(maxsize=256)
def decode(data: bytes) -> Descriptor | None:
    """The map in 128 bytes; None where they hold none."""
    if len(data) < MAP_BYTES:
        return None
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


def swizzled(chunks: np.ndarray, swizzle: str, base: int = 0) -> np.ndarray:
    """Where 16-byte chunks of shared memory lie, given by number, that is address / 16. base: the
    row of 128 bytes, modulo 8, in which the pattern begins."""
    bits = {"none": 0, "32B": 1, "64B": 3, "128B": 7}[swizzle]
    places: np.ndarray = chunks ^ ((chunks >> 3) - base & bits)
    return places


def to_tfloat32(words: np.ndarray) -> np.ndarray:
    """The bits of float32 values rounded to 10 places, to nearest even."""
    rounded = words + 0xFFF + (words >> 13 & 1) & ~np.uint32(0x1FFF)
    is_nan = words << np.uint32(1) > np.uint32(0xFF000000)
    return np.where(is_nan, TFLOAT32_NAN, rounded)
