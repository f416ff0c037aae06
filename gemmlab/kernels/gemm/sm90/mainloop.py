"""Multiply packed operands on tensor cores: several 16-bit products replace one float32 product.

Per clock, a multiprocessor's FP32 units do 128 multiply-adds, its tensor cores 2048 in float16.
`pack` represents a float32 number by two float16 parts, hi + lo, to within its last bit or two. So
A·B ≈ hi·lo + lo·hi + hi·hi, and three products still peak at five times FP32. The price: packing
reads and writes A and B once more, and elements 2^17 times smaller than their row's largest lose
bits.

Tensor cores truncate sums, so a long accumulation drifts towards zero (Ootomo and Yokota, 2022).
Here every accumulation is short. Every `promote_k` (32 or 64) values of k, a new *chain* starts: a
sum that the tensor cores form from zero, smallest products first. Ordinary float32 additions, which
round, add finished chains to the thread's sums.

A ring of stages in shared memory connects the producer and the consumers. A stage holds one part
(hi, lo, …) of a tile of A and of a tile of B. The exponents that undo the scaling of a tile of C
arrive with the tile's first stage: while all multiprocessors store C, a load from memory takes
longer than the epilogue's arithmetic.

| warps                       | work                 | wait on               | arrive on           |
|-----------------------------|----------------------|-----------------------|---------------------|
| 4 per consumer warpgroup    | wgmma, sums, C       | full[stage], own turn | empty[stage] of all |
|                             |                      |                       | blocks, next turn   |
| 1 of the producer warpgroup | TMA: A, a share of B | empty[stage]          | full[stage]         |
| another one of it           | `reporting`          | named 4               |                     |
| 2 others of it              | none                 |                       |                     |

| barrier       | arrivals per phase                          | the phase ends when               |
|---------------|---------------------------------------------|-----------------------------------|
| full[stage]   | 1, and the bytes of stage and exponents     | all of them have arrived          |
| empty[stage]  | consumer warps of all blocks of the cluster | no warp still reads the stage     |
| named 1 + w   | the threads of 2 consumer warpgroups        | consumer warpgroup w may multiply |
| named 4       | all threads                                 | all warps know the counts         |
| named 5       | the threads that multiply, then all threads | it is known what is repeated      |
| cluster       | all threads, at the start and at the end    | barriers are set up; all are done |

Consumer warpgroups take turns: while one adds up its chains, the wgmma of the other keep the tensor
cores busy. The blocks of a cluster compute tiles of C one below the other. They need the same tiles
of B: each copies a share and multicasts it.

If a row of A or a column of B is wide, float16 parts cannot hold it: many of its sums are doubtful.
If there are more such vectors than the host allows, the launch computes the product from the
float32 operands, as `direct` does, or leaves it to another launch. A block that finds many doubtful
sums computes its own tiles once more in the same way.

Limiter: power. The tensor cores are busy and the clock drops. Shallow products are limited by the
epilogue, and by L1, which serves wgmma, TMA and stores.
"""

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint64, cute

from gemmlab.kernels import atomics
from gemmlab.kernels.gemm.sm90 import totals
from gemmlab.kernels.gemm.sm90.config import INSTEAD, LINE, REPEATS
from gemmlab.kernels.gemm.sm90.epilogue import (
    Output,
    computes,
    extremes,
    finish_doubtful,
    finish_tile,
)
from gemmlab.kernels.gemm.sm90.instead import multiply_instead
from gemmlab.kernels.gemm.sm90.items import Operand, Result
from gemmlab.kernels.gemm.sm90.k_tiles import add_k_tile, tiled_mma
from gemmlab.kernels.gemm.sm90.notes import Notes, Share, Tiles, add_noted, threads_with
from gemmlab.kernels.gemm.sm90.pdl import let_next_start, wait_for_previous
from gemmlab.kernels.gemm.sm90.recompute import Factor, Factors
from gemmlab.kernels.gemm.sm90.reporting import BARRIER, NUMBER, Reporting, begin_block
from gemmlab.kernels.gemm.sm90.ring import (
    WARPS,
    Ring,
    Work,
    discard,
    produce,
    set_up_ring,
)
from gemmlab.kernels.gemm.sm90.scheduling import (
    pass_turn,
    tile_coordinates,
    wait_for_turn,
)
from gemmlab.kernels.gemm.sm90.sizes import WARPGROUP
from gemmlab.kernels.gemm.sm90.tiles import tiles_of, tma_operand
from gemmlab.kernels.signature import signatures

POINTERS = {
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

# Registers per thread of the producer and of the consumers, by the number of consumer warpgroups.
# setmaxnreg reallocates them. With one consumer warpgroup no thread needs more than it starts with.
REGISTERS = {2: (40, 232), 3: (32, 160)}


@cute.jit
def consume(
    ring: Ring,
    work: Work,
    output: Output,
    totals_c: cute.Pointer,
    known: tuple,
    consumer: Int32,
    may_repeat: Boolean,
    config: cutlass.Constexpr,
) -> Boolean:
    """Multiply, add up and store the cluster's tiles of C, `MMA_M` rows per warpgroup.

    known: `extremes`. Returns whether the block shall compute its tiles again, as so many of their
    sums are doubtful; only if it may.
    """
    BM, BN, CLUSTER, CONSUMERS = config.block_m, config.block_n, config.cluster, config.consumers
    thread, _, _ = cute.arch.thread_idx()
    mma = tiled_mma(config)
    own = mma.get_slice(consumer * WARPGROUP)
    # (MMA, 1, LINE / MMA_K, stages)
    tiles_a = tiles_of(ring.a, BM, config.a_major, config.stages)
    tiles_b = tiles_of(ring.b, BN, config.b_major, config.stages)
    rA = mma.make_fragment_A(own.partition_A(tiles_a))
    rB = mma.make_fragment_B(own.partition_B(tiles_b))
    # ((2, 2, BN / 8), 1, 1): the sums, and the chains that wgmma forms
    sums = cute.make_rmem_tensor(mma.partition_shape_C((BM, BN)), Float32)
    chains = [cute.make_rmem_tensor(sums.layout, Float32) for _ in range(config.chains)]
    own_totals = totals.totals_of(totals_c, thread, config)
    TOTAL = config.total_k // LINE  # k-tiles
    coords = mma.get_slice(thread).partition_C(cute.make_identity_tensor((BM, BN)))

    given = (rA, rB), ring, consumer
    stage, phase, buffer = Int32(0), Int32(0), Int32(0)
    first, step = work.block // CLUSTER, work.blocks // CLUSTER
    doubtful = Int32(0)
    if consumer == CONSUMERS - 1 and cutlass.const_expr(CONSUMERS > 1):
        pass_turn(consumer, CONSUMERS)
    for tile in cutlass.range(first, work.tiles, step):
        begins = tile, work.m, work.n
        stage, phase, place = add_k_tile(sums, chains, *given, stage, phase, begins, config)
        for k_tile in cutlass.range(1, work.whole, unroll=1):
            if cutlass.const_expr(TOTAL > 0):
                totals.move_to_totals(own_totals, sums, k_tile, TOTAL)
            stage, phase, _ = add_k_tile(sums, chains, *given, stage, phase, None, config)
        if cutlass.const_expr(config.chains > 1):
            for k_tile in cutlass.range(work.whole, work.k_tiles, unroll=1):
                if cutlass.const_expr(TOTAL > 0):
                    totals.move_to_totals(own_totals, sums, k_tile, TOTAL)
                stage, phase, _ = add_k_tile(sums, chains[:1], *given, stage, phase, None, config)
        if work.k_tiles > TOTAL and cutlass.const_expr(TOTAL > 0):
            totals.add_totals(sums, own_totals)
        at = ring.exponents + buffer * config.exponents
        rest = known, (at, at + BM), place, note_of(tile, config), (work.m, work.n), config
        doubtful += finish_tile(sums, coords, output, ring.staged, *rest)
        buffer = (buffer + 1) % config.exponent_buffers
    if consumer == 0 and cutlass.const_expr(CONSUMERS > 1):
        wait_for_turn(consumer)  # completes the phase that the last warpgroup's pass_turn began
    own_warp = cute.arch.make_warp_uniform(thread // 32)

    def add(number: Int32, holder: Int32, count: Int32, share: Share) -> None:
        item, tile_m, tile_n = tile_coordinates(number // CLUSTER, work.m, work.n, config)
        row, col = coords[(0, 0, 0), 0, 0]
        at = item, tile_m * BM + row + 16 * (holder - own_warp), tile_n * BN + col
        which = number * config.notes + holder
        finish_doubtful(output, at, BN // 8, which, count, share, (work.m, work.n))

    lane, threads = cute.arch.lane_idx(), CONSUMERS * WARPGROUP
    found = threads_with(lane < doubtful, threads)
    # At most 32 sums of a warp count, so that a single warp cannot make the block repeat its tiles.
    again = may_repeat and found > threads // 2
    if again:
        if lane == 0:
            atomics.add(output.notes.number, Uint64(doubtful))
    elif found != 0:
        rank = work.block % CLUSTER  # tiles of blocks, not of clusters
        own_tiles = Tiles(first * CLUSTER + rank, step * CLUSTER, work.tiles * CLUSTER)
        add_noted(output.notes, own_tiles, config.notes, own_warp, config.notes, add)
    return again


@cute.jit
def note_of(tile: Int32, config: cutlass.Constexpr) -> Int32:
    """The number of the warp's note of the cluster's tile; see `notes.Notes`."""
    bx, _, _ = cute.arch.block_idx()
    own = tile * config.cluster + bx % config.cluster
    return own * config.notes + cute.arch.make_warp_uniform(cute.arch.warp_idx())


@cute.jit
def play_role(
    sources: tuple,
    ring: Ring,
    work: Work,
    output: Output,
    totals_c: cute.Pointer,
    warp: Int32,
    limits: tuple,
    reporting: Reporting,
    config: cutlass.Constexpr,
) -> None:
    """Produce or consume, depending on the warp's number.

    sources: tensor maps of A and B, their depth and matrices, elements between items' exponents.
    limits: of the number of elements at risk, beyond which this kernel does not compute.
    """
    BM, BN, CLUSTER, CONSUMERS = config.block_m, config.block_n, config.cluster, config.consumers
    maps, (depth, matrices), strides = sources
    group, threads = warp // WARPS, WARPGROUP * (CONSUMERS + 1)
    # Read before the report, which clears the counts, by each warp: branches that depend on shared
    # memory would keep the emulator from counting instructions without copies.
    computing, again = computes(output.statuses, limits), Boolean(False)
    may_repeat = reporting.launch & REPEATS != 0 and may_overwrite(output)
    if cutlass.const_expr(config.again is None):
        may_repeat = Boolean(False)
    if group == CONSUMERS:
        if cutlass.const_expr(CONSUMERS in REGISTERS):
            cute.arch.setmaxregister_decrease(REGISTERS[CONSUMERS][0])
        if warp == WARPS * CONSUMERS + 1:
            cute.arch.barrier(barrier_id=BARRIER, number_of_threads=threads)
            with cute.arch.elect_one():
                begin_block(reporting)
        else:
            cute.arch.barrier_arrive(barrier_id=BARRIER, number_of_threads=threads)
        if warp == WARPS * CONSUMERS:
            shape_a, shape_b = (work.m, depth, matrices), (work.n, depth, matrices)
            rest_a, rest_b = (1, shape_a, strides[0]), (CLUSTER, shape_b, strides[1])
            a = tma_operand(maps[0], ring.a, BM, config.a_major, *rest_a, config.stages)
            b = tma_operand(maps[1], ring.b, BN, config.b_major, *rest_b, config.stages)
            produce(a, b, ring, work, output, config)
            let_next_start()  # not earlier: its instructions would displace those of this kernel
    else:
        if cutlass.const_expr(CONSUMERS in REGISTERS):
            cute.arch.setmaxregister_increase(REGISTERS[CONSUMERS][1])
        known = extremes(output)
        cute.arch.barrier_arrive(barrier_id=BARRIER, number_of_threads=threads)
        if computing:
            again = consume(ring, work, output, totals_c, known, group, may_repeat, config)
        else:
            discard(ring, work, config)
    # A block must not exit while the others of its cluster read what it has copied for them, or
    # arrive at its barriers.
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    if cutlass.const_expr(config.again is not None):
        if not computing:
            again = reporting.launch & INSTEAD != 0
        if threads_with(again, threads) != 0:
            compute_again(output, work, config)


@cute.jit
def may_overwrite(output: Output) -> Boolean:
    """Whether C may be stored twice: it is not read as D."""
    return output.beta == 0 or output.d.toint() != output.c.toint()


@cute.jit
def compute_again(output: Output, work: Work, config: cutlass.Constexpr) -> None:
    """Compute the block's tiles of C from the float32 operands."""
    BM, BN, CLUSTER = config.block_m, config.block_n, config.cluster
    own, (a, b, _) = config.again, output.factors

    def part(tile: Int32) -> tuple:
        item, tile_m, tile_n = tile_coordinates(tile, work.m, work.n, config)
        row, col, one = tile_m * BM, tile_n * BN, Int64(1)
        # All rows of a cluster's second block may lie beyond the last one.
        count = Int32(row < work.m)
        rows = cutlass.max(cutlass.min(work.m - row, Int32(BM)), Int32(1))
        columns = cutlass.min(work.n - col, Int32(BN))
        at_a = a.start + item * a.step + row * (a.ld if a.major == "k" else one)
        at_b = b.start + item * b.step + col * (b.ld if b.major == "k" else one)
        at_c = output.c + item * output.batch_c + row * output.ldc + col
        at_d = output.d + item * output.batch_d + row * output.row_d + col * output.column_d
        operands = (
            Operand(at_a, a.ld, a.step, rows, a.major, own.block_m),
            Operand(at_b, b.ld, b.step, columns, b.major, own.block_n),
        )
        result = Result(
            (at_c, at_d),
            (rows, columns),
            ((output.ldc, one), (output.row_d, output.column_d)),
            (output.batch_c, output.batch_d),
            Int64(0),
            (output.alpha, output.beta),
        )
        return operands, result, count

    tiles = work.block // CLUSTER, work.tiles, work.blocks // CLUSTER
    multiply_instead(part, tiles, output.depth, (Int32(0), Int32(1)), own)


@cute.kernel
def kernel(
    map_a: cute.CopyAtom,
    map_b: cute.CopyAtom,
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
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    # Of several kernels launched for one product, the counts at `status` decide which one computes.
    statuses, limits = (status_a, status_b), (least_risk, most_risk)
    reporting = Reporting(report, statuses, clear, launch)
    begins = Boolean(True)
    if least_risk > 0:  # rarely computes; else it ends before any setup
        wait_for_previous()
        begins = computes(statuses, limits)
        cute.arch.sync_threads()  # all have read the counts
    if begins:
        ring = set_up_ring(map_a, map_b, warp, config)
        wait_for_previous()
        tiles = cute.ceil_div(m, config.block_m * config.cluster)
        tiles *= cute.ceil_div(n, config.block_n) * batch
        scales = (unscale_a, unscale_b, item_stride_a, item_stride_b)
        x, y = Factor(x_a, lda, batch_a, config.a_major), Factor(x_b, ldb, batch_b, config.b_major)
        own = Notes(notes, tiles * (config.cluster * config.notes), report + NUMBER, room)
        marks = (own, doubt, depth, Factors(x, y, (begin, begin + k)), statuses)
        risks = (risk_a, risk_b, shortfall_a, shortfall_b, *marks)
        added = (d, row_d, column_d, batch_d)
        output = Output(c, ldc, batch_c, *added, alpha, beta, *scales, *risks)
        k_tiles = cute.ceil_div(k, LINE)
        whole = k_tiles
        if cutlass.const_expr(config.chains > 1):
            whole = cutlass.max(cute.ceil_div(k - config.promote_k, LINE), Int32(1))
        work = Work(m, n, batch, k_tiles, whole, tiles, bx, blocks)
        sources = (map_a, map_b), (k, batch * config.scheme.parts), scales[2:]
        play_role(sources, ring, work, output, totals_c, warp, limits, reporting, config)
    elif warp == 0:
        with cute.arch.elect_one():
            begin_block(reporting)


SIGNATURES = signatures(POINTERS, kernel)
