"""How a launch gets at packed operands: by tensor maps, or by pointers where there are none."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gemmlab.kernels.gemm.sm90.config import SCHEMES, CopyBox, TileConfig
from gemmlab.linalg.planning.launch import Address, Map, Value

if TYPE_CHECKING:
    from gemmlab.linalg.planning.plan import Packed


def operands(
    tile: TileConfig,
    packed: tuple[Packed, Packed],
    addresses: tuple[Address, Address],
    first: int,
    depth: int,
) -> tuple[tuple[Map, ...], dict[str, Value]]:
    """How a launch gets at its segment of the operands: by tensor maps, or by pointers."""
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
            packed.batch * parts(packed.scheme.name),
        ),
        (line, line * packed.lines),
    )


@cache
def parts(scheme: str) -> int:
    """The parts of a packed operand."""
    return SCHEMES[scheme].parts
