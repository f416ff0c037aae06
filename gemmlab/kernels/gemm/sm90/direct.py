"""Multiply float32 matrices on tensor cores in one launch: operands are split on the way.

`pack` and `mainloop` move both matrices through memory a second time, in up to six launches. That
pays off where each element is used hundreds of times. Here a block copies float32 tiles to shared
memory and splits each element into two TF32 parts, high + low, to within its last two bits.
TF32 has the range of float32, so no scales are needed, and no pass over whole rows to find them.
Three products form A·B ≈ high·low + low·high + high·high, in chains of 32 of k as in `mainloop`.

Each warpgroup computes 64 rows of the tile. For each *chunk* c, 32 of k, it does this:

| step                                              | meanwhile, of two warpgroups         |
|---------------------------------------------------|--------------------------------------|
| wait for its turn; start wgmma of chunk c; pass   | the other one's steps below          |
| the turn                                          |                                      |
| split its share of B of chunk c + 2               | the other one's wgmma keep the       |
| add the chain of chunk c to the sums, in float32  | tensor cores busy                    |
| split A of chunk c + 1                            |                                      |
| start to copy chunk c + 1 + stages                |                                      |

wgmma takes A's parts from registers, which halves the traffic of shared memory. B's parts are for
all warps: they go to shared memory, K-major, in a ring of buffers, two chunks ahead. So turns are
the only barriers: whoever has its turn knows that the other has stored the parts of this chunk. All
other data stay within a warp, which copies what it splits. A fence orders the stores of parts
before wgmma, which reads through the async proxy.

A and B may be in any order along k if it is the same. A thread loads four of k of a K-major A at
once, which wgmma expects in four threads; B's parts follow that order (`transposes_k`).

k may be divided among the blocks of a cluster, which add up their sums in order, and in slices,
which `add_slices` adds up. So every run has the same bits.

**Right for every input.** A tile is computed again in float32, by the same block, if an element is
below 2^-101 but not 0, since its parts lose bits, or if a sum is infinite or NaN: an element is, or
rounding to TF32 has overflowed, or the sum has.

Limiter: the tensor cores, at half the rate of bfloat16, then the issue of instructions.
"""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, TFloat32, Uint32, cute
from cutlass.cute.nvgpu import warpgroup

from gemmlab.kernels.gemm.sm90 import tf32
from gemmlab.kernels.gemm.sm90.config import WARPGROUP
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK
from gemmlab.kernels.gemm.sm90.pack import magnitude
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.gemm.sm90.rescue import compute_tile
from gemmlab.kernels.gemm.sm90.scheduling import pass_turn, wait_for_turn
from gemmlab.kernels.gemm.sm90.shares import matrices, store_share
from gemmlab.kernels.gemm.sm90.splitting import (
    LEAST,
    PARTS,
    Side,
    copy_share,
    parts_of,
    share_of_a,
    share_of_b,
    split_a,
    split_b,
    spots_of_a,
    vector_of,
)
from gemmlab.kernels.signature import signatures

POINTERS = {
    "a": ("float32", "input"),
    "b": ("float32", "input"),
    "c": ("float32", "output"),
    "d": ("float32", "input"),
}

STEPS = CHUNK // tf32.MMA_K  # wgmma per chunk and product
PRODUCTS = ((0, 1), (1, 0), (0, 0))  # of parts: small ones first
PADDING = 4  # words behind each line of the tile of sums: 16-byte accesses, few bank conflicts
INFINITY = 0x7F800000  # float32 bits


@cute.jit
def tiled_mma(config: cutlass.Constexpr) -> cute.TiledMma:
    atom = cute.make_mma_atom(tf32.WarpgroupTf32Op(config.block_n))
    return cute.make_tiled_mma(atom, (config.groups, 1, 1))


class Work(NamedTuple):
    """What a thread works on."""

    sides: tuple
    shares: tuple  # what it copies of both
    spots: tuple  # where its elements of A begin in the staged tile
    parts: cute.Pointer  # (buffers × PARTS, block_n, CHUNK) of B
    staged: cute.Pointer  # per stage the tile of A, then of B
    begin: Int32  # chunks
    end: Int32
    whole: Int32  # chunks of k that lie inside the matrices
    warp: Int32
    lane: Int32


@cute.jit
def wrapped(index: Int32, size: cutlass.Constexpr) -> Int32:
    """An index below 2·size, in a ring."""
    if index >= size:
        index -= size
    return index


@cute.jit
def copy_chunk(work: Work, chunk: Int32, stage: Int32, config: cutlass.Constexpr) -> None:
    """Start to copy what this thread copies of a chunk, if there is one, as a group."""
    if chunk < work.end:
        tile = work.staged + stage * config.stage_words
        for i in cutlass.range_constexpr(2):
            copy_share(work.shares[i], work.sides[i], chunk, work.whole, tile)
            tile = tile + config.block_m * CHUNK
    cute.arch.cp_async_commit_group()


@cute.jit
def split_share_of_b(
    least: cute.Tensor,
    work: Work,
    chunk: Int32,
    stage: Int32,
    buffer: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Split this warp's share of B of a chunk, if there is one."""
    if chunk < work.end and work.shares[1].active:
        tile = work.staged + (stage * config.stage_words + config.block_m * CHUNK)
        parts = work.parts + buffer * (PARTS * config.block_n * CHUNK)
        own = work.shares[1]
        split_b(least, work.sides[1], tile, parts, own, work.warp, work.lane, config)


@cute.jit
def prepare_next(
    least: cute.Tensor,
    fragments: list,
    sums: cute.Tensor,
    chain: cute.Tensor,
    work: Work,
    at: tuple,
    config: cutlass.Constexpr,
) -> None:
    """What a warpgroup does while tensor cores compute. at: their chunk, its stage and buffer."""
    chunk, stage, buffer = at
    cute.arch.cp_async_wait_group(config.stages - 2)
    cute.arch.sync_warp()
    ahead = wrapped(stage + 2, config.stages), wrapped(buffer + 2, config.buffers)
    split_share_of_b(least, work, chunk + 2, *ahead, config)
    warpgroup.wait_group(0)
    for i in cutlass.range_constexpr(cute.size(sums)):
        sums[i] += chain[i]
    following = wrapped(stage + 1, config.stages)
    if chunk + 1 < work.end:
        tile = work.staged + following * config.stage_words
        split_a(least, fragments, work.sides[0], tile, work.spots)
    cute.arch.fence_view_async_shared()
    cute.arch.sync_warp()
    copy_chunk(work, chunk + 1 + config.stages, following, config)


@cute.jit
def multiply_chunks(
    sums: cute.Tensor, mma: cute.TiledMma, work: Work, config: cutlass.Constexpr
) -> Boolean:
    """Form the thread's sums; return whether float32 must compute the tile instead."""
    group = work.warp // 4
    own = mma.get_slice(group * WARPGROUP)
    rB = mma.make_fragment_B(own.partition_B(parts_of(work.parts, config)))
    chain = cute.make_rmem_tensor(sums.layout, Float32)
    shape = ((1, 2, 2), 1, STEPS)
    fragments = [cute.make_rmem_tensor(shape, TFloat32) for _ in range(PARTS)]
    sums.fill(0.0)
    chain.fill(0.0)
    least = cute.make_rmem_tensor(1, Uint32)
    least.fill(0xFFFFFFFF)
    for i in cutlass.range(config.stages, unroll=1):
        copy_chunk(work, work.begin + i, i, config)
    cute.arch.cp_async_wait_group(config.stages - 1)
    cute.arch.sync_warp()
    split_share_of_b(least, work, work.begin, Int32(0), Int32(0), config)
    before = work.begin - 1, Int32(config.stages - 1), Int32(config.buffers - 1)
    prepare_next(least, fragments, sums, chain, work, before, config)
    if group == 1:
        pass_turn(group, config.groups)
    stage, buffer = Int32(0), Int32(0)
    for chunk in cutlass.range(work.begin, work.end, unroll=1):
        if cutlass.const_expr(config.groups > 1):
            wait_for_turn(group)
        else:
            cute.arch.sync_threads()
        warpgroup.fence()
        for i in cutlass.range_constexpr(len(PRODUCTS)):
            part_a, part_b = PRODUCTS[i]
            for kk in cutlass.range_constexpr(STEPS):
                mma.set(warpgroup.Field.ACCUMULATE, i > 0 or kk > 0)
                rA = fragments[part_a][None, None, kk]
                cute.gemm(mma, chain, rA, rB[None, None, kk, buffer * PARTS + part_b], chain)
        warpgroup.commit_group()
        if cutlass.const_expr(config.groups > 1):
            pass_turn(group, config.groups)
        prepare_next(least, fragments, sums, chain, work, (chunk, stage, buffer), config)
        stage = wrapped(stage + 1, config.stages)
        buffer = wrapped(buffer + 1, config.buffers)
    if group == 0 and cutlass.const_expr(config.groups > 1):
        wait_for_turn(group)  # completes the phase that the other warpgroup's last pass began
    cute.arch.cp_async_wait_group(0)
    bad = least[0] < Uint32((LEAST << 24) - 1)
    for i in cutlass.range_constexpr(cute.size(sums)):
        bad = bad or magnitude(sums[i]) >= INFINITY
    return bad


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
    config: cutlass.Constexpr,
):
    BM, BN = config.block_m, config.block_n
    thread, _, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    rank, tile = bx % splits, bx // splits
    item, piece = by // slices, by % slices
    rows = cute.ceil_div(m, BM)
    smem = cute.arch.get_dyn_smem(TFloat32, 1024)
    floats = cute.recast_ptr(smem, dtype=Float32)
    sides = []
    for pointer, ld, step, major, size, extent, tile_at, mixed in (
        (a, lda, batch_a, config.a_major, BM, m, tile % rows, False),
        (b, ldb, batch_b, config.b_major, BN, n, tile // rows, config.b_major != "k"),
    ):
        shape = (extent, k) if major == "k" else (k, extent)
        start = pointer + item * step
        matrix = cute.make_tensor(start, cute.make_layout(shape, stride=(ld, 1)))
        sides.append(Side(matrix, major, size, tile_at * size, mixed))
    sides = tuple(sides)
    warp, lane = cute.arch.make_warp_uniform(thread // 32), thread % 32
    shares = share_of_a(sides[0], warp, lane), share_of_b(sides[1], warp, lane, config)
    flag = cute.make_tensor(cute.arch.alloc_smem(Int32, 1, 16), cute.make_layout(1))
    if thread == 0:
        flag[0] = Int32(0)
    pdl_wait()
    chunks = cute.ceil_div(k, CHUNK)
    each = cute.ceil_div(chunks, splits * slices)
    begin = cutlass.min((piece * splits + rank) * each, chunks)
    end = cutlass.min(begin + each, chunks)
    mma = tiled_mma(config)
    coords = mma.get_slice(thread).partition_C(cute.make_identity_tensor((BM, BN)))
    sums = cute.make_rmem_tensor(mma.partition_shape_C((BM, BN)), Float32)
    staged = floats + config.part_bytes // 4
    spots = spots_of_a(sides[0], warp, lane)
    work = Work(sides, shares, spots, smem, staged, begin, end, k // CHUNK, warp, lane)
    bad = multiply_chunks(sums, mma, work, config)
    if bad:
        flag[0] = Int32(1)
    cute.arch.sync_threads()
    if flag[0] != 0:
        ends = begin * CHUNK, cutlass.min(end * CHUNK, k)
        compute_tile(sums, coords, floats, sides, ends, config)
    # C is contiguous along n or along m, and so is the tile that it is stored from.
    along_n = column_c == 1
    strides = Int32(BN + PADDING), Int32(1)
    if not along_n:
        strides = Int32(1), Int32(BM + PADDING)
    tile_sums = cute.make_tensor(floats, cute.make_layout((BM, BN), stride=strides))
    for i in cutlass.range_constexpr(cute.size(sums)):
        row, col = coords[i]
        tile_sums[vector_of(row, sides[0]), vector_of(col, sides[1])] = sums[i]
    cute.arch.sync_threads()
    if splits > 1:
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    origins = sides[0].origin, sides[1].origin
    starts = c + item * batch_c + piece * slice_c, d + item * batch_d
    rest = rank, splits, (alpha, beta), config
    if along_n:
        layouts = (row_c, column_c), (row_d, column_d)
        mC, mD = matrices(starts, (m, n), layouts)
        store_share(floats, BN + PADDING, (BM, BN), origins, mC, mD, *rest)
    else:
        layouts = (column_c, row_c), (column_d, row_d)
        mC, mD = matrices(starts, (n, m), layouts)
        store_share(floats, BM + PADDING, (BN, BM), origins[::-1], mC, mD, *rest)
    # A block must not exit while others of its cluster read its sums.
    if splits > 1:
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()


SIGNATURES = signatures(POINTERS, kernel)
