"""Products of one packed and one streamed operand: their ways, predicted times, launches.

The operand with fewer vectors is packed, the other one is split on its way to the tensor cores
(`kernels.gemm.sm90.streamed`). If there are few tiles, k is divided into slices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import FP16X3, LINE, NO_LIMIT, WIDE_COUNT
from gemmlab.kernels.gemm.sm90.direct_config import MOST_ITEMS, DirectConfig
from gemmlab.kernels.gemm.sm90.streamed_config import StreamedConfig
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.arch.architecture import StreamedTile
from gemmlab.linalg.planning import direct, plan
from gemmlab.linalg.planning.again import again
from gemmlab.linalg.planning.direct import Factors, add_slices, slice_pitch
from gemmlab.linalg.planning.formulas import first_least, least, most
from gemmlab.linalg.planning.gemv import NEVER
from gemmlab.linalg.planning.launch import (
    Address,
    Map,
    PlannedLaunch,
    Value,
    WorkspaceAddresses,
)
from gemmlab.linalg.planning.packed import Packed, operand_map
from gemmlab.linalg.planning.packing import packing_seconds
from gemmlab.linalg.planning.plan import Added, Product
from gemmlab.linalg.shapes import Operand

WAVES = (0, 1, 3)  # of `Route`: slices for one wave often leave a third of the GPU idle
_LEAST_TILES = 4  # k-tiles of a slice
_TMA = 16  # bytes: the least distance that a tensor map permits


@dataclass(frozen=True, slots=True)
class Route:
    """The tile, whether the right factor is streamed, and how k is divided.

    waves: tiles of slices per multiprocessor, at most; 0: k is not divided.
    """

    tile: StreamedTile
    swapped: bool
    waves: int


def routes(arch: Architecture, k_major: tuple[bool, bool], _k: Any) -> tuple[Route, ...]:
    """All ways to compute products whose rows of a, and columns of b, are contiguous or not."""
    return _routes(arch, *k_major)


@cache
def _routes(arch: Architecture, a_k_major: bool, b_k_major: bool) -> tuple[Route, ...]:
    found = []
    for tile in arch.streamed:
        for swapped in (False, True):
            majors = ["k" if x else "mn" for x in (a_k_major, b_k_major)][:: -1 if swapped else 1]
            config = replace(tile.config, streamed_major=majors[0], packed_major=majors[1])
            one = replace(tile, config=config)
            found += [Route(one, swapped, waves) for waves in WAVES]
    return tuple(found)


def tiles_of(streamed: Any, packed: Any, batch: Any, config: StreamedConfig) -> Any:
    """The number of tiles of products with that many vectors."""
    return ceil_div(streamed, config.block_m) * ceil_div(packed, config.block_n) * batch


def slices_of(tiles: Any, k: Any, route: Route, sms: int) -> Any:
    """The number of slices of k with which the route has that many waves, or fewer."""
    return most(1, least(route.waves * sms // tiles, k // (LINE * _LEAST_TILES)))


def seconds_of(
    m: Any,
    n: Any,
    k: Any,
    batch: Any,
    k_major: tuple[bool, bool],
    arch: Architecture,
    sms: int,
) -> list[Any]:
    """Predicted seconds of each of `routes`; `NEVER` unless they stream the larger operand.

    A k-tile takes a block the time `latency`, and longer if it is copied in single elements. A
    block's first tile takes `ends` longer than its k-tiles, each other one `between`.
    """
    found, k_tiles, single = list[Any](), ceil_div(k, LINE), direct.unaligned(m, n, k, k_major)
    right = n >= m  # of two equally large factors, streaming the right one is mostly faster
    for route in routes(arch, k_major, k):
        tile, order = route.tile, -1 if route.swapped else 1
        if route.swapped != right:
            found.append(NEVER)
            continue
        (streamed, packed), (odd, _) = (m, n)[::order], single[::order]
        units, slices = tiles_of(streamed, packed, batch, tile.config), 1
        each = tile.latency * (1 + tile.unaligned * odd)
        time = arch.streamed_start + tile.ends - tile.between
        time += packing_seconds(packed, k, batch, k_major[::order][1], single[::order][1], arch)
        if route.waves:
            slices = slices_of(units, k, route, sms)
            units *= slices
            time += arch.streamed_add + 4 * m * n * batch * slices / arch.streamed_add_bytes
        time += ceil_div(units, sms) * (ceil_div(k_tiles, slices) * each + tile.between)
        found.append(time)
    return found


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


def bound(m: Any, n: Any, k: Any, batch: Any, arch: Architecture, sms: int) -> Any:
    """A lower bound on the predicted seconds of every route: as if only k-tiles took time."""
    return arch.streamed_start + m * n * k * batch * _fastest(arch, sms)


@cache
def _fastest(arch: Architecture, sms: int) -> float:
    """The least seconds of the GPU per multiply-add."""
    sizes = ((tile.latency, tile.config.block_m * tile.config.block_n) for tile in arch.streamed)
    return min(latency / (LINE * elements * sms) for latency, elements in sizes)


def moving(m: Any, n: Any, k: Any, batch: Any, arch: Architecture) -> Any:
    """Predicted seconds to move the matrices, each element once."""
    return arch.streamed_start + direct.moving(m, n, k, batch, arch)


def sizes(
    product: Product, factors: tuple[Operand, Operand], route: Route, sms: int
) -> tuple[int, int, int, int]:
    """Bytes of device memory for the packed operand, slices, and notes of doubtful sums."""
    streamed, packed = factors[:: -1 if route.swapped else 1]
    count = _slices(product, streamed, packed, route, sms)
    slices = 4 * count * product.m * slice_pitch(product.n) * product.batch if route.waves else 0
    config = route.tile.config
    tiles = tiles_of(streamed.vectors, packed.vectors, product.batch, config) * count
    return _packed(packed).nbytes, 0, slices, tiles * config.notes_bytes


def _slices(product: Product, streamed: Operand, packed: Operand, route: Route, sms: int) -> Any:
    if not route.waves:
        return 1
    config = route.tile.config
    tiles = tiles_of(streamed.vectors, packed.vectors, product.batch, config)
    return slices_of(tiles, product.k, route, sms)


def _packed(operand: Operand) -> Packed:
    shape = operand.vectors, operand.depth, operand.k_major, operand.batch
    return Packed(FP16X3, *shape, "")


def launches(
    product: Product,
    factors: Factors,
    at_c: Address,
    added: Added | None,
    route: Route,
    memory: WorkspaceAddresses,
    most_wide: int | None,
    arch: Architecture,
    sms: int,
) -> tuple[PlannedLaunch, ...]:
    """Return the launches. added: D, if it is not C. memory: of `sizes`, and a report."""
    streamed, packed, at_streamed, at_packed = factors
    if route.swapped:
        streamed, packed, at_streamed, at_packed = packed, streamed, at_packed, at_streamed
    own, d = _packed(packed), added or Added(at_c, product.ldc, 1, product.batch_c)
    status = memory.report + plan.STATUSES[1]
    found = list(plan.pack(packed, own, at_packed, memory.left, status=status))
    slices = _slices(product, streamed, packed, route, sms)
    operands, sources = (streamed, packed, own), (at_streamed, at_packed)
    most_risk = NO_LIMIT if most_wide is None else (most_wide + 1) * WIDE_COUNT - 1
    result = _turned(product, route), _turned(d, route)
    if route.waves:
        m, pitch = product.m, slice_pitch(product.n)
        partial = Product(m, product.n, product.k, pitch, product.batch, slices * m * pitch)
        nothing = Added(memory.totals, 0, 0, 0)
        sliced = _turned(partial, route), nothing
        rest = memory.totals, m * pitch, slices, most_risk, memory, len(found) == 1, arch, sms
        found.append(_multiply(sliced, operands, sources, route, *rest))
        found.append(add_slices(product, memory.totals, slices, at_c, d, arch))
    else:
        rest = at_c, 0, 1, most_risk, memory, len(found) == 1, arch, sms
        found.append(_multiply(result, operands, sources, route, *rest))
    return tuple(found)


def _turned(given: Any, route: Route) -> Any:
    """C or D as the matrix whose rows are the vectors of the streamed operand."""
    if not route.swapped:
        return given
    if isinstance(given, Added):
        return given._replace(row=given.column, column=given.row)
    x = given
    sizes = x.n, x.m, x.k, x.column_c, x.batch, x.batch_c, x.alpha, x.beta
    return Product(*sizes, x.ldc)


def _multiply(
    result: tuple[Product, Added],
    operands: tuple[Operand, Operand, Packed],
    sources: tuple[Address, Address],
    route: Route,
    at_c: Address,
    slice_c: Any,
    slices: Any,
    most_risk: Any,
    memory: WorkspaceAddresses,
    early: bool,
    arch: Architecture,
    sms: int,
) -> PlannedLaunch:
    """The launch that multiplies. sources: addresses of the streamed operand, and of the one that
    is packed. early: see `kernels.gemm.sm90.streamed`."""
    (product, d), (streamed, packed, own) = result, operands
    k, offsets, at_streamed = product.k, own.offsets, sources[0]
    config = _with_again(route.tile.config, again(arch, k, (streamed.k_major, packed.k_major)))
    lines = (k, streamed.vectors) if streamed.k_major else (streamed.vectors, k)
    strides = 4 * streamed.ld, most(4 * streamed.batch_stride, _TMA)
    shape = (*lines, streamed.batch)
    maps = (
        Map(config.streamed_copy, at_streamed, shape, strides, required=False),
        operand_map(config.packed_copy, own, memory.left, 0, k),
    )
    ratio = plan.SHORT_SUM / k
    args: dict[str, Value] = {
        "x": at_streamed,
        "y": sources[1],
        "c": at_c,
        "d": d.at,
        "unscale": memory.left + offsets["unscale"],
        "risk": memory.left + offsets["risk"],
        "status": memory.report + plan.STATUSES[1],
        "report": memory.report,
        "notes": memory.notes,
        "m": product.m,
        "n": product.n,
        "k": k,
        "batch": product.batch,
        "ldx": streamed.ld,
        "ldy": packed.ld,
        "batch_x": plan.step_of(streamed),
        "batch_y": plan.step_of(packed),
        "row_c": product.ldc,
        "column_c": product.column_c,
        "batch_c": product.batch_c,
        "slice_c": slice_c,
        "row_d": d.row,
        "column_d": d.column,
        "batch_d": d.item,
        "item_stride_x": int(streamed.batch > 1),
        "item_stride": int(packed.batch > 1),
        "alpha": product.alpha,
        "beta": product.beta,
        "most_risk": most_risk,
        "doubt": FP16X3.doubt * most(ratio, ratio**0.5),
        "slices": slices,
        "early": int(early),
    }
    tiles = tiles_of(product.m, product.n, product.batch, config) * slices
    blocks, most_tiles = sms, sms * (MOST_ITEMS // 2)
    if tiles > most_tiles:  # a tile is up to two of `again`; a block can compute MOST_ITEMS
        blocks *= ceil_div(tiles, most_tiles)
    blocks = ceil_div(tiles, ceil_div(tiles, blocks))
    grid, block = (blocks, 1, 1), (config.threads, 1, 1)
    rest = maps, 1, config.smem_bytes, arch
    return PlannedLaunch("multiply_streamed", config, grid, block, args, *rest)


@cache
def _with_again(config: StreamedConfig, own: DirectConfig) -> StreamedConfig:
    return replace(config, again=own)
