"""The plan of a product: its kernels, their grids and memory. Arithmetic alone, no GPU.

    C (m, n) = alpha · A (m, k) · B (k, n) + beta · D, for each item of a batch

One launch or two convert each operand into a *packed* operand (`kernels.gemm.sm90.pack`). Then one
launch multiplies (`kernels.gemm.sm90.mainloop`), or several if k is very large. A packed operand
can be kept and used again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import (
    DEEP_STRIP,
    LINE,
    MAX_SUMS,
    NO_LIMIT,
    PACK_WARPS,
    REPAIR_TILE,
    SCHEMES,
    STRIP,
    PackConfig,
    Scheme,
    TileConfig,
)
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning.formulas import first_least, least, most
from gemmlab.linalg.planning.launch import Address, PlannedLaunch, Value
from gemmlab.linalg.planning.packed import Packed, operands, promote_k
from gemmlab.linalg.shapes import Operand

STATUS_BYTES = 24  # of three 64-bit counts: `kernels.gemm.sm90.pack`
# Counts of the last product: elements at risk, non-finite vectors; a counter of blocks; doubtful
# elements of the running product and of the last one. The statuses of the operands that the running
# product packs follow.
REPORT_BYTES = 120
STATUSES = (64, 96)  # offsets of the statuses of the left and of the right operand
SHORT_SUM = 64  # terms that `Scheme.doubt` is for
DOUBTED = 24  # offset in the report of the number of doubtful elements
_DEEPEST = 16384  # of k per launch, unless there would be more than _MOST_SEGMENTS launches
_MOST_SEGMENTS = 64


Addresses = tuple[Address, Address, Address]


def pack(
    operand: Operand,
    packed: Packed,
    source: Address,
    target: Address,
    beside: bool = False,
    status: Address | None = None,
) -> tuple[PlannedLaunch, ...]:
    """Return the launches that pack the operand at `source` into memory at `target`.

    beside: whether the launch before them packs another operand, so that both may run at the same
    time. status: address of `STATUS_BYTES`, which must be zero when they start; None: the first
    ones at `target`.
    """
    offsets, arch, scheme, first = packed.offsets, packed.arch, packed.scheme.name, packed.first
    found: dict[str, Value] = {
        "x": source,
        "vectors": operand.vectors,
        "depth": operand.depth,
        "ldx": operand.ld,
        "batch_x": operand.batch_stride,
        "risk": target + offsets["risk"],
    }
    args = {
        **found,
        "out": target + offsets["out"],
        "unscale": target + offsets["unscale"],
        "shortfall": target + offsets["shortfall"],
        "status": target + offsets["status"] if status is None else status,
        "pitch": packed.pitch,
    }
    together = {"beside": int(beside)}
    block = (32 * PACK_WARPS, 1, 1)
    if operand.k_major:
        warps = PACK_WARPS if operand.depth > arch.long else 1
        fours = 8 if operand.depth > arch.short else 4
        config = pack_config(scheme, first, warps, fours)
        grid = (ceil_div(operand.vectors * config.warps, PACK_WARPS), operand.batch, 1)
        return (PlannedLaunch("pack_k_major", config, grid, block, args | together, arch=arch),)
    if not packed.deep:
        config = _cluster_config(arch, bisect_left(_deepest(arch), operand.depth), scheme, first)
        strips = ceil_div(operand.vectors, STRIP)
        grid, block = (strips * config.cluster, operand.batch, 1), (config.threads, 1, 1)
        rest = config.cluster, 0, arch
        return (PlannedLaunch("pack_mn_major", config, grid, block, args | together, (), *rest),)
    config, any_part = pack_config(scheme, first), pack_config(scheme)
    grid = (ceil_div(operand.vectors, DEEP_STRIP), packed.chunks, operand.batch)
    chunks: dict[str, Value] = {
        "peaks": target + offsets["peaks"],
        "exponents": target + offsets["exponents"],
        "chunk": packed.chunk,
    }
    find = {**found, **chunks}
    return (
        PlannedLaunch("find_peaks", any_part, grid, block, find, arch=arch),
        PlannedLaunch("pack_mn_major_deep", config, grid, block, {**args, **chunks}, arch=arch),
    )


@cache
def pack_config(
    scheme: str,
    first: str = PackConfig.first,
    warps: int = PackConfig.warps,
    fours: int = PackConfig.fours,
) -> PackConfig:
    """The configuration of a kernel that packs. One object for each kind is made, once."""
    return PackConfig(SCHEMES[scheme], first, warps, fours=fours)


@cache
def _cluster_config(arch: Architecture, index: int, scheme: str, first: str) -> PackConfig:
    return replace(arch.clusters[index], scheme=SCHEMES[scheme], first=first)


@cache
def _deepest(arch: Architecture) -> list[int]:
    """The longest vectors of each configuration that packs MN-major operands; ascending."""
    return [config.deepest for config in arch.clusters]


@dataclass(slots=True)
class Product:
    """C = alpha · A · B + beta · C, with rows of C `ldc` elements apart, columns `column_c`."""

    m: int
    n: int
    k: int
    ldc: int
    batch: int = 1
    batch_c: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    column_c: int = 1


class Added(NamedTuple):
    """D: its address, and the elements between its rows, columns and items, which may be 0."""

    at: Address
    row: int
    column: int
    item: int


class Doubts(NamedTuple):
    """Where launches record doubtful elements.

    bits: address of `doubt_bytes` if the launch marks them, or 0. counter: address of their number.
    most: the number of them above which all of C is computed again.
    """

    bits: Address
    counter: Address
    most: int = NO_LIMIT


def multiply(
    product: Product,
    tile: TileConfig,
    a: Packed,
    b: Packed,
    addresses: Addresses,
    sms: int,
    risk: tuple[int, int] = (0, NO_LIMIT),
    totals: Address = 0,
    bases: tuple[Address, Address] | None = None,
    doubts: Doubts | None = None,
    added: Added | None = None,
    statuses: tuple[Address, Address] | None = None,
) -> tuple[PlannedLaunch, ...]:
    """Return the launches that multiply packed operands.

    addresses: of the packed A, the packed B, and C. totals: address of `totals_bytes` bytes. The
    kernels return at once unless the number of elements at risk lies in `risk`, ends included, or
    that of doubtful elements is above `doubts.most`. bases: the packed operands whose exponents and
    counts apply, if not A and B themselves. added: D, if it is not C. statuses: as for `pack`. If
    k is very large, each launch covers a segment of it, and all but the first add to C, which
    limits the number of rounded additions per sum.
    """
    assert a.first == "nearest" or a.first != b.first, "first parts of a and b rounded one way"
    at_a, at_b, at_c = addresses
    base_a, base_b = bases or (at_a, at_b)
    blocks = _blocks(product, tile, sms)
    offsets_a, offsets_b = a.offsets, b.offsets
    status_a, status_b = statuses or _statuses((a, b), (base_a, base_b))
    own = Added(at_c, product.ldc, 1, product.batch_c)
    launches = []
    bits, counter, most_doubts = doubts or Doubts(0, 0)
    # √k·u is half of what the contract allows. Sums of fewer than 64 terms are held to less.
    ratio = SHORT_SUM / product.k
    doubt = a.scheme.doubt * most(ratio, ratio**0.5)
    for i, (first, depth) in enumerate(segments(product.k)):
        maps, pointers = operands(tile, (a, b), (at_a, at_b), first, depth)
        d = own if first or added is None else added
        args = {
            **pointers,
            "c": at_c,
            "d": d.at,
            "unscale_a": base_a + offsets_a["unscale"],
            "unscale_b": base_b + offsets_b["unscale"],
            "risk_a": base_a + offsets_a["risk"],
            "risk_b": base_b + offsets_b["risk"],
            "shortfall_a": base_a + offsets_a["shortfall"],
            "shortfall_b": base_b + offsets_b["shortfall"],
            "status_a": status_a,
            "status_b": status_b,
            "totals_c": totals,
            "doubts": bits + i * _bits_bytes(product) if bits else 0,
            "doubted": counter,
            "m": product.m,
            "n": product.n,
            "k": depth,
            "batch": product.batch,
            "ldc": product.ldc,
            "batch_c": product.batch_c,
            "row_d": d.row,
            "column_d": d.column,
            "batch_d": d.item,
            "item_stride_a": int(a.batch > 1),
            "item_stride_b": int(b.batch > 1),
            "alpha": product.alpha,
            "beta": 1.0 if first else product.beta,
            "least_risk": risk[0],
            "most_risk": risk[1],
            "most_doubts": most_doubts,
            "doubt": doubt if bits else 0.0,
            "depth": product.k,
        }
        grid, block = (blocks, 1, 1), (tile.threads, 1, 1)
        rest = maps, tile.cluster, tile.smem_bytes, a.arch
        launches.append(PlannedLaunch("multiply_packed", tile, grid, block, args, *rest))
    return tuple(launches)


def _statuses(packed: tuple[Packed, Packed], at: tuple[Address, Address]) -> list[Address]:
    """The statuses of operands that keep theirs."""
    return [start + x.offsets["status"] for x, start in zip(packed, at, strict=True)]


def doubt_bytes(product: Product) -> int:
    """Bytes of device memory for a bit per element of C and segment of k; any contents will do."""
    return len(segments(product.k)) * _bits_bytes(product)


def _bits_bytes(product: Product) -> int:
    return 4 * product.batch * product.m * ceil_div(product.n, 32)


def totals_bytes(product: Product, tile: TileConfig, sms: int) -> int:
    """Bytes of device memory for totals. It need not be initialized."""
    return _blocks(product, tile, sms) * tile.totals_bytes if product.k > tile.total_k else 0


def _blocks(product: Product, tile: TileConfig, sms: int) -> int:
    """The blocks of the persistent kernel."""
    down = ceil_div(product.m, tile.block_m * tile.cluster)
    clusters = down * ceil_div(product.n, tile.block_n) * product.batch
    blocks: int = least(clusters, sms // tile.cluster) * tile.cluster
    return blocks


def segments(k: int) -> list[tuple[int, int]]:
    """First element and length of the segment of k that each launch covers."""
    if k <= _DEEPEST:
        return [(0, k)]
    launches = min(ceil_div(k, _DEEPEST), _MOST_SEGMENTS)
    length = ceil_div(k, launches * LINE) * LINE
    return [(first, min(length, k - first)) for first in range(0, k, length)]


def repair(
    product: Product,
    a: Operand,
    b: Operand,
    packed: tuple[Packed, Packed],
    addresses: Addresses,
    workspaces: Addresses,
    sms: int,
    clear: int = 3,
    doubts: Doubts | None = None,
    statuses: tuple[Address, Address] | None = None,
    packs_a: bool = True,
    segment: int | None = None,
) -> PlannedLaunch:
    """Return the launch that repairs C, the last of a product.

    addresses: of A, B and C. workspaces: of packed A, packed B, and a report of `REPORT_BYTES`,
    zeroed before its first use. doubts: of all launches of `multiply`. clear: bit 0 clears the
    status of A, bit 1 that of B, for operands that the next product packs again. statuses: as for
    `pack`. packs_a: whether A is packed; if not, `packed` has any operand in its place. segment: of
    k, for which doubts have words of their own; None: that of each launch of `multiply`.
    """
    at_a, at_b, report = workspaces
    status_a, status_b = statuses or _statuses(packed, (at_a, at_b))
    args = {
        "a": addresses[0],
        "b": addresses[1],
        "c": addresses[2],
        "risk_a": at_a + packed[0].offsets["risk"],
        "risk_b": at_b + packed[1].offsets["risk"],
        "status_a": status_a,
        "status_b": status_b,
        "report": report,
        "doubts": doubts.bits if doubts else 0,
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "batch": product.batch,
        "row_a": a.ld if a.k_major else 1,
        "col_a": 1 if a.k_major else a.ld,
        "row_b": 1 if b.k_major else b.ld,
        "col_b": b.ld if b.k_major else 1,
        "row_c": product.ldc,
        "col_c": product.column_c,
        "batch_a": a.batch_stride if a.batch > 1 else 0,
        "batch_b": b.batch_stride if b.batch > 1 else 0,
        "batch_c": product.batch_c,
        "alpha": product.alpha,
        "clear": clear,
        "segment": segments(product.k)[0][1] if segment is None else segment,
        "marked_a": product.m if packs_a else 0,
        "most_doubts": doubts.most if doubts else NO_LIMIT,
    }
    tiles = ceil_div(product.m, REPAIR_TILE) * ceil_div(product.n, REPAIR_TILE) * product.batch
    grid, block, arch = (least(tiles, 2 * sms), 1, 1), (256, 1, 1), packed[0].arch
    return PlannedLaunch("repair", None, grid, block, args, arch=arch)


def choose_tile(product: Product, a: Packed, b: Packed, sms: int) -> TileConfig:
    """Return the tile with the least predicted time on a GPU with `sms` multiprocessors.

    Short chains drift half as far as long ones. `bf16x6` always has short chains: its terms may be
    so unequal that a chain reaches its full size, and truncates, from its first step on. It also
    has totals, so that after a large term only the additions within one `total_k` of k round. In
    `fp16x3` short chains rule out the widest tile, which gains more the larger the product; for
    long chains, `Packed.first` offsets the drift. The choice depends on k alone, because an operand
    can be packed before its product is known.
    """
    return fastest(product, a.arch, a.scheme, (a.k_major, b.k_major), sms)[1]


def fastest(
    product: Product, arch: Architecture, scheme: Scheme, k_major: tuple[bool, bool], sms: int
) -> tuple[int, TileConfig]:
    """The tile with the least predicted clocks, and these clocks: rounds × k-tiles per round."""
    index, clocks = least_clocks(product, arch, scheme, k_major, sms)
    return clocks, choices(product, arch, scheme, k_major)[index]


def least_clocks(
    product: Product, arch: Architecture, scheme: Scheme, k_major: tuple[bool, bool], sms: int
) -> tuple[int, int]:
    """The index in `choices` of the tile with the least predicted clocks, and these clocks."""
    m, n, batch, each = product.m, product.n, product.batch, arch.round_clocks
    steps, clocks = ceil_div(product.k, LINE), []
    for tile, rows, columns, step_clocks in _tiles(*_kind(product.k, arch, scheme, k_major)):
        clusters = ceil_div(m, rows) * ceil_div(n, columns) * batch
        rounds = ceil_div(clusters, sms // tile.cluster)
        clocks.append(rounds * (steps * step_clocks + each))
    return first_least(clocks)


def choices(
    product: Product, arch: Architecture, scheme: Scheme, k_major: tuple[bool, bool]
) -> list[TileConfig]:
    """The tiles that a product may use."""
    return [tile for tile, *_ in _tiles(*_kind(product.k, arch, scheme, k_major))]


def _kind(
    k: int, arch: Architecture, scheme: Scheme, k_major: tuple[bool, bool]
) -> tuple[Architecture, str, bool, bool, int]:
    return arch, scheme.name, *k_major, promote_k(scheme, k)


def tiles(a: Packed, b: Packed, k: int) -> list[TileConfig]:
    """Return the tiles that a product of depth k may use."""
    kind = _kind(k, a.arch, a.scheme, (a.k_major, b.k_major))
    return [tile for tile, *_ in _tiles(*kind)]


@cache
def _tiles(
    arch: Architecture, name: str, a_k_major: bool, b_k_major: bool, promote_k: int
) -> list[tuple[TileConfig, int, int, int]]:
    """Each tile, the rows and columns of C that a cluster computes, and clocks per k-tile."""
    scheme, found = SCHEMES[name], []
    for block_n, stages in arch.stages.items():
        fits = block_n // 2 * (1 + LINE // promote_k) <= MAX_SUMS
        fits = fits and stages >= arch.least_tiles * scheme.parts
        for cluster in arch.blocks if fits else ():
            tile = arch.tile(
                scheme=scheme,
                a_major="k" if a_k_major else "mn",
                b_major="k" if b_k_major else "mn",
                block_n=block_n,
                stages=stages,
                cluster=cluster,
                promote_k=promote_k,
                total_k=scheme.total_k,
            )
            found.append((tile, tile.block_m * cluster, block_n, arch.step_clocks[block_n]))
    return found
