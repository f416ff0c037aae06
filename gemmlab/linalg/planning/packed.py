"""A packed operand: its layout in memory, and how a launch accesses it.

That is by tensor maps, or by pointers on architectures that have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import (
    DEEP_STRIP,
    LINE,
    SCHEMES,
    VECTOR_PITCH,
    CopyBox,
    Scheme,
    TileConfig,
)
from gemmlab.linalg.arch import DEFAULT, Architecture
from gemmlab.linalg.planning.launch import Address, Map, Value

ALIGNMENT = 128  # bytes, of every array in a workspace


@dataclass(slots=True)
class Packed:
    """The memory layout of a packed operand; see `kernels.gemm.sm90.pack`.

    `offsets` has the offset in bytes of each array from the start, and of the "end".
    """

    scheme: Scheme
    vectors: int
    depth: int
    k_major: bool
    batch: int = 1
    factor: str = "a"  # or "b"; "": of a product whose chains are always short
    arch: Architecture = DEFAULT
    offsets: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A pitch has whole lines, and `padded` whole 1024 bytes, so every array is aligned.
        exponents = 4 * self.batch * self.padded
        peaks = ALIGNMENT + 3 * exponents
        out = peaks + 2 * exponents * self.chunks
        self.offsets = {
            "status": 0,
            "unscale": ALIGNMENT,
            "risk": ALIGNMENT + exponents,
            "shortfall": ALIGNMENT + 2 * exponents,
            "peaks": peaks,
            "exponents": peaks + exponents * self.chunks,
            "out": out,
            "end": out + 2 * self.batch * _parts(self.scheme.name) * self.lines * self.pitch,
        }

    @property
    def first(self) -> str:
        """How first parts are rounded: "nearest", "down" or "up".

        Long chains truncate more. There A's first parts are rounded down and B's up. The remainders
        then have opposite signs, so leaving out their products adds to each sum about what it loses
        by truncation.
        """
        if promote_k(self.scheme, self.depth) < LINE:
            return "nearest"
        return {"a": "down", "b": "up", "": "nearest"}[self.factor]

    @property
    def lines(self) -> int:
        """Number of contiguous lines in one part of one item."""
        return self.vectors if self.k_major else self.depth

    @property
    def length(self) -> int:
        """Elements per line."""
        return self.depth if self.k_major else self.vectors

    @property
    def pitch(self) -> int:
        """Elements from the start of one line to the next."""
        return ceil_div(self.length, LINE) * LINE

    @property
    def padded(self) -> int:
        """Exponents per item. A tile that extends past the last one reads into "risk", which comes
        next, and does not use what it reads."""
        return ceil_div(self.vectors, VECTOR_PITCH) * VECTOR_PITCH

    @property
    def chunk(self) -> int:
        """Lines per block of `pack_deep`: a multiple of 64.

        There are at most 32 blocks for a strip of vectors, or 64 if there is only one strip.
        """
        most = 32 if self.vectors > DEEP_STRIP else 64
        return ceil_div(self.depth, most * 64) * 64

    @property
    def deep(self) -> bool:
        """Whether `kernels.gemm.sm90.pack_deep` packs it: too deep for a cluster's registers."""
        clusters = self.arch.clusters
        return not self.k_major and not (clusters and self.depth <= clusters[-1].deepest)

    @property
    def chunks(self) -> int:
        return ceil_div(self.depth, self.chunk) if self.deep else 0

    @property
    def nbytes(self) -> int:
        return self.offsets["end"]


def operands(
    tile: TileConfig,
    packed: tuple[Packed, Packed],
    addresses: tuple[Address, Address],
    first: int,
    depth: int,
) -> tuple[tuple[Map, ...], dict[str, Value]]:
    """How a launch accesses its segment of the operands: by tensor maps, or by pointers."""
    (a, b), (at_a, at_b) = packed, addresses
    if a.arch.clusters:
        return (
            operand_map(tile.a_copy, a, at_a, first, depth),
            operand_map(tile.b_copy, b, at_b, first, depth),
        ), {}
    return (), {
        "a": at_a + _start(a, first),
        "b": at_b + _start(b, first),
        "pitch_a": a.pitch,
        "pitch_b": b.pitch,
        "part_a": a.pitch * a.lines,
        "part_b": b.pitch * b.lines,
    }


def _start(packed: Packed, first: int) -> int:
    """The offset in bytes of the first element of a segment of k."""
    return packed.offsets["out"] + first * (2 if packed.k_major else 2 * packed.pitch)


def operand_map(copy: CopyBox, packed: Packed, address: Address, first: int, depth: int) -> Map:
    """The tensor map of a packed operand's parts for a segment of k."""
    line = 2 * packed.pitch  # bytes
    return Map(
        copy,
        address + _start(packed, first),
        (
            depth if packed.k_major else packed.length,
            packed.lines if packed.k_major else depth,
            packed.batch * _parts(packed.scheme.name),
        ),
        (line, line * packed.lines),
    )


@cache
def _parts(scheme: str) -> int:
    """The parts of a packed operand."""
    return SCHEMES[scheme].parts


def promote_k(scheme: Scheme, k: int) -> int:
    """The length of chains in a product of depth k."""
    return 32 if scheme.short_k is None or k <= scheme.short_k else LINE
