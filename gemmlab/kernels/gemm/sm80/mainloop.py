"""Multiply packed operands with `mma.sync`, the tensor cores' instruction before Hopper.

The method is that of `sm90/mainloop.py`: several 16-bit products replace one float32 product, and
float32 additions add up short chains of the tensor cores. Here `cp.async` fills the ring of stages
and `ldmatrix` brings fragments to registers. All eight warps do the same: they start the copies of
a tile ahead, and multiply the tile that has arrived. One barrier per tile separates them.

A chain of `promote_k` (32 or 64) of k takes its small products first. Two passes load the fragments
of the largest parts twice; all parts at once would not fit in registers. Limiter on an A100, by
arithmetic: the tensor cores, 96 clocks per 16 of k and warp against 72 of shared memory.
"""

from typing import NamedTuple

import cutlass
from cutlass import Float32, Int32, Int64, Uint64, cute
from cutlass.cute.nvgpu import warp

from gemmlab.kernels.gemm import packed
from gemmlab.kernels.gemm.sm80.config import WarpTileConfig
from gemmlab.kernels.gemm.sm90 import recompute, totals
from gemmlab.kernels.gemm.sm90.config import LINE
from gemmlab.kernels.gemm.sm90.epilogue import (
    Output,
    computes,
    exponents_at,
    extremes,
    finish_doubtful,
    finish_tile,
)
from gemmlab.kernels.gemm.sm90.notes import Notes, Share, Tiles, add_noted, threads_with
from gemmlab.kernels.gemm.sm90.reporting import NUMBER, Reporting, begin_block
from gemmlab.kernels.gemm.sm90.scheduling import tile_coordinates
from gemmlab.kernels.gemm.sm90.sizes import MMA_K
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS, tiles_of
from gemmlab.kernels.gemm.tensor_core import fragments
from gemmlab.kernels.signature import signatures

POINTERS = {
    "a": ("uint16", "input"),
    "b": ("uint16", "input"),
    "x_a": ("float32", "input"),
    "x_b": ("float32", "input"),
    "c": ("float32", "output"),
    "d": ("float32", "input"),
    "unscale_a": ("int32", "input"),
    "unscale_b": ("int32", "input"),
    "risk_a": ("int32", "input"),
    "risk_b": ("int32", "input"),
    "shortfall_a": ("float32", "input"),
    "shortfall_b": ("float32", "input"),
    "status_a": ("uint64", "accumulator"),
    "status_b": ("uint64", "accumulator"),
    "report": ("uint64", "accumulator"),
    "totals_c": ("float32", "output"),
    "notes": ("uint32", "output"),
}


class Factor(NamedTuple):
    """A packed operand and its ring of stages."""

    parts: cute.Pointer
    ring: cute.Pointer
    major: str  # the axis along which its lines run: "k" or "mn"
    rows: int  # of a tile: rows of A, columns of B
    vectors: Int32
    depth: Int32
    pitch: Int64  # elements from line to line
    part: Int64  # elements from part to part
    item_stride: Int32  # 1; 0 if all items of the batch share it


@cute.jit
def fetch(
    factor: Factor,
    place: tuple,
    k_tile: Int32,
    size: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """Start the copies of all parts of a tile into its stages. place: batch item and tile.

    size: elements per copy. Lines along k are written up to a multiple of four only; what follows
    may be NaN, and is replaced by zeros.
    """
    PARTS, (item, tile) = config.scheme.parts, place
    shape, line, element = (factor.rows, LINE), tile * factor.rows, k_tile * LINE
    extents = factor.vectors, factor.depth
    if cutlass.const_expr(factor.major != "k"):
        shape, line, element = (LINE, factor.rows), k_tile * LINE, tile * factor.rows
        extents = factor.depth, factor.vectors
    own = factor.parts + Int64(item * factor.item_stride) * (PARTS * factor.part)
    layout = cute.make_layout((*extents, PARTS), stride=(factor.pitch, 1, factor.part))
    first = k_tile % config.tiles * PARTS
    matrix, corner = cute.make_tensor(own, layout), (line, element, shape)
    packed.fetch(matrix, factor.ring, first, corner, config, size)


@cute.jit
def fetch_tiles(factors: tuple, place: tuple, k_tile: Int32, config: cutlass.Constexpr) -> None:
    """Start the copies of a tile of A and of B as one group; past the last tile it is empty."""
    item, tile_m, tile_n, depth = place
    if (k_tile + 1) * LINE <= depth:
        fetch(factors[0], (item, tile_m), k_tile, 8, config)
        fetch(factors[1], (item, tile_n), k_tile, 8, config)
    elif k_tile * LINE < depth:
        fetch(factors[0], (item, tile_m), k_tile, 4, config)
        fetch(factors[1], (item, tile_n), k_tile, 4, config)
    cute.arch.cp_async_commit_group()


@cute.jit
def multiply_tile(mma, tA, tB, sums, chain, config: cutlass.Constexpr) -> None:
    """sums += A·B for lists of the parts of the warp's tiles (rows, LINE) and (columns, LINE)."""
    *small, large = config.scheme.products
    steps = config.promote_k // MMA_K
    for begin in cutlass.range_constexpr(0, LINE // MMA_K, steps):
        chain.fill(0.0)
        for products in (small, [large]):
            for kk in cutlass.range_constexpr(begin, begin + steps):
                at = (0, kk)
                used_a, used_b = (sorted({pair[i] for pair in products}) for i in range(2))
                rA = {
                    part: fragments(
                        mma,
                        cute.local_tile(tA[part], (config.warp_m, MMA_K), at),
                        "a",
                        config.a_major,
                    )
                    for part in used_a
                }
                rB = {
                    part: fragments(
                        mma,
                        cute.local_tile(tB[part], (config.warp_n, MMA_K), at),
                        "b",
                        config.b_major,
                    )
                    for part in used_b
                }
                for a, b in products:
                    cute.gemm(mma, chain, rA[a], rB[b], chain)
        for i in cutlass.range_constexpr(cute.size(sums)):
            sums[i] += chain[i]


def pieces_of(sums: cute.Tensor, config: WarpTileConfig) -> list:
    """The warp's sums, 16 rows at a time, and their coordinates in the tile."""
    rows = config.warp_m // 16
    row, col = packed.warp_tile(config)
    lane = cute.arch.lane_idx()
    columns = config.warp_n // 8
    block = cute.make_identity_tensor((config.block_m, config.block_n))
    shape, none = ((2, 2, columns), 1, 1), (0, 0)
    # A lane's element (e, r, j) is in row lane / 4 + 8·r and in column 2·(lane % 4) + e + 8·j.
    strides = (cute.E(1), 8 * cute.E(0), 8 * cute.E(1)), *none
    corner = row * config.warp_m + lane // 4, col * config.warp_n + lane % 4 * 2
    return [
        (
            cute.make_tensor(
                sums.iterator + 4 * i, cute.make_layout(shape, stride=((1, 2, 4 * rows), *none))
            ),
            cute.make_tensor(
                cute.domain_offset((corner[0] + 16 * i, corner[1]), block).iterator,
                cute.make_layout(shape, stride=strides),
            ),
        )
        for i in range(rows)
    ]


@cute.jit
def finish(
    sums,
    output: Output,
    staged: cute.Pointer,
    known: tuple,
    place: tuple,
    tile: Int32,
    sizes: tuple,
    config: cutlass.Constexpr,
) -> Int32:
    """Write the warp's part of a tile of C. Returns whether some may be doubtful.

    known: `extremes`.
    """
    exponents, doubtful = exponents_at(output, place, sizes, config), Int32(0)
    for i in cutlass.range_constexpr(config.warp_m // 16):
        own, coords = pieces_of(sums, config)[i]
        rest = known, exponents, place, note_of(tile, i, config), sizes, config
        doubtful |= finish_tile(own, coords, output, staged, *rest)
    return doubtful


@cute.jit
def note_of(tile: Int32, piece: cutlass.Constexpr, config: cutlass.Constexpr) -> Int32:
    """The number of the warp's note of 16 rows of a tile; see `notes.Notes`."""
    return tile * config.notes + cute.arch.warp_idx() * (config.warp_m // 16) + piece


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    x_a: cute.Pointer,
    x_b: cute.Pointer,
    c: cute.Pointer,
    d: cute.Pointer,
    unscale_a: cute.Pointer,
    unscale_b: cute.Pointer,
    risk_a: cute.Pointer,
    risk_b: cute.Pointer,
    shortfall_a: cute.Pointer,
    shortfall_b: cute.Pointer,
    status_a: cute.Pointer,
    status_b: cute.Pointer,
    report: cute.Pointer,
    totals_c: cute.Pointer,
    notes: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    batch: Int32,
    begin: Int32,
    lda: Int64,
    ldb: Int64,
    batch_a: Int64,
    batch_b: Int64,
    pitch_a: Int64,
    pitch_b: Int64,
    part_a: Int64,
    part_b: Int64,
    ldc: Int64,
    batch_c: Int64,
    row_d: Int64,
    column_d: Int64,
    batch_d: Int64,
    item_stride_a: Int32,
    item_stride_b: Int32,
    alpha: Float32,
    beta: Float32,
    least_risk: Uint64,
    most_risk: Uint64,
    doubt: Float32,
    depth: Int32,
    clear: Int32,
    launch: Int32,
    room: Int32,
    config: cutlass.Constexpr,
):
    BM, BN, TILES, PARTS = config.block_m, config.block_n, config.tiles, config.scheme.parts
    WARPS = config.threads // 32
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    thread, _, _ = cute.arch.thread_idx()

    # Of several kernels launched for one product, the counts at `status` decide which one computes.
    statuses = status_a, status_b
    all_tiles = tiles = cute.ceil_div(m, BM) * cute.ceil_div(n, BN) * batch
    if not computes(statuses, (least_risk, most_risk)):
        tiles = Int32(0)

    element = ELEMENTS[config.scheme.dtype]
    ring_a = cute.arch.get_dyn_smem(element, alignment=1024)
    ring_b = ring_a + config.stages * BM * LINE
    staged = cute.recast_ptr(ring_a, dtype=Float32)  # between two tiles, the stages are free
    a, b = cute.recast_ptr(a, dtype=element), cute.recast_ptr(b, dtype=element)
    factors = (
        Factor(a, ring_a, config.a_major, BM, m, k, pitch_a, part_a, item_stride_a),
        Factor(b, ring_b, config.b_major, BN, n, k, pitch_b, part_b, item_stride_b),
    )
    row, col = packed.warp_tile(config)
    sA = tiles_of(ring_a, BM, config.a_major, config.stages)  # (BM, LINE, stages)
    sB = tiles_of(ring_b, BN, config.b_major, config.stages)  # (BN, LINE, stages)
    sA = cute.local_tile(sA, (config.warp_m, LINE, config.stages), (row, 0, 0))
    sB = cute.local_tile(sB, (config.warp_n, LINE, config.stages), (col, 0, 0))
    op = warp.MmaF16BF16Op(element, Float32, (16, 8, MMA_K))
    mma = cute.make_tiled_mma(op, (1, 1, 1), permutation_mnk=(16, 16, MMA_K))
    sums = packed.no_sums(mma.partition_shape_C((config.warp_m, config.warp_n)))
    chain = packed.no_sums(sums.layout)
    own_totals = totals.totals_of(totals_c, thread, config)
    TOTAL = config.total_k // LINE  # k-tiles
    scales = (unscale_a, unscale_b, item_stride_a, item_stride_b)
    x, y = (
        recompute.Factor(x_a, lda, batch_a, config.a_major),
        recompute.Factor(x_b, ldb, batch_b, config.b_major),
    )
    own_notes = Notes(notes, all_tiles * config.notes, report + NUMBER, room)
    marks = (own_notes, doubt, depth, recompute.Factors(x, y, (begin, begin + k)), statuses)
    risks = (risk_a, risk_b, shortfall_a, shortfall_b, *marks)
    output = Output(c, ldc, batch_c, d, row_d, column_d, batch_d, alpha, beta, *scales, *risks)

    known = extremes(output)
    cute.arch.sync_threads()  # all have read the counts
    if thread == 0:
        begin_block(Reporting(report, statuses, clear, launch))
    k_tiles, doubtful = cute.ceil_div(k, LINE), Int32(0)
    for tile in cutlass.range(bx, tiles, blocks):
        item, tile_m, tile_n = tile_coordinates(tile, m, n, config)
        place = item, tile_m, tile_n, k
        sums.fill(0.0)
        for t in cutlass.range_constexpr(TILES - 1):
            fetch_tiles(factors, place, Int32(t), config)
        for t in cutlass.range(k_tiles, unroll=1):
            cute.arch.cp_async_wait_group(TILES - 2)
            cute.arch.sync_threads()
            fetch_tiles(factors, place, t + TILES - 1, config)
            first = t % TILES * PARTS
            tA = [sA[None, None, first + part] for part in range(PARTS)]
            tB = [sB[None, None, first + part] for part in range(PARTS)]
            if t > 0 and cutlass.const_expr(TOTAL > 0):
                totals.move_to_totals(own_totals, sums, t, TOTAL)
            multiply_tile(mma, tA, tB, sums, chain, config)
        if k_tiles > TOTAL and cutlass.const_expr(TOTAL > 0):
            totals.add_totals(sums, own_totals)
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # all have read the stages, through which sums are stored
        rest = known, (item, tile_m, tile_n), tile, (m, n), config
        doubtful |= finish(sums, output, staged, *rest)
        cute.arch.sync_threads()

    def add(tile: Int32, note: Int32, count: Int32, share: Share) -> None:
        item, tile_m, tile_n = tile_coordinates(tile, m, n, config)
        holder, piece = note // (config.warp_m // 16), note % (config.warp_m // 16)
        columns, lane = BN // config.warp_n, cute.arch.lane_idx()
        row = tile_m * BM + holder // columns * config.warp_m + 16 * piece + lane // 4
        at = item, row, tile_n * BN + holder % columns * config.warp_n + lane % 4 * 2
        which = tile * config.notes + note
        finish_doubtful(output, at, config.warp_n // 8, which, count, share, (m, n))

    if threads_with(doubtful != 0, config.threads) != 0:
        own_tiles = Tiles(bx, blocks, tiles)
        own_warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        add_noted(own_notes, own_tiles, config.notes, own_warp, WARPS, add)


SIGNATURES = signatures(POINTERS, kernel)
