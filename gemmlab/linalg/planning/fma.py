"""Products of float32 multiply-adds: their tile, their split of k, their predicted time.

A block computes a tile of C (`kernels.gemm.sm90.fma`). If there are few tiles, k is divided among
the blocks of a cluster. Products with a vector have a kernel of their own (`gemv`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.fma_config import DEPTH, UNIT
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.arch.architecture import FmaTile
from gemmlab.linalg.planning import gemv
from gemmlab.linalg.planning.direct import Factors
from gemmlab.linalg.planning.formulas import first_least, least, most
from gemmlab.linalg.planning.launch import (
    Address,
    PlannedLaunch,
    Value,
    WorkspaceAddresses,
)
from gemmlab.linalg.planning.plan import Added, Product
from gemmlab.linalg.planning.sgemm import is_vector
from gemmlab.linalg.shapes import Operand

SPLITS = (1, 4, 8)  # blocks of a cluster that share k: two are seldom best, more may not fit


@dataclass(frozen=True, slots=True)
class Route:
    """The tile, and the blocks of a cluster that share k."""

    tile: FmaTile
    splits: int


@cache
def _routes(arch: Architecture) -> tuple[Route, ...]:
    return tuple(Route(tile, splits) for tile in arch.fma for splits in SPLITS)


def routes(
    arch: Architecture, _k_major: tuple[bool, bool], _k: Any
) -> tuple[Route | gemv.Route, ...]:
    """All routes: those of matrices, for operands in any order and any k, then those of vectors."""
    return *_routes(arch), *gemv.routes(arch)


def _tiles_of(m: Any, n: Any, route: Route) -> Any:
    config = route.tile.config
    return ceil_div(m, config.block_m) * ceil_div(n, config.block_n)


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

    If neither factor is a vector, only of the routes for matrices, and without `fma_start`.

    A block keeps a multiprocessor busy for the time `busy` per `UNIT` values of k, and for
    `between`. Besides, it waits for the time `latency` per chunk of k, and for `ends`, together
    with the other blocks on the multiprocessor. If more than half of the blocks that fit are
    running, some multiprocessors are full, because blocks of the next product occupy places early.
    """
    if is_vector(m, n):
        others = len(_routes(arch))
        return [gemv.NEVER] * others + gemv.seconds_of(m, n, k, batch, k_major, arch, sms)
    seconds, longer = [], 1 + arch.fma_k_major * sum(k_major)
    for route in _routes(arch):
        tile, blocks = route.tile, _tiles_of(m, n, route) * batch * route.splits
        fit = most(1, arch.clusters_at_once[route.splits] * sms // arch.multiprocessors)
        used = fit * route.splits
        depth = least(ceil_div(ceil_div(k, DEPTH), route.splits) * DEPTH, k)
        each = ceil_div(blocks, used)
        each = most(each, least(each // (tile.at_once // 2 + 1), 1) * tile.at_once)
        time = each * (ceil_div(depth, UNIT) * (tile.busy * longer) + tile.between)
        rounds = ceil_div(blocks, used * tile.at_once)
        time += rounds * (ceil_div(depth, DEPTH) * tile.latency + tile.ends)
        if route.splits > 1:
            time += arch.fma_join * (route.splits - 1)
        seconds.append(time)
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
    if is_vector(m, n):
        return index, best
    return index, arch.fma_start + most(best, moving(m, n, k, batch, arch))


def bound(m: Any, n: Any, k: Any, batch: Any, arch: Architecture, sms: int) -> Any:
    """A lower bound on the predicted seconds of every route: as if tiles left no remainder."""
    if is_vector(m, n):
        return 0.0
    fastest, between = _fastest(arch)
    computed = m * n * batch * (k * (fastest / sms) + between / sms)
    return arch.fma_start + most(computed, moving(m, n, k, batch, arch))


@cache
def _fastest(arch: Architecture) -> tuple[float, float]:
    """The least seconds of a multiprocessor per multiply-add, and per element of C."""
    found = []
    for tile in arch.fma:
        elements = tile.config.block_m * tile.config.block_n
        each = tile.busy / UNIT + tile.latency / (DEPTH * tile.at_once)
        between = tile.between + tile.ends / tile.at_once
        found.append((each / elements, between / elements))
    each, between = map(min, zip(*found, strict=True))
    return each, between


def moving(m: Any, n: Any, k: Any, batch: Any, arch: Architecture) -> Any:
    """Predicted seconds to move the matrices, each element once."""
    read, written = 4 * batch * k * (m + n), 4 * batch * m * n
    return read / arch.fma_reads + written / arch.fma_writes


def sizes(
    _product: Product, _factors: tuple[Operand, Operand], _route: Route | gemv.Route, _sms: int
) -> tuple[int, int, int, int]:
    """Bytes of device memory: none."""
    return 0, 0, 0, 0


def launches(
    product: Product,
    factors: Factors,
    at_c: Address,
    added: Added | None,
    route: Route | gemv.Route,
    _memory: WorkspaceAddresses,
    _most_wide: int | None,
    arch: Architecture,
    _sms: int,
) -> tuple[PlannedLaunch, ...]:
    """Return the launch. added: D, if it is not C."""
    d = added or Added(at_c, product.ldc, 1, product.batch_c)
    if isinstance(route, gemv.Route):
        return (gemv.launch(product, factors, at_c, d, route, arch),)
    config, splits = route.tile.config, route.splits
    left, right, at_left, at_right = factors
    row_a, column_a = (left.ld, 1) if left.k_major else (1, left.ld)
    row_b, column_b = (1, right.ld) if right.k_major else (right.ld, 1)
    args: dict[str, Value] = {
        "a": at_left,
        "b": at_right,
        "c": at_c,
        "d": d.at,
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "row_a": row_a,
        "column_a": column_a,
        "row_b": row_b,
        "column_b": column_b,
        "batch_a": left.batch_stride,
        "batch_b": right.batch_stride,
        "row_c": product.ldc,
        "batch_c": product.batch_c,
        "row_d": d.row,
        "column_d": d.column,
        "batch_d": d.item,
        "alpha": product.alpha,
        "beta": product.beta,
        "splits": splits,
        "each": ceil_div(ceil_div(product.k, DEPTH), splits) * DEPTH,
    }
    grid = _tiles_of(product.m, product.n, route) * splits, product.batch, 1
    block, smem = (config.threads, 1, 1), config.smem_bytes
    return (PlannedLaunch("multiply_fma", config, grid, block, args, (), splits, smem, arch),)
