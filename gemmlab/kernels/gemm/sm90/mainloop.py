"""A float32 product on the tensor cores: three float16 products instead of one of float32.

FP32 units do 128 multiply-adds per clock and multiprocessor, tensor cores 2048 in float16. A
float32 number is the sum of two float16 numbers, hi + lo, up to its last bit or two (`split`), so
A·B ≈ hi·lo + lo·hi + hi·hi: three products, and still five times the FP32 roof. The price: the
split reads and writes all of A and B once more, and rows that span more than 2^17 lose bits.

A tensor core truncates where an FMA rounds, so a long sum drifts (Ootomo and Yokota, 2022). Here
none gets long: for every 64 of k, or 32, the three products form a sum of their own, the small ones
first, and float32 additions, which round, take it over. Where those get many (`bf16x6`), their sums
move to totals in memory that L2 holds.

TMA brings tiles to a ring of slots; a slot holds one part (hi, lo, …) of A's and of B's tile.

| warps                   | do                              | wait for        | arrive at, after   |
|-------------------------|---------------------------------|-----------------|--------------------|
| 4 of each math group    | wgmma, additions, C             | full[slot],     | next group's turn, |
|                         |                                 | own turn        | all blocks' empty  |
| first of the last group | TMA of A's tile, a share of B's | empty[slot]     | full[slot]         |
| other 3 of that group   | nothing; registers go by group  |                 |                    |

| barrier       | arrivals in a phase                     | means                               |
|---------------|-----------------------------------------|-------------------------------------|
| full[slot]    | 1, and the bytes of the slot            | the tiles are there                 |
| empty[slot]   | math warps of all blocks of the cluster | nobody reads the slot any more      |
| named 1, 2, … | threads of 2 math groups: of that which | the turn of math group 0, 1, … at   |
|               | passes the turn, of that which waits    | the tensor cores                    |
| cluster       | all threads, at the start, at the end   | barriers are set up; all have ended |

Math groups take turns: while one adds up, the products of the other keep the tensor cores busy.
Blocks of a cluster lie below each other in C, so they need the same tiles of B, and each fetches a
share for all. Limited by power: the tensor cores are busy, and the clock falls.
"""

import cutlass
from cutlass import Float32, Int32, Int64, Uint64, cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup

from gemmlab.kernels.gemm.sm90.config import LINE, MMA_K, MMA_M, VECTOR_PITCH, WARPGROUP
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS, boxes_of, fetch, tiles_of
from gemmlab.kernels.signature import signatures

POINTERS = {
    "c": ("float32", "output"),
    "unscale_a": ("int32", "input"),
    "unscale_b": ("int32", "input"),
    "status_a": ("uint64", "input"),
    "status_b": ("uint64", "input"),
    "totals": ("float32", "output"),
}

# Registers per thread of the TMA group and of math groups, by the number of math groups: what
# setmaxnreg moves from one to the other. One math group has enough from the start.
REGISTERS = {2: (40, 232), 3: (32, 160)}


@cute.jit
def next_slot(slot: Int32, phase: Int32, slots: cutlass.Constexpr) -> tuple:
    """Around the ring; the phase of its barriers flips every time around."""
    slot += 1
    if slot == slots:
        slot = Int32(0)
        phase ^= 1
    return slot, phase


@cute.jit
def place(turn: Int32, m: Int32, n: Int32, config: cutlass.Constexpr) -> tuple:
    """Batch item, and row and column in tiles, of the cluster's `turn`-th piece of work.

    Clusters walk `raster` rows of clusters column by column, so that those at work at one time
    cover a compact part of C and find each other's tiles in L2.
    """
    bx, _, _ = cute.arch.block_idx()
    down = cute.ceil_div(m, config.block_m * config.cluster)
    across = cute.ceil_div(n, config.block_n)
    item, turn = turn // (down * across), turn % (down * across)
    top = turn // (config.raster * across) * config.raster
    rows = cutlass.min(config.raster, down - top)
    turn -= top * across
    return item, (top + turn % rows) * config.cluster + bx % config.cluster, turn // rows


@cute.jit
def power(e: Int32) -> Float32:
    """2^e for e up to 127; 0 where that is below the normal numbers."""
    return (cutlass.max(e + 127, Int32(0)) << 23).bitcast(Float32)


@cute.jit
def largest(values: cute.Tensor) -> Int32:
    """The largest magnitude of a thread's integers."""
    most = cutlass.max(values[0], -values[0])
    for i in cutlass.range_constexpr(1, cute.size(values)):
        most = cutlass.max(most, cutlass.max(values[i], -values[i]))
    return most


@cute.jit
def vector_of(exponents: cute.Pointer, item: Int32, length: Int32) -> cute.Tensor:
    """The exponents of one item of a batch; they may be read a tile past their end."""
    pitch = cute.round_up(length, VECTOR_PITCH)
    return cute.make_tensor(exponents + Int64(item) * pitch, cute.make_layout(length))


@cute.jit
def totals_of(pointer: cute.Pointer, thread: Int32, config: cutlass.Constexpr) -> cute.Tensor:
    """The thread's totals (4, sums / 4), in device memory that L2 holds."""
    bx, _, _ = cute.arch.block_idx()
    first = pointer + Int64(bx) * (config.block_m * config.block_n) + 4 * thread
    aligned = cute.make_ptr(Float32, first.toint(), pointer.memspace, assumed_align=16)
    shape, stride = (4, config.block_n // 8), (1, 4 * WARPGROUP * config.math_groups)
    return cute.make_tensor(aligned, cute.make_layout(shape, stride=stride))


@cute.jit
def add_totals(sums: cute.Tensor, totals: cute.Tensor) -> None:
    """sums += totals."""
    for j in cutlass.range_constexpr(totals.shape[1]):
        four = totals[None, j].load()
        for e in cutlass.range_constexpr(4):
            sums[4 * j + e] += four[e]


@cute.jit
def move_into(
    totals: cute.Tensor, sums: cute.Tensor, done: Int32, steps: Int32, every: Int32
) -> None:
    """After `every` steps, but the last: totals += sums, or = sums at first; then sums = 0."""
    if done % every == 0 and done < steps:
        if done > every:
            add_totals(sums, totals)
        cute.autovec_copy(cute.make_tensor(sums.iterator, totals.shape), totals)
        sums.fill(0.0)


@cute.jit
def pair(
    start: cute.Pointer, j: cutlass.Constexpr, alignment: cutlass.Constexpr = 4
) -> cute.Tensor:
    """The j-th two elements of a thread in a row of C; aligned to 8 bytes, one access."""
    address = (start + 8 * j).toint()
    aligned = cute.make_ptr(Float32, address, start.memspace, assumed_align=alignment)
    return cute.make_tensor(aligned, cute.make_layout(2))


@cute.jit
def store(
    sums: cute.Tensor,
    places: cute.Tensor,
    mC: cute.Tensor,
    corner: tuple,
    unscale: tuple,
    factors: tuple,
    wide: cutlass.Boolean,
) -> None:
    """C = alpha·2^(ua + ub)·sums + beta·C for the thread's elements ((2, 2, n/8), 1, 1)."""
    m, n = mC.shape
    row0, col0 = corner
    alpha, beta = factors
    fours = sums.shape[0][2]
    rU = cute.make_rmem_tensor(2, Int32)
    cU = cute.make_rmem_tensor((2, fours), Int32)
    for r in cutlass.range_constexpr(2):
        rU[r] = unscale[0][row0 + places[(0, r, 0), 0, 0][0]]
    for e in cutlass.range_constexpr(2):
        for j in cutlass.range_constexpr(fours):
            cU[e, j] = unscale[1][col0 + places[(e, 0, j), 0, 0][1]]

    # Rows and columns outside have any exponents, whose sum might wrap around.
    is_plain = largest(rU) <= 126 - largest(cU)
    for r in cutlass.range_constexpr(2):
        for j in cutlass.range_constexpr(fours):
            for e in cutlass.range_constexpr(2):
                exponent, value = rU[r] + cU[e, j], sums[(e, r, j), 0, 0]
                if is_plain:
                    value *= power(exponent)
                else:
                    # In two steps, as 2^(ua + ub) itself may be no float32 number.
                    half = exponent >> 1
                    value = value * power(half) * power(exponent - half)
                sums[(e, r, j), 0, 0] = alpha * value

    for r in cutlass.range_constexpr(2):
        row, col = row0 + places[(0, r, 0), 0, 0][0], col0 + places[(0, r, 0), 0, 0][1]
        start = mC.iterator + cute.crd2idx((row, col), mC.layout)
        # All loads of a row of C come before its stores, which they cannot overtake.
        if beta != 0:
            old = cute.make_rmem_tensor((2, fours), Float32)
            old.fill(0.0)
            for j in cutlass.range_constexpr(fours):
                if wide:
                    old[None, j].store(pair(start, j, 8).load())
                else:
                    for e in cutlass.range_constexpr(2):
                        if row < m and col + 8 * j + e < n:
                            old[e, j] = pair(start, j)[e]
            for j in cutlass.range_constexpr(fours):
                for e in cutlass.range_constexpr(2):
                    sums[(e, r, j), 0, 0] += beta * old[e, j]
        for j in cutlass.range_constexpr(fours):
            if wide:
                two = cute.make_rmem_tensor(2, Float32)
                for e in cutlass.range_constexpr(2):
                    two[e] = sums[(e, r, j), 0, 0]
                pair(start, j, 8).store(two.load())
            else:
                for e in cutlass.range_constexpr(2):
                    if row < m and col + 8 * j + e < n:
                        pair(start, j)[e] = sums[(e, r, j), 0, 0]


@cute.jit
def take_turn(group: Int32) -> None:
    """Wait until the math group before this one has issued its products."""
    cute.arch.barrier(barrier_id=1 + group, number_of_threads=2 * WARPGROUP)


@cute.jit
def pass_turn(group: Int32, groups: cutlass.Constexpr) -> None:
    following = (group + 1) % groups
    cute.arch.barrier_arrive(barrier_id=1 + following, number_of_threads=2 * WARPGROUP)


@cute.kernel
def kernel(
    map_a: cute.CopyAtom,
    map_b: cute.CopyAtom,
    c: cute.Pointer,
    unscale_a: cute.Pointer,
    unscale_b: cute.Pointer,
    status_a: cute.Pointer,
    status_b: cute.Pointer,
    totals: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    batch: Int32,
    ldc: Int64,
    batch_c: Int64,
    step_a: Int32,
    step_b: Int32,
    alpha: Float32,
    beta: Float32,
    least_risk: Uint64,
    most_risk: Uint64,
    config: cutlass.Constexpr,
):
    BM, BN, CLUSTER, GROUPS = config.block_m, config.block_n, config.cluster, config.math_groups
    PARTS, SLOTS, PRODUCTS = config.scheme.parts, config.slots, config.scheme.products
    WARPS = WARPGROUP // 32
    element = ELEMENTS[config.scheme.dtype]
    thread, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    lane = cute.arch.lane_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    group = warp // WARPS

    smem_a = cute.arch.get_dyn_smem(element, 1024)
    smem_b = smem_a + SLOTS * BM * LINE
    full = cute.arch.alloc_smem(Int64, SLOTS, 8)
    empty = cute.arch.alloc_smem(Int64, SLOTS, 8)
    if warp == 0:
        cpasync.prefetch_descriptor(map_a)
        cpasync.prefetch_descriptor(map_b)
        with cute.arch.elect_one():
            for i in cutlass.range_constexpr(SLOTS):
                cute.arch.mbarrier_init(full + i, 1)
                cute.arch.mbarrier_init(empty + i, WARPS * GROUPS * CLUSTER)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    pdl_wait()

    # Which of several kernels is to run may be known on the device alone; the others end here.
    risk = cute.make_tensor(status_a, cute.make_layout(1))[0]
    risk += cute.make_tensor(status_b, cute.make_layout(1))[0]
    turns = cute.ceil_div(m, BM * CLUSTER) * cute.ceil_div(n, BN) * batch
    if risk < least_risk or risk > most_risk:
        turns = Int32(0)
    steps = cute.ceil_div(k, LINE)
    slot, phase = Int32(0), Int32(0)

    if group == GROUPS:
        if cutlass.const_expr(GROUPS in REGISTERS):
            cute.arch.setmaxregister_decrease(REGISTERS[GROUPS][0])
        if warp == WARPS * GROUPS:
            a_form, a_extents = ("mn", BM // LINE, 1), (m, k, batch * PARTS)
            b_form, b_extents = ("mn", BN // LINE, CLUSTER), (n, k, batch * PARTS)
            if cutlass.const_expr(config.a_major == "k"):
                a_form, a_extents = ("k", 1, 1), (k, m, batch * PARTS)
            if cutlass.const_expr(config.b_major == "k"):
                b_form, b_extents = ("k", 1, CLUSTER), (k, n, batch * PARTS)
            a_views = boxes_of(map_a, smem_a, SLOTS * BM, config.a_copy.lines, a_extents)
            b_views = boxes_of(map_b, smem_b, SLOTS * BN, config.b_copy.lines, b_extents)
            share = bx % CLUSTER
            for turn in cutlass.range(bx // CLUSTER, turns, blocks // CLUSTER):
                item, tile_m, tile_n = place(turn, m, n, config)
                for step in cutlass.range(steps, unroll=1):
                    for part in cutlass.range_constexpr(PARTS - 1, -1, -1):
                        part_a, part_b = item * step_a * PARTS + part, item * step_b * PARTS + part
                        bar = full + slot
                        # A new barrier lets pass who waits for the phase before its first.
                        cute.arch.mbarrier_wait(empty + slot, phase ^ 1)
                        with cute.arch.elect_one():
                            cute.arch.mbarrier_arrive_and_expect_tx(bar, config.slot_bytes)
                        fetch(map_a, a_views, a_form, tile_m, step, part_a, slot, 0, bar)
                        fetch(map_b, b_views, b_form, tile_n, step, part_b, slot, share, bar)
                        slot, phase = next_slot(slot, phase, SLOTS)
    else:
        if cutlass.const_expr(GROUPS in REGISTERS):
            cute.arch.setmaxregister_increase(REGISTERS[GROUPS][1])
        modes = {"k": OperandMajorMode.K, "mn": OperandMajorMode.MN}
        shape, source = (MMA_M, BN, MMA_K), warpgroup.OperandSource.SMEM
        a_mode, b_mode = modes[config.a_major], modes[config.b_major]
        op = warpgroup.MmaF16BF16Op(element, Float32, shape, source, a_mode, b_mode)
        mma = cute.make_tiled_mma(cute.make_mma_atom(op), (GROUPS, 1, 1))
        own = mma.get_slice(group * WARPGROUP)
        # (MMA, 1, LINE / MMA_K, SLOTS)
        rA = mma.make_fragment_A(own.partition_A(tiles_of(smem_a, BM, config.a_major, SLOTS)))
        rB = mma.make_fragment_B(own.partition_B(tiles_of(smem_b, BN, config.b_major, SLOTS)))
        # ((2, 2, BN / 8), 1, 1): what is added up, and the newest sums, which wgmma forms
        sums = cute.make_rmem_tensor(mma.partition_shape_C((BM, BN)), Float32)
        newest = [cute.make_rmem_tensor(sums.layout, Float32) for _ in range(config.chains)]
        DEPTH = LINE // MMA_K // config.chains
        own_totals = totals_of(totals, thread, config)
        TOTAL = config.total_k // LINE  # steps
        places = mma.get_slice(thread).partition_C(cute.make_identity_tensor((BM, BN)))

        if group == GROUPS - 1 and cutlass.const_expr(GROUPS > 1):
            pass_turn(group, GROUPS)
        for turn in cutlass.range(bx // CLUSTER, turns, blocks // CLUSTER):
            item, tile_m, tile_n = place(turn, m, n, config)
            sums.fill(0.0)
            for step in cutlass.range(steps, unroll=1):
                at = [None] * PARTS
                for part in cutlass.range_constexpr(PARTS - 1, -1, -1):
                    cute.arch.mbarrier_wait(full + slot, phase)
                    at[part] = slot
                    slot, phase = next_slot(slot, phase, SLOTS)
                if cutlass.const_expr(GROUPS > 1):
                    take_turn(group)
                warpgroup.fence()
                for i in cutlass.range_constexpr(len(PRODUCTS)):
                    of_a, of_b = PRODUCTS[i]
                    for kk in cutlass.range_constexpr(LINE // MMA_K):
                        chain = newest[kk // DEPTH]
                        mma.set(warpgroup.Field.ACCUMULATE, i > 0 or kk % DEPTH > 0)
                        tile_a, tile_b = rA[None, None, kk, at[of_a]], rB[None, None, kk, at[of_b]]
                        cute.gemm(mma, chain, tile_a, tile_b, chain)
                    warpgroup.commit_group()
                    if cutlass.const_expr(GROUPS > 1 and i == len(PRODUCTS) - 1):
                        pass_turn(group, GROUPS)
                    # Free the slot that only the product before was still in need of.
                    for part in cutlass.range_constexpr(1, PARTS):
                        if cutlass.const_expr(config.scheme.last_product(part) == i - 1):
                            warpgroup.wait_group(1)
                            if lane < CLUSTER:
                                cute.arch.mbarrier_arrive(empty + at[part], lane)
                warpgroup.wait_group(0)
                if lane < CLUSTER:
                    cute.arch.mbarrier_arrive(empty + at[0], lane)
                for chain in newest:
                    for i in cutlass.range_constexpr(cute.size(sums)):
                        sums[i] += chain[i]
                if cutlass.const_expr(TOTAL > 0):
                    move_into(own_totals, sums, step + 1, steps, TOTAL)
            if steps > TOTAL and cutlass.const_expr(TOTAL > 0):
                add_totals(sums, own_totals)
            mC = cute.make_tensor(c + item * batch_c, cute.make_layout((m, n), stride=(ldc, 1)))
            uA = vector_of(unscale_a, item * step_a, m)
            uB = vector_of(unscale_b, item * step_b, n)
            row0, col0 = tile_m * BM, tile_n * BN
            wide = row0 + BM <= m and col0 + BN <= n
            wide = wide and mC.iterator.toint() % 8 == 0 and ldc % 2 == 0
            store(sums, places, mC, (row0, col0), (uA, uB), (alpha, beta), wide)
        if group == 0 and cutlass.const_expr(GROUPS > 1):
            take_turn(group)  # nobody leaves a barrier half full
    # A block stays until its neighbours have read what it fetched for them, and have said so.
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()


SIGNATURES = signatures(POINTERS, kernel)
