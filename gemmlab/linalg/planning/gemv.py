"""Products with a vector: how blocks divide the matrix, and their predicted time.

The vector is a single row of a, or a single column of b. The kernel (`kernels.gemm.sm90.gemv`)
reads each element of the other factor, the matrix, once. Where there are few results, warps and
blocks divide k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from gemmlab.kernels.common import ceil_div
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.arch.architecture import GemvTile
from gemmlab.linalg.planning.direct import Factors
from gemmlab.linalg.planning.formulas import least, most
from gemmlab.linalg.planning.launch import Address, PlannedLaunch, Value
from gemmlab.linalg.planning.plan import Added, Product
from gemmlab.linalg.planning.sgemm import missed

NEVER = 1e9  # seconds
SPLITS = (1, 2, 4, 8)  # blocks of a cluster that share k, if lines run along the result
_MOST_LOADS = 24  # of a thread, if more warps could divide k


@dataclass(frozen=True, slots=True)
class Route:
    """How the matrix is read, and how many warps of a block and blocks of a cluster share k."""

    tile: GemvTile
    warps: int
    splits: int

    @property
    def results(self) -> int:
        """Elements of the result that a block, or a cluster, computes."""
        config = self.tile.config
        return config.warps // self.warps * config.lines if config.k_major else config.width

    @property
    def depth(self) -> int:
        """Elements along k that all warps and blocks read at once."""
        config = self.tile.config
        each = config.width if config.k_major else config.lines
        return each * self.warps * self.splits


@cache
def routes(arch: Architecture) -> tuple[Route, ...]:
    """All routes, for matrices of both orders."""
    found = []
    for tile in arch.gemv:
        config = tile.config
        if not config.k_major:
            found += [Route(tile, config.warps, splits) for splits in SPLITS]
        elif config.lanes < 32:  # for short lines
            found.append(Route(tile, 1, 1))
        else:
            found += [Route(tile, warps, 1) for warps in (1, 2, 4) if warps <= config.warps]
            found.append(Route(tile, config.warps, SPLITS[-1]))
    return tuple(found)


def seconds_of(
    m: Any,
    n: Any,
    k: Any,
    batch: Any,
    k_major: tuple[bool, bool],
    arch: Architecture,
    sms: int,
) -> list[Any]:
    """Predicted seconds of each of `routes`; `NEVER` if it is for matrices of the other order.

    A block takes the time `ends`, and `latency` whenever a thread has used all that it had in
    flight. Meanwhile the matrix is read, from L2 or from memory, as fast as the multiprocessor with
    the most blocks can, or as memory delivers it. Two more kinds of routes are excluded: those
    with one block per multiprocessor that need several rounds, and those whose threads would make
    more than `_MOST_LOADS` loads although more warps could divide k.
    """
    results, is_k_major = (m, k_major[0]) if m > 1 else (n, k_major[1])
    line, seconds = k if is_k_major else results, []
    read = 4 * results * k * batch * (1 + arch.gemv_unaligned * least(line % 4, 1))
    far = missed(read, arch.l2_bytes, arch.l2_overflow)
    for route in routes(arch):
        tile, splits, ends = route.tile, route.splits, route.tile.ends
        if tile.config.k_major != is_k_major:
            seconds.append(NEVER)
            continue
        clusters = ceil_div(results, route.results) * batch
        fit = most(1, arch.clusters_at_once[splits] * sms // arch.multiprocessors)
        rounds = ceil_div(clusters, fit * tile.at_once)
        loads = ceil_div(k, route.depth)
        waiting = rounds * ceil_div(loads, tile.config.loads) * tile.latency
        if tile.at_once == 1:
            waiting += NEVER * least(rounds - 1, 1)
        if route.warps < tile.config.warps:
            waiting += NEVER * least(loads // (_MOST_LOADS + 1), 1)
        if splits > 1:
            ends += arch.gemv_join
        blocks = clusters * splits
        most_blocks = ceil_div(blocks, sms) * sms / blocks  # over the average
        reading = (1 - far) * most_blocks / arch.gemv_near
        reading += far * most(most_blocks / arch.gemv_far, 1 / arch.gemv_bytes)
        seconds.append(rounds * ends + most(waiting, reading * read) + arch.gemv_start)
    return seconds


def launch(
    product: Product,
    factors: Factors,
    at_c: Address,
    d: Added,
    route: Route,
    arch: Architecture,
) -> PlannedLaunch:
    """Return the launch. d: what is added. The route must be for the order of the matrix."""
    left, right, at_left, at_right = factors
    results, matrix, at_matrix, x, at_x = product.n, right, at_right, left, at_left
    step_c, step_d = 1, d.column
    if product.m > 1:  # a matrix times a column
        results, matrix, at_matrix, x, at_x = product.m, left, at_left, right, at_right
        step_c, step_d = product.ldc, d.row
    config, splits = route.tile.config, route.splits
    args: dict[str, Value] = {
        "matrix": at_matrix,
        "x": at_x,
        "c": at_c,
        "d": d.at,
        "n": results,
        "k": product.k,
        "ld": matrix.ld,
        "step_x": 1 if x.k_major else x.ld,
        "step_c": step_c,
        "step_d": step_d,
        "batch_matrix": matrix.batch_stride,
        "batch_x": x.batch_stride,
        "batch_c": product.batch_c,
        "batch_d": d.item,
        "alpha": product.alpha,
        "beta": product.beta,
        "warps": route.warps,
        "splits": route.splits,
    }
    grid = ceil_div(results, route.results) * splits, product.batch, 1
    block, smem = (config.threads, 1, 1), config.smem_bytes
    return PlannedLaunch("multiply_vector", config, grid, block, args, (), splits, smem, arch)
