"""Multiply float32 matrices on tensor cores in one launch: operands are split on the fly.

`pack` and `mainloop` move both matrices through memory a second time, in three launches. That pays
off where each element is used hundreds of times. Here a block copies float32 tiles to shared memory
and splits each element into two TF32 parts, high + low, to within its last two bits. TF32 has the
range of float32, so no scales are needed, and no pass over whole rows to find them. Three products
form A·B ≈ high·low + low·high + high·high, in chains of 32 values of k as in `mainloop`. If k is
small, low·low is added, and chains are shorter (`LEAST_K`).

One or two warpgroups multiply, 64 rows of the tile each; another one copies and splits B (`ahead`).
For each *chunk* c, 32 values of k, a multiplying warpgroup takes these steps:

| step                                             | meanwhile                               |
|--------------------------------------------------|-----------------------------------------|
| wait for B's parts of chunk c, and for its turn  | the other one's wgmma run               |
| start wgmma of chunk c; pass the turn            |                                         |
| store the sums of the previous tile, if c is the | its own wgmma run                       |
| first chunk of a tile                            |                                         |
| start to copy A of chunk c + stages; load A of   | its own wgmma run                       |
| chunk c + 1                                      |                                         |
| wait for wgmma; release the buffer of B's parts  |                                         |
| add the chain of chunk c to the sums, in float32 | the other one's wgmma run               |
| split A of chunk c + 1                           | the other one's wgmma run               |

wgmma takes A's parts from registers, which halves the traffic of shared memory. All warps need B's
parts: they go to shared memory, K-major, in a ring of buffers. An mbarrier says when a buffer is
full, another when wgmma have read it. All other data stay within a warp, which copies the elements
that it splits. A fence orders the stores of parts before wgmma, which reads through the async
proxy.

A block computes one tile after the other (`items`). The last chunks of a tile and the first ones of
the next follow each other like any others, and sums are stored while wgmma of the next tile run.

A and B may be in any order along k if it is the same. From a K-major A, a thread loads four values
of k at once, where wgmma expects them in four threads; B's parts follow that order
(`transposes_k`).

k may be divided among the blocks of a cluster, which add up their sums in order, and in slices,
which `add_slices` adds up. So every run has the same bits.

**Right for every input.** If an element is below 2^-101 but not 0, its parts lose bits. A sum is
infinite or NaN only if an element is, or if rounding to TF32 or the sum itself has overflowed. A
tile with such an element or sum is not stored: after all others, the block computes it again in
float32.

Limiter: shared memory and the tensor cores, at half the rate of bfloat16.
"""

import operator
from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, TFloat32, Uint8, Uint32, cute
from cutlass.cute.nvgpu import warpgroup

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90 import tf32
from gemmlab.kernels.gemm.sm90.ahead import produce, wait_for_copies, wrapped
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK, MOST_ITEMS, STEP, DirectConfig
from gemmlab.kernels.gemm.sm90.items import (
    Items,
    Operand,
    Result,
    Ring,
    Work,
    advance,
    copy_next,
    cursor_of,
    place_of,
    start_at,
)
from gemmlab.kernels.gemm.sm90.pdl import let_next_start, wait_for_previous
from gemmlab.kernels.gemm.sm90.rescue import condemn_if_small
from gemmlab.kernels.gemm.sm90.scheduling import pass_turn, wait_for_turn
from gemmlab.kernels.gemm.sm90.sizes import WARPGROUP
from gemmlab.kernels.gemm.sm90.splitting import (
    PARTS,
    WARPS,
    kept_pointer,
    load_a,
    parts_of,
    share_of_a,
    split_a,
    spots_of_a,
)
from gemmlab.kernels.gemm.sm90.storing import store_if_sound, store_last
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


@cute.jit
def tiled_mma(config: cutlass.Constexpr) -> cute.TiledMma:
    atom = cute.make_mma_atom(tf32.WarpgroupTf32Op(config.block_n))
    return cute.make_tiled_mma(atom, (config.groups, 1, 1))


def wgmma_of(config: DirectConfig) -> list:
    """The wgmma of each chain of a chunk in order: parts of A and B, step, whether it continues."""
    steps = STEPS // config.chains
    return [
        [
            (*parts, chain * steps + step, (x, step) > (0, 0))
            for x, parts in enumerate(PRODUCTS[-config.products :])
            for step in range(steps)
        ]
        for chain in range(config.chains)
    ]


@cute.jit
def prepare_a(
    fragments: list, elements: list, work: Work, ordinal: Int32, config: cutlass.Constexpr
) -> None:
    """Split the thread's elements of A of an item's chunk."""
    least = cute.make_rmem_tensor(1, Uint32)
    least.fill(0xFFFFFFFF)
    split_a(least, fragments, elements)
    condemn_if_small(work.flags, least, ordinal, config)
    cute.arch.sync_warp()


@cute.jit
def start_pair(
    chains: tuple,
    fragments: list,
    rB: cute.Tensor,
    at: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Start the wgmma of two chains, or of the only one. at: the number of the pair, the buffer."""
    pair, buffer = at
    mma = tiled_mma(config)
    warpgroup.fence()
    for i in cutlass.range_constexpr(min(2, config.chains)):
        for one in wgmma_of(config)[2 * pair + i]:
            part_a, part_b, kk, continues = one
            mma.set(warpgroup.Field.ACCUMULATE, continues)
            rA = fragments[part_a][None, None, kk]
            part = rB[None, None, kk, buffer * PARTS + part_b]
            cute.gemm(mma, chains[i], rA, part, chains[i])
    warpgroup.commit_group()


@cute.jit
def release(ring: Ring, buffer: Int32, lane: Int32) -> None:
    """Signal that the warp's wgmma have read the buffer."""
    if lane == 0:
        cute.arch.mbarrier_arrive(ring.empty + buffer)


@cute.jit
def consume(
    sums: cute.Tensor,
    place: cute.Tensor,
    mma: cute.TiledMma,
    work: Work,
    result: Result,
    config: cutlass.Constexpr,
) -> Int32:
    """Compute all items of the block; return their number.

    All but the last are stored, except what is condemned. `sums` and `place` are those of the last
    one.
    """
    items, ring, group = work.items, work.ring, work.warp // WARPS
    own = mma.get_slice(group * WARPGROUP)
    rB = mma.make_fragment_B(own.partition_B(parts_of(ring.parts, config)))
    # Chains are added in pairs: each first one has registers of its own until all are added.
    pairs = max(1, config.chains // 2)
    held = [cute.make_rmem_tensor(sums.layout, Float32) for _ in range(pairs)]
    second = cute.make_rmem_tensor(sums.layout, Float32) if config.chains > 1 else None
    shape = ((1, 2, 2), 1, STEPS)
    fragments = [cute.make_rmem_tensor(shape, TFloat32) for _ in range(PARTS)]
    for registers in (sums, *held, second):
        if cutlass.const_expr(registers is not None):
            registers.fill(0.0)
    each = items.chunks[1] - items.chunks[0]
    count = cute.ceil_div(items.end - items.first, items.step)
    total = count * each
    shares, size = (work.share,), config.block_m * CHUNK
    cursor = cursor_of(items, shares, config)
    start_at(place, items)
    wait_for_previous()
    for i in cutlass.range(config.stages, unroll=1):
        copy_next(cursor, items, shares, work.staged + i * size, config)
    wait_for_copies(config)
    if total > 0:
        elements = load_a(config.a_major, work.staged, work.spots)
        prepare_a(fragments, elements, work, Int32(0), config)
    if group == 1:
        pass_turn(group, config.groups)
    stage, buffer, phase, left = Int32(0), Int32(0), Int32(0), total
    for ordinal in cutlass.range(cutlass.min(count, total), unroll=1):
        # Its first chunk begins the sums; then come the others.
        for others in cutlass.range_constexpr(2):
            for chunk in cutlass.range(others, each if others else 1, unroll=1):
                cute.arch.mbarrier_wait(ring.full + buffer, phase)
                for pair in cutlass.range_constexpr(pairs):
                    if cutlass.const_expr(config.groups > 1):
                        wait_for_turn(group)
                    start_pair((held[pair], second), fragments, rB, (pair, buffer), config)
                    if cutlass.const_expr(config.groups > 1):
                        pass_turn(group, config.groups)
                    if cutlass.const_expr(pair == 0):
                        if ordinal > 0 and cutlass.const_expr(not others):
                            store_if_sound(sums, work, ordinal - 1, place, result, config)
                            advance(place, items)
                        copy_next(cursor, items, shares, work.staged + stage * size, config)
                        stage = wrapped(stage + 1, config.stages)
                    if cutlass.const_expr(pair == pairs - 1):
                        wait_for_copies(config)
                        tile = work.staged + stage * size
                        elements = load_a(config.a_major, tile, work.spots)
                    warpgroup.wait_group(0)
                    if cutlass.const_expr(pair == pairs - 1):
                        release(ring, buffer, work.lane)
                    if cutlass.const_expr(config.chains > 1):
                        held[pair].store(held[pair].load() + second.load())
                buffer = wrapped(buffer + 1, config.buffers)
                if buffer == 0:
                    phase ^= 1
                added = simt.pairwise([chain.load() for chain in held], operator.add)
                sums.store(sums.load() + added if others else added)
                left -= 1
                if left > 0:
                    prepare_a(fragments, elements, work, ordinal + (chunk + 1) // each, config)
    if group == 0 and cutlass.const_expr(config.groups > 1):
        wait_for_turn(group)  # completes the phase that the other warpgroup's last pass began
    cute.arch.cp_async_wait_group(0)
    return count


@cute.jit
def allocate(config: cutlass.Constexpr) -> tuple:
    """Allocate shared memory: the ring of parts, the staged tiles of A, and the flags."""
    smem = kept_pointer(cute.arch.get_dyn_smem(TFloat32, 1024))
    staged = cute.recast_ptr(smem, dtype=Float32) + config.part_bytes // 4
    full = cute.arch.alloc_smem(Int64, config.buffers, 8)
    empty = cute.arch.alloc_smem(Int64, config.buffers, 8)
    shape = cute.make_layout((MOST_ITEMS + 1, config.warps), stride=(config.warps, 1))
    flags = cute.make_tensor(cute.arch.alloc_smem(Uint8, cute.size(shape), 16), shape)
    of_a = staged + config.stages * config.block_n * CHUNK
    return Ring(smem, staged, full, empty), of_a, flags


@cute.jit
def initialize(ring: Ring, flags: cute.Tensor, config: cutlass.Constexpr) -> None:
    """Initialize barriers and flags. Run by all threads of the block, which must then wait."""
    thread, _, _ = cute.arch.thread_idx()
    for i in cutlass.range(thread, cute.size(flags), config.threads, unroll=1):
        flags[i // config.warps, i % config.warps] = Uint8(0)
    if thread == 0:
        for i in cutlass.range_constexpr(config.buffers):
            cute.arch.mbarrier_init(ring.full + i, min(config.jobs, WARPS))
            cute.arch.mbarrier_init(ring.empty + i, config.warps)
        cute.arch.mbarrier_init_fence()


@cute.jit
def items_of(
    operands: tuple,
    result: Result,
    k: Int32,
    division: tuple,
    block: tuple,
    by: Any,
    config: cutlass.Constexpr,
) -> Items:
    """This block's items of C = alpha·A·B + beta·D.

    division: blocks of a cluster that share k, slices of k, and items. block: this block's number,
    and how many blocks there are. by: as in `Items`; None: it is computed.
    """
    (splits, slices, items), (bx, blocks) = division, block
    first, rank, step = bx // splits, bx % splits, blocks // splits
    tiles = (
        cute.ceil_div(result.shape[0], config.block_m),
        cute.ceil_div(result.shape[1], config.block_n),
    )
    *start, piece = place_of(first, tiles, slices)  # a block has one item if there are slices
    if cutlass.const_expr(by is None):
        by = place_of(step, tiles, Int32(1))
    chunks = cute.ceil_div(k, CHUNK)
    each = cute.ceil_div(chunks, splits * slices)
    begin = cutlass.min((piece * splits + rank) * each, chunks)
    end = cutlass.min(begin + each, chunks)
    return Items(operands, tiles, piece, first, step, items, start, by, (begin, end), k)


@cute.jit
def multiply(
    items: Items,
    result: Result,
    memory: tuple,
    division: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Compute the block's items. Run by the warps that multiply. memory: see `allocate`."""
    ring, staged, flags = memory
    thread, _, _ = cute.arch.thread_idx()
    warp, lane = cute.arch.make_warp_uniform(thread // 32), thread % 32
    share = share_of_a(items.operands[0].ld, warp, lane, config)
    spots = spots_of_a(config.a_major, warp, lane)
    work = Work(items, share, spots, staged, ring, flags, warp, lane)
    mma = tiled_mma(config)
    shape = mma.partition_shape_C((config.block_m, config.block_n))
    sums = cute.make_rmem_tensor(shape, Float32)
    place = cute.make_rmem_tensor(3, Int32)
    count = consume(sums, place, mma, work, result, config)
    store_last(sums, mma, work, result, count, place, *division[:2], items.k, config)


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
    by_matrix: Int32,
    by_row: Int32,
    by_column: Int32,
    config: cutlass.Constexpr,
):
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    operands = (
        Operand(a, lda, batch_a, m, config.a_major, config.block_m),
        Operand(b, ldb, batch_b, n, config.b_major, config.block_n),
    )
    strides = (row_c, column_c), (row_d, column_d)
    result = Result((c, d), (m, n), strides, (batch_c, batch_d), slice_c, (alpha, beta))
    division, by = (splits, slices, items), (by_matrix, by_row, by_column)
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(thread // 32)
    ring, _, flags = memory = allocate(config)
    initialize(ring, flags, config)
    cute.arch.sync_threads()
    own = items_of(operands, result, k, division, (bx, blocks), by, config)
    if cutlass.const_expr(not config.shares_multiprocessor):
        let_next_start()
    if warp >= config.warps:
        cute.arch.setmaxregister_decrease(config.registers[0])
        produce(own, ring, flags, warp - config.warps, thread % 32, config)
        if cutlass.const_expr(config.shares_multiprocessor):
            let_next_start()
        if splits > 1:  # all threads of a cluster arrive at the two barriers of `store_together`
            for _ in cutlass.range_constexpr(2):
                cute.arch.cluster_arrive()
                cute.arch.cluster_wait()
    else:
        cute.arch.setmaxregister_increase(config.registers[1])
        multiply(own, result, memory, division, config)


SIGNATURES = signatures(POINTERS, kernel)
