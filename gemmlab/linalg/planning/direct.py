"""Products without packing: their tile, their split of k, their predicted time.

A block computes a tile of C (`kernels.gemm.sm90.direct`). If there are few tiles, k is
divided: among the blocks of a cluster, which add up their sums through shared memory, or in slices,
which a second launch adds up (`add_slices`). Clusters cost no launch, but many do not fit at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any, NamedTuple

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK, MOST_ITEMS
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.arch.architecture import DirectTile
from gemmlab.linalg.planning.formulas import first_least, least, most
from gemmlab.linalg.planning.launch import (
    Address,
    PlannedLaunch,
    Value,
    WorkspaceAddresses,
)
from gemmlab.linalg.planning.plan import Added, Product
from gemmlab.linalg.shapes import Operand

SPLITS = (1, 2, 4)  # blocks of a cluster that share k; too few larger clusters fit at once
SLICES = 0  # instead: slices of k, if it is deep enough
_LEAST_CHUNKS = 4  # of a slice
_LESS = 1 - 1e-12  # of a lower bound, which rounding must not make larger
_WARPS = 8  # of a block of `add_slices`, which divide the slices if there are more
_LANES = 32  # of each, four elements of C per lane


@dataclass(frozen=True, slots=True)
class Route:
    """The tile, how k is divided, and whether the transposed product is computed."""

    tile: DirectTile
    splits: int  # blocks of a cluster, or SLICES
    swapped: bool


class Factors(NamedTuple):
    """Left and right operand, with the addresses of their arrays."""

    left: Operand
    right: Operand
    at_left: Address
    at_right: Address


def tiles(arch: Architecture, k: Any) -> tuple[DirectTile, ...]:
    """The tiles that are accurate at that depth with the fewest products, in the longest chains."""
    return _tiles(arch, _limit(arch, k))


def _limit(arch: Architecture, k: Any) -> int:
    """The least k with the same tiles."""
    first, *others = _limits(arch)
    return next((limit for limit in others[::-1] if k >= limit), first)


@cache
def _limits(arch: Architecture) -> list[int]:
    return sorted({tile.config.least_k for tile in arch.direct})


@cache
def _tiles(arch: Architecture, limit: int) -> tuple[DirectTile, ...]:
    accurate = [tile for tile in arch.direct if tile.config.least_k <= limit]
    fewest = min(tile.config.products for tile in accurate)
    found = {}  # of tiles of one size, the last one stays
    for tile in sorted(accurate, key=lambda tile: tile.config.chain):
        if tile.config.products == fewest:
            found[tile.config.block_m, tile.config.block_n] = tile
    return tuple(found.values())


def routes(arch: Architecture, k_major: tuple[bool, bool], k: Any) -> tuple[Route, ...]:
    """All routes of products whose rows of a, and columns of b, are contiguous or not."""
    return _routes(arch, k_major, _limit(arch, k))


@cache
def _routes(arch: Architecture, k_major: tuple[bool, bool], limit: int) -> tuple[Route, ...]:
    found = []
    divisions = (*SPLITS, SLICES) if limit >= CHUNK * _LEAST_CHUNKS else SPLITS
    for tile in _tiles(arch, limit):
        for swapped in (False, True):
            a_major, b_major = ("k" if x else "mn" for x in k_major[:: -1 if swapped else 1])
            config = replace(tile.config, a_major=a_major, b_major=b_major)
            if swapped and config.block_m == config.block_n:
                continue  # the transposed product would be computed in the same way
            found += [Route(replace(tile, config=config), x, swapped) for x in divisions]
    return tuple(found)


def tiles_of(m: Any, n: Any, batch: Any, route: Route) -> Any:
    config = route.tile.config
    rows, columns = (n, m) if route.swapped else (m, n)
    return ceil_div(rows, config.block_m) * ceil_div(columns, config.block_n) * batch


def slices_of(tiles: Any, k: Any, route: Route, sms: int) -> Any:
    """The number of slices of k with which all blocks run at once."""
    tile = route.tile
    return most(1, least(sms * tile.at_once // tiles, k // (CHUNK * _LEAST_CHUNKS)))


def unaligned(m: Any, n: Any, k: Any, k_major: tuple[bool, bool]) -> list[Any]:
    """For each of dense a and b: 1 if its lines do not permit 128-bit accesses, else 0."""
    return [least((k if major else x) % 4, 1) for x, major in zip((m, n), k_major, strict=True)]


def seconds_of(
    m: Any,
    n: Any,
    k: Any,
    batch: Any,
    k_major: tuple[bool, bool],
    arch: Architecture,
    sms: int,
) -> list[Any]:
    """Predicted seconds of each of `routes`.

    A chunk of k takes a block the time `latency`, and `busy` for each block of the multiprocessor,
    and longer if it is copied in single elements. A block's first tile takes `ends` longer than its
    chunks, each other one `between`; if a cluster divides k, each takes `ends` longer.
    """
    seconds = []
    chunks, elements = ceil_div(k, CHUNK), m * n * batch
    single = unaligned(m, n, k, k_major)
    for route in routes(arch, k_major, k):
        tile, splits = route.tile, route.splits
        # Blocks or clusters, and how many of them run at once, for each block of a multiprocessor.
        units, fit = tiles_of(m, n, batch, route), sms
        if route.splits == SLICES:
            splits = slices_of(units, k, route, sms)
            units *= splits
        elif splits > 1:
            fit = most(1, arch.clusters_at_once[splits] * sms // arch.multiprocessors)
        chunk: Any = tile.latency
        if tile.at_once > 1:
            chunk += least(tile.at_once, ceil_div(units, fit)) * tile.busy
        a, b = single[:: -1 if route.swapped else 1]
        chunk *= 1 + tile.unaligned_a * a + tile.unaligned_b * b
        rounds = ceil_div(units, fit * tile.at_once)
        each, rest = ceil_div(chunks, splits) * chunk, tile.ends - tile.between
        if route.splits in (1, SLICES):
            time = rounds * (each + tile.between)
            if route.splits == SLICES:
                time += 4 * elements / arch.direct_add_bytes
                rest += arch.direct_add
        else:
            time = rounds * (each + tile.ends)
            rest = arch.direct_join
        seconds.append(time + (arch.direct_start + rest))
    return seconds


def least_seconds(
    m: Any,
    n: Any,
    k: Any,
    batch: Any,
    k_major: tuple[bool, bool],
    arch: Architecture,
    sms: int,
) -> tuple[Any, Any]:
    """The index in `routes` of the one predicted to be fastest, and its seconds."""
    index, best = first_least(seconds_of(m, n, k, batch, k_major, arch, sms))
    return index, most(best, moving(m, n, k, batch, arch))


def bound(
    m: Any,
    n: Any,
    k: Any,
    batch: Any,
    k_major: tuple[bool, bool],
    arch: Architecture,
    sms: int,
) -> Any:
    """A lower bound on the predicted seconds of every route: as if all blocks ended together."""
    chunks, single = ceil_div(k, CHUNK), sum(unaligned(m, n, k, k_major))
    times = (
        _least_tiles(m, n, batch, tile)
        * (chunks * (each / sms * (1 + longer * single)) + between / sms)
        + end
        for tile, each, longer, between, end in _fastest(arch, _limit(arch, k))
    )
    return most(reduce(least, times), moving(m, n, k, batch, arch))


def _least_tiles(m: Any, n: Any, batch: Any, tile: DirectTile) -> Any:
    """The number of tiles of C or of its transpose, whichever has fewer."""
    tiles = tiles_of(m, n, batch, Route(tile, 1, False))
    if tile.config.block_m == tile.config.block_n:
        return tiles
    return least(tiles, tiles_of(m, n, batch, Route(tile, 1, True)))


@cache
def _fastest(arch: Architecture, limit: int) -> list[tuple[DirectTile, float, float, float, float]]:
    """For each tile: the least seconds of a multiprocessor per chunk, and in addition per tile.

    Also the least share by which chunks take longer per unaligned factor, and all other seconds.
    """
    found = []
    for tile in _tiles(arch, limit):
        each = _LESS * (tile.busy + tile.latency / tile.at_once)
        between = _LESS * tile.between / tile.at_once
        longer, end = min(tile.unaligned_a, tile.unaligned_b), tile.ends - tile.between
        found.append((tile, each, longer, between, arch.direct_start + end))
    return found


def moving(m: Any, n: Any, k: Any, batch: Any, arch: Architecture) -> Any:
    """Predicted seconds to move the matrices, each element once."""
    return 4 * batch * (k * (m + n) + m * n) / arch.direct_stream


def sizes(
    product: Product, _factors: tuple[Operand, Operand], route: Route, sms: int
) -> tuple[int, int, int, int]:
    """Bytes of device memory: for slices alone."""
    return 0, 0, _slice_bytes(product, route, sms), 0


def _slice_bytes(product: Product, route: Route, sms: int) -> int:
    if route.splits != SLICES:
        return 0
    tiles = tiles_of(product.m, product.n, product.batch, route)
    elements: int = slices_of(tiles, product.k, route, sms) * product.m * slice_pitch(product.n)
    return 4 * product.batch * elements


def slice_pitch(n: Any) -> Any:
    """Elements between the rows of a slice: 128-bit accesses are aligned."""
    return 4 * ceil_div(n, 4)


def launches(
    product: Product,
    factors: Factors,
    at_c: Address,
    added: Added | None,
    route: Route,
    memory: WorkspaceAddresses,
    _most_wide: int | None,
    arch: Architecture,
    sms: int,
) -> tuple[PlannedLaunch, ...]:
    """Return the launches. added: D, if it is not C. memory: of `sizes`."""
    slices_at = memory.totals
    d = added or Added(at_c, product.ldc, 1, product.batch_c)
    m, n, k, batch = product.m, product.n, product.k, product.batch
    if route.splits != SLICES:
        return (_multiply(product, factors, at_c, d, route, 1, 0, arch, sms),)
    slices = slices_of(tiles_of(m, n, batch, route), k, route, sms)
    pitch = slice_pitch(n)
    partial = Product(m, n, k, pitch, batch, slices * m * pitch)
    nothing = Added(slices_at, 0, 0, 0)
    rest = route, slices, m * pitch, arch, sms
    multiply = _multiply(partial, factors, slices_at, nothing, *rest)
    return multiply, add_slices(product, slices_at, slices, at_c, d, arch)


def add_slices(
    product: Product, slices_at: Address, count: Any, at_c: Address, d: Added, arch: Architecture
) -> PlannedLaunch:
    """Return the launch that adds up slices of k."""
    m, pitch = product.m, slice_pitch(product.n)
    many = least(count // (_WARPS + 1), 1)  # 0 or 1
    args: dict[str, Value] = {
        "slices": slices_at,
        "c": at_c,
        "d": d.at,
        "m": m,
        "n": product.n,
        "count": count,
        "pitch": pitch,
        "row_c": product.ldc,
        "batch_c": product.batch_c,
        "row_d": d.row,
        "column_d": d.column,
        "batch_d": d.item,
        "together": 1 + (_WARPS - 1) * many,
        "alpha": product.alpha,
        "beta": product.beta,
    }
    fours = _LANES * (_WARPS - (_WARPS - 1) * many)  # per block
    grid = ceil_div(m * (pitch // 4), fours), product.batch, 1
    return PlannedLaunch("add_slices", None, grid, (_WARPS * _LANES, 1, 1), args, arch=arch)


def _multiply(
    product: Product,
    factors: Factors,
    at_c: Address,
    d: Added,
    route: Route,
    slices: Any,
    slice_step: Any,
    arch: Architecture,
    sms: int,
) -> PlannedLaunch:
    config, splits = route.tile.config, most(1, route.splits)
    left, right, at_left, at_right = factors
    m, n = product.m, product.n
    c, d_strides = (product.ldc, 1), (d.row, d.column)
    if route.swapped:
        left, right, at_left, at_right = right, left, at_right, at_left
        m, n, c, d_strides = n, m, c[::-1], d_strides[::-1]
    args: dict[str, Value] = {
        "a": at_left,
        "b": at_right,
        "c": at_c,
        "d": d.at,
        "m": m,
        "n": n,
        "k": product.k,
        "lda": left.ld,
        "ldb": right.ld,
        "batch_a": left.batch_stride,
        "batch_b": right.batch_stride,
        "row_c": c[0],
        "column_c": c[1],
        "batch_c": product.batch_c,
        "row_d": d_strides[0],
        "column_d": d_strides[1],
        "batch_d": d.item,
        "slice_c": slice_step,
        "alpha": product.alpha,
        "beta": product.beta,
        "splits": splits,
        "slices": slices,
    }
    rows, columns = ceil_div(m, config.block_m), ceil_div(n, config.block_n)
    args["items"] = items = rows * columns * product.batch * slices
    blocks = items
    if splits == 1:
        at_once = sms * route.tile.at_once
        at_once *= ceil_div(items, at_once * MOST_ITEMS)
        rounds = ceil_div(items, at_once)
        blocks = ceil_div(items, rounds)
    # How far apart a block's items are: `blocks` tiles.
    tile = blocks % (rows * columns)
    args["by_matrix"], args["by_row"] = blocks // (rows * columns), tile % rows
    args["by_column"] = tile // rows
    grid, block = (blocks * splits, 1, 1), (config.threads, 1, 1)
    return PlannedLaunch("multiply", config, grid, block, args, (), splits, config.smem_bytes, arch)
