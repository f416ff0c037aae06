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
from typing import Any, NamedTuple

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import (
    DEEP_STRIP,
    FIRST,
    INSTEAD,
    LAST,
    LINE,
    MAX_SUMS,
    NO_LIMIT,
    PACK_WARPS,
    REPAIR_TILE,
    REPEATS,
    SCHEMES,
    STRIP,
    PackConfig,
    Scheme,
    TileConfig,
)
from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning.finish import finish
from gemmlab.linalg.planning.formulas import first_least, least, most
from gemmlab.linalg.planning.launch import Address, PlannedLaunch, Value
from gemmlab.linalg.planning.packed import Packed, operands, promote_k
from gemmlab.linalg.shapes import Operand

STATUS_BYTES = 24  # of three 64-bit counts: `kernels.gemm.sm90.pack`
# `kernels.gemm.sm90.reporting`; the statuses of operands that the running product packs follow.
REPORT_BYTES = 120
STATUSES = (64, 96)  # offsets of the statuses of the left and of the right operand
SHORT_SUM = 64  # terms that `Scheme.doubt` is for
_DEEPEST = 16384  # of k per launch, unless there would be more than _MOST_SEGMENTS launches
_MOST_SEGMENTS = 64
# The least k at which `finish` is launched: there one launch more hardly counts, and doubtful sums
# take long. And the number of sums that its list can hold.
_DEEP, _LISTED = 4096, 2**16

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


class Reporting(NamedTuple):
    """How the launches of a product report; see `kernels.gemm.sm90.reporting`.

    statuses: of the left and of the right operand. clear: bit 0 clears that of the left one, bit 1
    that of the right one, for operands that the next product packs again.
    """

    report: Address
    statuses: tuple[Address, Address]
    clear: int
    first: bool = True  # whether the product's first launch that multiplies is among them
    last: bool = True


def multiply(
    product: Product,
    tile: TileConfig,
    factors: tuple[Operand, Operand],
    packed: tuple[Packed, Packed],
    sources: Addresses,
    addresses: tuple[Address, Address],
    reporting: Reporting,
    sms: int,
    risk: tuple[int, int] = (0, NO_LIMIT),
    totals: Address = 0,
    notes: Address = 0,
    bases: tuple[Address, Address] | None = None,
    checks: bool = False,
    instead: bool = False,
    added: Added | None = None,
) -> tuple[PlannedLaunch, ...]:
    """Return the launches that multiply packed operands.

    sources: addresses of A, B and C. addresses: of the packed A and B. totals: address of
    `totals_bytes` bytes. notes: of `notes_bytes`. The kernels return at once unless the number of
    elements at risk lies in `risk`, ends included; if `instead`, the first one then computes C as
    `tile.again` says. bases: the packed operands whose exponents and counts apply, if not A and B
    themselves. checks: whether doubtful sums are computed again. added: D, if it is not C. If k is
    very large, each launch covers a segment of it, and all but the first add to C, which limits the
    number of rounded additions per sum.
    """
    a, b = packed
    assert a.first == "nearest" or a.first != b.first, "first parts of a and b rounded one way"
    at_c = sources[2]
    base_a, base_b = bases or addresses
    blocks = _blocks(product, tile, sms)
    offsets_a, offsets_b = a.offsets, b.offsets
    own = Added(at_c, product.ldc, 1, product.batch_c)
    launches: list[PlannedLaunch] = []
    # √k·u is half of what the contract allows. Sums of fewer than 64 terms are held to less.
    ratio = SHORT_SUM / product.k
    doubt = a.scheme.doubt * most(ratio, ratio**0.5) if checks else 0.0
    parts, room = segments(product.k), _room(product, a.arch)
    repeats = tile.again is not None and product.k >= tile.again.least_k
    repeats = repeats and checks and len(parts) == 1
    for i, (first, depth) in enumerate(parts):
        maps, pointers = operands(tile, packed, addresses, first, depth)
        d = own if i or added is None else added
        bits = FIRST * (reporting.first and i == 0) | INSTEAD * (instead and i == 0)
        bits |= LAST * (reporting.last and i == len(parts) - 1) | REPEATS * repeats
        args = {
            **pointers,
            "x_a": sources[0],
            "x_b": sources[1],
            "c": at_c,
            "d": d.at,
            "unscale_a": base_a + offsets_a["unscale"],
            "unscale_b": base_b + offsets_b["unscale"],
            "risk_a": base_a + offsets_a["risk"],
            "risk_b": base_b + offsets_b["risk"],
            "shortfall_a": base_a + offsets_a["shortfall"],
            "shortfall_b": base_b + offsets_b["shortfall"],
            "status_a": reporting.statuses[0],
            "status_b": reporting.statuses[1],
            "report": reporting.report,
            "totals_c": totals,
            "notes": notes,
            "m": product.m,
            "n": product.n,
            "k": depth,
            "batch": product.batch,
            "begin": first,
            "lda": factors[0].ld,
            "ldb": factors[1].ld,
            "batch_a": step_of(factors[0]),
            "batch_b": step_of(factors[1]),
            "ldc": product.ldc,
            "batch_c": product.batch_c,
            "row_d": d.row,
            "column_d": d.column,
            "batch_d": d.item,
            "item_stride_a": int(a.batch > 1),
            "item_stride_b": int(b.batch > 1),
            "alpha": product.alpha,
            "beta": 1.0 if i else product.beta,
            "least_risk": risk[0],
            "most_risk": risk[1],
            "doubt": doubt,
            "depth": product.k,
            "clear": reporting.clear,
            "launch": bits,
            "room": room,
        }
        grid, block = (blocks, 1, 1), (tile.threads, 1, 1)
        rest = maps, tile.cluster, tile.smem_bytes, a.arch
        launches.append(PlannedLaunch("multiply_packed", tile, grid, block, args, *rest))
        if room:
            doubts = notes + _clusters(product, tile) * (tile.cluster * tile.notes_bytes)
            launches.append(finish(launches[-1], doubts, sms))
    return tuple(launches)


def step_of(operand: Operand) -> int:
    """Elements from matrix to matrix; 0 if there is only one."""
    return operand.batch_stride if operand.batch > 1 else 0


@cache
def with_again(tile: TileConfig, config: DirectConfig) -> TileConfig:
    """The tile with the configuration of the kernel that computes C if values are too wide."""
    return replace(tile, again=config)


def totals_bytes(product: Product, tile: TileConfig, sms: int) -> int:
    """Bytes of device memory for totals. It need not be initialized."""
    return _blocks(product, tile, sms) * tile.totals_bytes if product.k > tile.total_k else 0


def notes_bytes(product: Product, tile: TileConfig, arch: Architecture) -> int:
    """Bytes of device memory for notes of doubtful sums, and their list; any contents will do."""
    nbytes: int = _clusters(product, tile) * (tile.cluster * tile.notes_bytes)
    return nbytes + 8 * _room(product, arch)


def _room(product: Product, arch: Architecture) -> int:
    """How many doubtful sums the blocks may leave to `finish`; 0 if it is not launched."""
    return _LISTED if "finish" in arch.kernels and product.k >= _DEEP else 0


def _clusters(product: Product, tile: TileConfig) -> Any:
    """The tiles of clusters of blocks."""
    down = ceil_div(product.m, tile.block_m * tile.cluster)
    return down * ceil_div(product.n, tile.block_n) * product.batch


def _blocks(product: Product, tile: TileConfig, sms: int) -> int:
    """The blocks of the persistent kernel."""
    blocks: int = least(_clusters(product, tile), sms // tile.cluster) * tile.cluster
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
    factors: tuple[Operand, Operand],
    packed: tuple[Packed, Packed],
    sources: Addresses,
    addresses: tuple[Address, Address],
    report: Address,
    sms: int,
) -> PlannedLaunch:
    """Return the launch that repairs C after a kernel that does not look for infinities.

    sources: addresses of A, B and C. addresses: of packed A and packed B, which have their
    statuses. report: address of `REPORT_BYTES`, zeroed before its first use.
    """
    a, b = factors
    args = {
        "a": sources[0],
        "b": sources[1],
        "c": sources[2],
        "risk_a": addresses[0] + packed[0].offsets["risk"],
        "risk_b": addresses[1] + packed[1].offsets["risk"],
        "status_a": addresses[0] + packed[0].offsets["status"],
        "status_b": addresses[1] + packed[1].offsets["status"],
        "report": report,
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
        "batch_a": step_of(a),
        "batch_b": step_of(b),
        "batch_c": product.batch_c,
        "alpha": product.alpha,
        "clear": 3,
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
