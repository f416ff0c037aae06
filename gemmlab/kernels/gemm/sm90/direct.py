"""Multiply float32 matrices on tensor cores in one launch: operands are split on the fly.

`pack` and `mainloop` move both matrices through memory a second time, in four launches. That pays
off where each element is used hundreds of times. Here a block copies float32 tiles to shared memory
and splits each element into two TF32 parts, high + low, to within its last two bits. TF32 has the
range of float32, so no scales are needed, and no pass over whole rows to find them. Three products
form A·B ≈ high·low + low·high + high·high, in chains of 32 values of k as in `mainloop`. If k is
small, low·low is added, and chains are shorter (`LEAST_K`).

Each warpgroup computes 64 rows of the tile. For each *chunk* c, 32 values of k, it takes these
steps:

| step                                              | meanwhile, with two warpgroups       |
|---------------------------------------------------|--------------------------------------|
| wait for its turn; start wgmma of chunk c; pass   | the other one's steps below          |
| the turn                                          |                                      |
| store the sums of the previous tile, if c is the  | the other one's wgmma keep the       |
| first chunk of a tile                             | tensor cores busy                    |
| split its share of B of chunk c + 2               |                                      |
| add the chain of chunk c to the sums, in float32  |                                      |
| split A of chunk c + 1                            |                                      |
| start to copy chunk c + 1 + stages                |                                      |

wgmma takes A's parts from registers, which halves the traffic of shared memory. All warps need B's
parts: they go to shared memory, K-major, in a ring of buffers, two chunks ahead. So turns are the
only barriers: when a warpgroup has its turn, the other has stored the parts of this chunk. All
other data stay within a warp, which copies the elements that it splits. In tiles of 64 × 64, staged
elements are loaded before wgmma start (`loads_early`). A fence orders the stores of parts before
wgmma, which reads through the async proxy.

A block computes one tile after the other (`items`). The last chunks of a tile and the first ones of
the next follow each other like any others, and sums are stored while wgmma of the next tile run.

A and B may be in any order along k if it is the same. From a K-major A, a thread loads four values
of k at once, where wgmma expects them in four threads; B's parts follow that order
(`transposes_k`).

k may be divided among the blocks of a cluster, which add up their sums in order, and in slices,
which `add_slices` adds up. So every run has the same bits.

**Right for every input.** If an element is below 2^-101 but not 0, its parts lose bits. If a sum is
infinite or NaN, so is an element, or rounding to TF32 has overflowed, or the sum has. Such a tile
is not stored: after all others, the block computes it again in float32.

Limiter: shared memory and the tensor cores, at half the rate of bfloat16.
"""

from functools import partial

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, TFloat32, Uint8, Uint32, cute
from cutlass.cute.nvgpu import warpgroup

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90 import tf32
from gemmlab.kernels.gemm.sm90.ahead import (
    Work,
    load_early,
    prepare_next,
    split_chunk_of_b,
    tile_of_b,
    wrapped,
)
from gemmlab.kernels.gemm.sm90.config import WARPGROUP
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK, MOST_ITEMS, STEP, DirectConfig
from gemmlab.kernels.gemm.sm90.items import (
    Items,
    Operand,
    Result,
    copy_next,
    cursor_of,
    side_of,
    target_of,
)
from gemmlab.kernels.gemm.sm90.pack import magnitude
from gemmlab.kernels.gemm.sm90.pdl import let_next_start, wait_for_previous
from gemmlab.kernels.gemm.sm90.rescue import compute_tile, condemn, condemn_if_small
from gemmlab.kernels.gemm.sm90.scheduling import pass_turn, wait_for_turn
from gemmlab.kernels.gemm.sm90.shares import store_sums, store_together
from gemmlab.kernels.gemm.sm90.splitting import (
    PARTS,
    ROWS,
    kept_pointer,
    load_b,
    parts_of,
    share_of_a,
    share_of_b,
    source_of_b,
    spot_of_b,
    spots_of_a,
)
from gemmlab.kernels.signature import signatures

POINTERS = {
    "a": ("float32", "input"),
    "b": ("float32", "input"),
    "c": ("float32", "output"),
    "d": ("float32", "input"),
}

STEPS = CHUNK // STEP  # wgmma per chunk and product
# Products of parts, small ones first. A configuration uses the last `products` of them.
PRODUCTS = ((1, 1), (0, 1), (1, 0), (0, 0))
INFINITY = 0x7F800000  # float32 bits


@cute.jit
def tiled_mma(config: cutlass.Constexpr) -> cute.TiledMma:
    atom = cute.make_mma_atom(tf32.WarpgroupTf32Op(config.block_n))
    return cute.make_tiled_mma(atom, (config.groups, 1, 1))


def order_of(config: DirectConfig) -> list:
    """The wgmma of a chunk in order: chain, parts of A and B, step, whether it continues a sum.

    All wgmma of a chain precede those of the next.
    """
    steps = STEPS // config.chains
    return [
        (i, *parts, i * steps + step, (x, step) > (0, 0))
        for i in range(config.chains)
        for x, parts in enumerate(PRODUCTS[-config.products :])
        for step in range(steps)
    ]


@cute.jit
def is_sound(sums: cute.Tensor, work: Work, ordinal: Int32) -> Boolean:
    """Whether the warp's sums of an item are valid; condemns them if they are not finite."""
    flags, warp = work.flags, work.warp
    sizes = [cute.math.absf(sums[i]) for i in range(cute.size(sums))]
    most = simt.pairwise(sizes, partial(cute.arch.fmax, nan=True))
    if magnitude(most) >= INFINITY:
        condemn(flags, ordinal, warp)
    cute.arch.sync_warp()
    return flags[ordinal, warp] == 0


@cute.jit
def store_item(
    sums: cute.Tensor, work: Work, ordinal: Int32, result: Result, config: cutlass.Constexpr
) -> None:
    """Store this thread's sums of an item."""
    items = work.items
    corner, mC, mD = target_of(items, items.first + ordinal * items.step, result)
    row = work.warp * ROWS + work.lane // 4
    corner = corner[0] + row, corner[1] + work.lane % 4 * 4
    store_sums(sums, corner, mC, mD, result.factors, config)


@cute.jit
def store_if_sound(
    sums: cute.Tensor, work: Work, ordinal: Int32, result: Result, config: cutlass.Constexpr
) -> None:
    if is_sound(sums, work, ordinal):
        store_item(sums, work, ordinal, result, config)


@cute.jit
def multiply_items(
    sums: cute.Tensor, mma: cute.TiledMma, work: Work, result: Result, config: cutlass.Constexpr
) -> Int32:
    """Compute all items of the block; return their number.

    All but the last are stored, except what is condemned. `sums` are those of the last one.
    """
    items, group = work.items, work.warp // 4
    own = mma.get_slice(group * WARPGROUP)
    rB = mma.make_fragment_B(own.partition_B(parts_of(work.parts, config)))
    chains = [cute.make_rmem_tensor(sums.layout, Float32) for _ in range(config.chains)]
    shape, order = ((1, 2, 2), 1, STEPS), order_of(config)
    fragments = [cute.make_rmem_tensor(shape, TFloat32) for _ in range(PARTS)]
    for registers in (sums, *chains):
        registers.fill(0.0)
    each = items.chunks[1] - items.chunks[0]
    count = cute.ceil_div(items.end - items.first, items.step)
    total = count * each
    cursor = cursor_of(items, work.shares, config)
    if cutlass.const_expr(not config.shares_multiprocessor):
        let_next_start()
    wait_for_previous()
    for i in cutlass.range(config.stages, unroll=1):
        copy_next(cursor, items, work.shares, work.staged + i * config.stage_words, config)
    cute.arch.cp_async_wait_group(config.stages - 1)
    cute.arch.sync_warp()
    begin, rest = (Int32(0), Int32(0), each), (sums, chains, fragments, work, cursor)
    least = cute.make_rmem_tensor(1, Uint32)
    least.fill(0xFFFFFFFF)
    if total > 0:
        elements = load_b(tile_of_b(work, Int32(0), config), work.source, config)
        split_chunk_of_b(work, least, elements, Int32(0), Int32(0), config)
        condemn_if_small(work.flags, least, begin, config)
    before = Int32(config.stages - 1), Int32(config.buffers - 1)
    elements = load_early(work, before[0], config)
    prepare_next(*rest, elements, total, begin, before, True, config)
    if group == 1:
        pass_turn(group, config.groups)
    stage, buffer, left = Int32(0), Int32(0), total
    for ordinal in cutlass.range(cutlass.min(count, total), unroll=1):
        # Its first chunk begins the sums; then come the others.
        for others in cutlass.range_constexpr(2):
            for chunk in cutlass.range(others, each if others else 1, unroll=1):
                elements = load_early(work, stage, config)
                if cutlass.const_expr(config.groups > 1):
                    wait_for_turn(group)
                else:
                    cute.arch.sync_threads()
                warpgroup.fence()
                for i in cutlass.range_constexpr(len(order)):
                    x, part_a, part_b, kk, goes_on = order[i]
                    mma.set(warpgroup.Field.ACCUMULATE, goes_on)
                    rA = fragments[part_a][None, None, kk]
                    part = rB[None, None, kk, buffer * PARTS + part_b]
                    cute.gemm(mma, chains[x], rA, part, chains[x])
                warpgroup.commit_group()
                if cutlass.const_expr(config.groups > 1):
                    pass_turn(group, config.groups)
                if ordinal > 0 and cutlass.const_expr(not others):
                    store_if_sound(sums, work, ordinal - 1, result, config)
                left -= 1
                following = ordinal, chunk + 1, each
                prepare_next(*rest, elements, left, following, (stage, buffer), not others, config)
                stage = wrapped(stage + 1, config.stages)
                buffer = wrapped(buffer + 1, config.buffers)
    if group == 0 and cutlass.const_expr(config.groups > 1):
        wait_for_turn(group)  # completes the phase that the other warpgroup's last pass began
    cute.arch.cp_async_wait_group(0)
    if cutlass.const_expr(config.shares_multiprocessor):
        let_next_start()
    return count


@cute.jit
def multiply(
    operands: tuple,
    result: Result,
    k: Int32,
    division: tuple,
    blocks: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Compute this block's items of C = alpha·A·B + beta·D, which `blocks` blocks share.

    division: blocks of a cluster that share k, slices of k, and items.
    """
    BM, BN = config.block_m, config.block_n
    splits, slices, items = division
    thread, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    warp, lane = cute.arch.make_warp_uniform(thread // 32), thread % 32
    smem = kept_pointer(cute.arch.get_dyn_smem(TFloat32, 1024))
    floats = cute.recast_ptr(smem, dtype=Float32)
    shape = cute.make_layout((MOST_ITEMS + 1, config.warps), stride=(config.warps, 1))
    flags = cute.make_tensor(cute.arch.alloc_smem(Uint8, cute.size(shape), 16), shape)
    for i in cutlass.range(thread, cute.size(shape), config.threads, unroll=1):
        flags[i // config.warps, i % config.warps] = Uint8(0)
    cute.arch.sync_threads()
    first, rank, step = bx // splits, bx % splits, blocks // splits
    tiles = cute.ceil_div(result.shape[0], BM), cute.ceil_div(result.shape[1], BN)
    piece = first // (tiles[0] * tiles[1]) % slices  # a block has one item if there are slices
    chunks = cute.ceil_div(k, CHUNK)
    each = cute.ceil_div(chunks, splits * slices)
    begin = cutlass.min((piece * splits + rank) * each, chunks)
    end = cutlass.min(begin + each, chunks)
    own = Items(operands, tiles, slices, first, step, items, (begin, end), k)
    shares = (
        share_of_a(operands[0].ld, warp, lane, config),
        share_of_b(operands[1].ld, warp, lane, config),
    )
    spots, staged = spots_of_a(config.a_major, warp, lane), floats + config.part_bytes // 4
    of_b = source_of_b(warp, lane, config), spot_of_b(warp, lane, config)
    work = Work(own, shares, spots, *of_b, smem, staged, flags, warp, lane)
    mma = tiled_mma(config)
    sums = cute.make_rmem_tensor(mma.partition_shape_C((BM, BN)), Float32)
    count = multiply_items(sums, mma, work, result, config)
    last = count - 1
    is_sound(sums, work, last)
    cute.arch.sync_threads()
    coords = mma.get_slice(thread).partition_C(cute.make_identity_tensor((BM, BN)))
    ends = begin * CHUNK, cutlass.min(end * CHUNK, k)
    rounds = count if flags[MOST_ITEMS, 0] != 0 else 1
    for i in cutlass.range(rounds, unroll=1):
        condemned = Uint8(0)
        for other in cutlass.range(config.warps, unroll=1):
            condemned = condemned | flags[last - i, other]
        if condemned != 0:
            item = first + (last - i) * step
            sides = side_of(own, item, 0), side_of(own, item, 1)
            compute_tile(sums, coords, floats, sides, ends, config)
        if splits == 1 and (i == 0 or flags[last - i, warp] != 0):
            store_item(sums, work, last - i, result, config)
    if splits > 1:
        corner, mC, mD = target_of(own, first, result)
        store_together(sums, floats, corner, mC, mD, (rank, splits), result.factors, config)


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    d: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    lda: Int64,
    ldb: Int64,
    batch_a: Int64,
    batch_b: Int64,
    row_c: Int64,
    column_c: Int64,
    batch_c: Int64,
    row_d: Int64,
    column_d: Int64,
    batch_d: Int64,
    slice_c: Int64,
    alpha: Float32,
    beta: Float32,
    splits: Int32,
    slices: Int32,
    items: Int32,
    config: cutlass.Constexpr,
):
    blocks, _, _ = cute.arch.grid_dim()
    operands = (
        Operand(a, lda, batch_a, m, config.a_major, config.block_m),
        Operand(b, ldb, batch_b, n, config.b_major, config.block_n),
    )
    strides = (row_c, column_c), (row_d, column_d)
    result = Result((c, d), (m, n), strides, (batch_c, batch_d), slice_c, (alpha, beta))
    multiply(operands, result, k, (splits, slices, items), blocks, config)


SIGNATURES = signatures(POINTERS, kernel)
