"""Tensor maps: their 128-byte encoding, and the region of a tensor that a box covers.

NVIDIA does not document the encoding, so the emulator defines one. As in PTX, axis 0 is the
innermost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

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
from gemmlab.emulator.arithmetic.lanes import Value
from gemmlab.emulator.counters.rules import sector

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
# Encoding of .elemtype (PTX ISA, "tensormap.replace").
ELEMENT_TYPES = dict(
    enumerate(("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16"))
)
ELEMENT_TYPES |= {7: "float32", 9: "float64", 10: "bfloat16", 11: "tfloat32"}
# Measured on an H200: the 16-bit pattern that fills elements outside a tensor in NaN mode, and the
# result of converting any float32 NaN to tfloat32.
FILL_NAN, TFLOAT32_NAN = 0x7FF7, np.uint32(0x7FFFE000)


def encode(tensor_map: TensorMap, address: int) -> bytes:
    """Encode a tensor map. address: of its array on the device."""
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
    """tensormap.replace: set one field of an encoded map in place. Returns False if the value is
    invalid.

    data: 128 bytes, which need not hold a valid map before. field, axis, value: the operands of
    tensormap.replace.
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
    """Number of 32-byte sectors that `nbytes` bytes starting at each address touch."""
    count: np.ndarray = sector(address + nbytes - 1) - sector(address) + 1
    return count


@dataclass(frozen=True)
class Region:
    """The intersection of a tensor and a box. All axes are ordered outermost first."""

    offset: int  # bytes from the tensor's address to the region's first element
    shape: tuple[int, ...]  # elements
    strides: tuple[int, ...]  # bytes
    place: tuple[slice, ...]  # position of the region in the box

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    @property
    def nbytes(self) -> int:
        """Bytes from the start of the first element to the start of the last."""
        return sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def sectors(self, address: int) -> int:
        """Number of 32-byte sectors that the rows touch. address: of the tensor."""
        if self.is_empty:
            return 0
        rows = np.array([address + self.offset])
        for count, stride in zip(self.shape[:-1], self.strides[:-1], strict=True):
            rows = (rows[:, None] + np.arange(count) * stride).reshape(-1)
        return int(sectors(rows, self.shape[-1] * self.strides[-1]).sum())


@dataclass(frozen=True)
class Descriptor:
    """A decoded tensor map. Tuples are ordered innermost axis first."""

    address: int
    format: str
    swizzle: str
    fills_nan: bool
    dims: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    box: tuple[int, ...]
    element_strides: tuple[int, ...]

    @cached_property
    def dtype(self) -> np.dtype:
        """The unsigned integer type of the element size; copies move bits unchanged."""
        return np.dtype(f"u{FORMATS[self.format]}")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of elements copied along each axis."""
        return tuple(-(-n // s) for n, s in zip(self.box, self.element_strides, strict=True))

    @cached_property
    def nbytes(self) -> int:
        """Bytes of a box, including elements outside the tensor."""
        return int(np.prod(self.counts)) * self.dtype.itemsize

    @property
    def row(self) -> int:
        """Bytes of one row of the box."""
        return self.counts[0] * self.dtype.itemsize

    @property
    def pitch(self) -> int:
        """Bytes between rows in shared memory: the span of the swizzle pattern."""
        return SWIZZLE_SPAN[self.swizzle] or self.row

    def chunks(self, address: int) -> np.ndarray:
        """Numbers of the 16-byte shared memory chunks of a box. address: of the box, an offset in
        shared memory."""
        rows = np.arange(self.nbytes // self.row)[:, None] * (self.pitch // CHUNK)
        first = address // CHUNK + np.arange(self.row // CHUNK)
        return swizzled(rows + first, self.swizzle).reshape(-1)

    @property
    def extent(self) -> int:
        """Bytes of shared memory from the start of a box to its end."""
        return (self.nbytes // self.row - 1) * self.pitch + self.row

    def whole(self, coordinates: tuple[int, ...]) -> Region:
        """The region of a box in an unbounded tensor."""
        pairs = list(zip(coordinates, self.strides, strict=True))
        steps = [n * s for n, s in zip(self.element_strides, self.strides, strict=True)]
        place = tuple(slice(None) for _ in self.counts)
        offset = sum(x * stride for x, stride in pairs)
        return Region(offset, self.counts[::-1], tuple(steps[::-1]), place)

    def region(self, coordinates: tuple[int, ...]) -> Region:
        """The region of a box in the tensor. coordinates: of the box's first element."""
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
        """A box filled with the value of elements outside the tensor."""
        box = np.zeros(self.counts[::-1], self.dtype)
        if self.fills_nan:
            box.view(np.uint16)[...] = FILL_NAN
        return box


@lru_cache(maxsize=256)
def decode(data: bytes) -> Descriptor | None:
    """Decode a tensor map; None if the bytes are not a valid encoding."""
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
    """Apply a swizzle to 16-byte chunk numbers (address / 16).

    base: the 128-byte row, modulo 8, at which the pattern begins.
    """
    bits = {"none": 0, "32B": 1, "64B": 3, "128B": 7}[swizzle]
    places: np.ndarray = swizzled_by(bits, chunks, base)
    return places


def swizzled_by(bits: Value, chunks: Value, base: Value) -> Value:
    """`swizzled` for both tiers; the native tier calls it with values of its IR. bits: the mask of
    the swizzle."""
    return chunks ^ ((chunks >> 3) - base & bits)


def to_tfloat32(words: np.ndarray) -> np.ndarray:
    """Round float32 bit patterns to 10 mantissa bits, to nearest even."""
    rounded = words + 0xFFF + (words >> 13 & 1) & ~np.uint32(0x1FFF)
    is_nan = words << np.uint32(1) > np.uint32(0xFF000000)
    return np.where(is_nan, TFLOAT32_NAN, rounded)
