"""Multiply a packed operand by a float32 one that is split on its way to the tensor cores.

`mainloop` multiplies two packed operands. Packing moves an operand through memory a second time,
which takes longer than the product if the other operand has few vectors. So here only the operand
with fewer vectors, the *packed* one, is packed. The other one, the *streamed* one, is read once:
float32 tiles are copied to shared memory, and a warp that multiplies loads its 16 vectors from
there, splits them, and keeps the parts in registers, from which wgmma takes its operand A. So the
rows of the computed matrix are the vectors of the streamed operand, which may be either factor.

Each row has its own scale in each chain of 32 of k: the largest of these 32 elements gets the
exponent 14. No pass over the matrix has to find scales, and elements are at risk only if they are
small compared with 31 neighbors. The factor that undoes the scale is applied where the chain is
added to the sums, by a multiply-add instead of an addition.

| warps                     | work                                       | wait on | arrive on |
|---------------------------|--------------------------------------------|---------|-----------|
| 4 in each of 2 warpgroups | load, split, wgmma, sums, C                | full    | empty     |
| 1 in the third one        | TMA of both operands                       | empty   | full      |
| 3 others in the third one | none, if TMA can copy the streamed operand | empty   | full      |
|                           | else all four copy its lines               |         |           |
| the last one              | also `reporting`                           | named 4 |           |

For each chain c, a warpgroup takes these steps:

| step                                            | meanwhile                 |
|-------------------------------------------------|---------------------------|
| start wgmma of c                                | the other one's wgmma end |
| split chain c + 1; load the elements of c + 2   | its own wgmma run         |
| wait for wgmma, add c to the sums               | the other one's wgmma run |

The loads come a chain early: wgmma and the copies take most of the bandwidth of shared memory, so a
load whose elements are needed at once delays the split.

If too many vectors of the packed operand are wide, the product is computed from the float32
operands, as `direct` does. k may be divided into slices, which `add_slices` adds up.

Limiter: memory if the packed operand has up to about 100 vectors, else the tensor cores and,
through the clock, power.
"""

import cutlass
from cutlass import Boolean, Float16, Float32, Int32, Int64, Uint64, cute
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import LINE, ONLY
from gemmlab.kernels.gemm.sm90.instead import multiply_instead
from gemmlab.kernels.gemm.sm90.items import Operand, Result
from gemmlab.kernels.gemm.sm90.notes import Notes, Share, Tiles, add_noted, threads_with
from gemmlab.kernels.gemm.sm90.pdl import let_next_start, wait_for_previous
from gemmlab.kernels.gemm.sm90.recompute import Factor
from gemmlab.kernels.gemm.sm90.reporting import NUMBER, Reporting
from gemmlab.kernels.gemm.sm90.scheduling import next_stage
from gemmlab.kernels.gemm.sm90.sizes import MMA_K, MMA_M, WARPGROUP
from gemmlab.kernels.gemm.sm90.splitting import kept
from gemmlab.kernels.gemm.sm90.streamed_config import CHAIN, GROUPS, REGISTERS
from gemmlab.kernels.gemm.sm90.streamed_output import (
    Losses,
    Output,
    extremes,
    finish_doubtful,
    finish_tile,
)
from gemmlab.kernels.gemm.sm90.streamed_ring import (
    WARPS,
    Ring,
    Work,
    discard,
    ends_of,
    judge,
    place_of,
    produce,
    set_up_ring,
)
from gemmlab.kernels.gemm.sm90.streaming import (
    STEPS,
    Splits,
    Streamed,
    is_aligned,
    keep,
    load,
    load_shifted,
    split,
    spots_of,
)
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS, tiles_of, tma_operand
from gemmlab.kernels.signature import signatures

POINTERS = {
    "x": ("float32", "input"),
    "y": ("float32", "input"),
    "c": ("float32", "output"),
    "d": ("float32", "input"),
    "unscale": ("int32", "input"),
    "risk": ("int32", "input"),
    "status": ("uint64", "accumulator"),
    "report": ("uint64", "accumulator"),
    "notes": ("uint32", "output"),
}

CHAINS = LINE // CHAIN  # of a stage
assert CHAINS == 2  # `consume` splits one while the other one is multiplied


@cute.jit
def tiled_mma(config: cutlass.Constexpr) -> cute.TiledMma:
    """wgmma of 64 × block_n × 16 per warpgroup, the streamed operand in registers."""
    modes = {"k": OperandMajorMode.K, "mn": OperandMajorMode.MN}
    op = warpgroup.MmaF16BF16Op(
        ELEMENTS[config.scheme.dtype],
        Float32,
        (MMA_M, config.block_n, MMA_K),
        warpgroup.OperandSource.RMEM,
        OperandMajorMode.K,
        modes[config.packed_major],
    )
    return cute.make_tiled_mma(cute.make_mma_atom(op), (GROUPS, 1, 1))


@cute.jit
def start_chain(
    sums: cute.Tensor,
    fragments: tuple,
    rB: cute.Tensor,
    at: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Start the wgmma of a chain. at: stage, chain of the stage."""
    mma, (stage, chain) = tiled_mma(config), at
    warpgroup.fence()
    for i in cutlass.range_constexpr(len(config.scheme.products)):
        own, other = config.scheme.products[i]
        for step in cutlass.range_constexpr(STEPS):
            mma.set(warpgroup.Field.ACCUMULATE, i + step > 0)
            part = rB[None, None, chain * STEPS + step, stage * config.scheme.parts + other]
            cute.gemm(mma, sums, fragments[own][None, None, step], part, sums)
    warpgroup.commit_group()


def registers_of_splits(parts: int) -> Splits:
    fragments = [cute.make_rmem_tensor(((2, 2, 2), 1, STEPS), Float16) for _ in range(parts)]
    return Splits(tuple(fragments), *[cute.make_rmem_tensor(2, Float32) for _ in range(2)])


@cute.jit
def fill(
    held: cute.Tensor,
    ring: Ring,
    stage: Int32,
    chain: cutlass.Constexpr,
    spots: list,
    aligned: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """Load the thread's elements of a chain of a stage. aligned: whether TMA has copied it."""
    if cutlass.const_expr(aligned):
        tile = ring.streamed + stage * (config.streamed_bytes // 4)
        keep(held, load(tile, chain, spots, config))
    else:
        tile = ring.streamed + stage * (config.streamed_room // 4)
        shift = simt.element(ring.shifts, stage)[0]
        keep(held, load_shifted(tile, shift, chain, spots, config))


@cute.jit
def fill_first(
    given: tuple, chain: cutlass.Constexpr, aligned: Boolean, config: cutlass.Constexpr
) -> None:
    """The same of the first stage. given: registers, ring, and spots."""
    held, ring, spots = given
    if aligned:
        fill(held, ring, Int32(0), chain, spots, True, config)
    else:
        fill(held, ring, Int32(0), chain, spots, False, config)


@cute.jit
def add_k_tiles(
    given: tuple,
    begin: Int32,
    end: Int32,
    stage: Int32,
    phase: Int32,
    left: Int32,
    aligned: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> tuple:
    """Multiply the k-tiles from `begin` to `end`, and add them to the sums.

    given: registers and shared memory of `consume`. left: k-tiles of this and all later tiles.
    Returns the next stage and its phase.
    """
    sums, chain_sums, losses, splits, held, rB, ring, spots = given
    for _ in cutlass.range(begin, end, unroll=1):
        now = stage
        for chain in cutlass.range_constexpr(CHAINS):
            start_chain(chain_sums, splits[chain].fragments, rB, (now, chain), config)
            # In a branch, from which the compiler moves nothing past the wait for wgmma.
            if left > 0:
                split(held, splits[1 - chain])
            if cutlass.const_expr(chain == 0):
                stage, phase = next_stage(stage, phase, config.stages)
                left -= 1
                if left > 0:
                    cute.arch.mbarrier_wait(ring.full + stage, phase)
            if left > 0:
                fill(held, ring, stage, chain, spots, aligned, config)
            warpgroup.wait_group(0)
            if cutlass.const_expr(chain == CHAINS - 1):
                cute.arch.sync_warp()  # all lanes have loaded what they split
                if cute.arch.lane_idx() == 0:
                    cute.arch.mbarrier_arrive(ring.empty + now)
            add_chain(sums, chain_sums, losses, splits[chain])
    return stage, phase


@cute.jit
def consume(
    streamed: Streamed,
    ring: Ring,
    work: Work,
    output: Output,
    known: tuple,
    warp: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Split, multiply, add up and store the block's tiles, `MMA_M` rows per warpgroup.

    known: `extremes`.
    """
    lane, mma, PARTS = cute.arch.lane_idx(), tiled_mma(config), config.scheme.parts
    own = mma.get_slice(warp // WARPS * WARPGROUP)
    tiles = tiles_of(ring.packed, config.block_n, config.packed_major, config.stages * PARTS)
    rB = mma.make_fragment_B(own.partition_B(tiles))
    # ((2, 2, block_n / 8), 1, 1)
    sums = cute.make_rmem_tensor(mma.partition_shape_C((config.block_m, config.block_n)), Float32)
    chain_sums = cute.make_rmem_tensor(sums.layout, Float32)
    chain_sums.fill(0.0)
    held = cute.make_rmem_tensor((2, 2, STEPS, 2), Float32)
    held.fill(0.0)
    splits = [registers_of_splits(PARTS) for _ in range(CHAINS)]
    losses = Losses(*[cute.make_rmem_tensor(2, Float32) for _ in range(2)])
    spots, aligned = spots_of(streamed, warp, lane, config), is_aligned(streamed)
    left = Int32(0)  # k-tiles of all the block's tiles
    for tile in cutlass.range(work.first, work.count, work.step, unroll=1):
        begin, end = ends_of(place_of(tile, work).piece, work)
        left += end - begin
    stage, phase, doubtful = Int32(0), Int32(0), Int32(0)
    if left > 0:
        cute.arch.mbarrier_wait(ring.full + stage, phase)
        fill_first((held, ring, spots), 0, aligned, config)
    split(held, splits[0])
    if left > 0:
        fill_first((held, ring, spots), 1, aligned, config)
    given = sums, chain_sums, losses, splits, held, rB, ring, spots
    for tile in cutlass.range(work.first, work.count, work.step, unroll=1):
        place = place_of(tile, work)
        begin, end = ends_of(place.piece, work)
        for register in (sums, *losses):
            register.fill(0.0)
        # Not one loop with branches, in which loads would take longer.
        if aligned:
            stage, phase = add_k_tiles(given, begin, end, stage, phase, left, True, config)
        else:
            stage, phase = add_k_tiles(given, begin, end, stage, phase, left, False, config)
        left -= end - begin
        rest = known, place, tile * config.consumers + warp, work.shape, warp, config
        doubtful |= finish_tile(sums, losses, output, ring.staged, *rest)

    def add(tile: Int32, holder: Int32, count: Int32, share: Share) -> None:
        place = place_of(tile, work)
        begin, end = ends_of(place.piece, work)
        ends = begin * LINE, cutlass.min(end * LINE, work.k)
        rest = tile * config.consumers + holder, count, share, work.shape, holder, config
        finish_doubtful(output, place, ends, *rest)

    if threads_with(doubtful != 0, GROUPS * WARPGROUP) != 0:
        own_tiles = Tiles(work.first, work.step, work.count)
        add_noted(output.notes, own_tiles, config.consumers, warp, config.consumers, add)


@cute.jit
def add_chain(sums: cute.Tensor, chain_sums: cute.Tensor, losses: Losses, splits: Splits) -> None:
    """Add a chain to the sums, without the scales of the streamed operand."""
    for h in cutlass.range_constexpr(2):
        own = sums[(None, h, None), 0, 0]
        own.store(own.load() + chain_sums[(None, h, None), 0, 0].load() * splits.undo[h])
        losses.loss[h] += splits.loss[h]
        losses.most[h] = cute.arch.fmax(losses.most[h], splits.undo[h])


@cute.jit
def compute_again(output: Output, work: Work, batch: Int32, config: cutlass.Constexpr) -> None:
    """Compute the product from its float32 operands, in the first slice; all others become 0."""
    own, sizes = config.again, (config.again.block_m, config.again.block_n)

    def whole(_: Int32) -> tuple:
        sides = zip(output.operands, work.shape, sizes, strict=True)
        operands = [Operand(x.start, x.ld, x.step, end, x.major, size) for x, end, size in sides]
        rest = output.strides, output.steps, Int64(0), output.factors
        return operands, Result(output.starts, work.shape, *rest), batch

    multiply_instead(whole, (0, 1, 1), work.k, (work.first, work.step), own)
    thread, _, _ = cute.arch.thread_idx()
    size = Int32((work.slices - 1) * output.slice_step)  # at most three tiles per multiprocessor
    first, step = work.first * config.threads + thread, work.step * config.threads
    start, item_step = output.starts[0] + output.slice_step, output.steps[0]
    for item in cutlass.range(batch, unroll=1):
        for i in cutlass.range(first, size, step, unroll=1):
            simt.element(start, item * item_step + i)[0] = Float32(0)


@cute.kernel
def kernel(
    map_x: cute.CopyAtom,
    map_packed: cute.CopyAtom,
    x: cute.Pointer,
    y: cute.Pointer,
    c: cute.Pointer,
    d: cute.Pointer,
    unscale: cute.Pointer,
    risk: cute.Pointer,
    status: cute.Pointer,
    report: cute.Pointer,
    notes: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    batch: Int32,
    ldx: Int64,
    ldy: Int64,
    batch_x: Int64,
    batch_y: Int64,
    row_c: Int64,
    column_c: Int64,
    batch_c: Int64,
    slice_c: Int64,
    row_d: Int64,
    column_d: Int64,
    batch_d: Int64,
    item_stride_x: Int32,
    item_stride: Int32,
    alpha: Float32,
    beta: Float32,
    most_risk: Uint64,
    doubt: Float32,
    slices: Int32,
    early: Int32,
    config: cutlass.Constexpr,
):
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    streamed = Streamed(x, ldx, batch_x, m, k)
    ring = set_up_ring((map_x, map_packed), warp, is_aligned(streamed), config)
    tiles = cute.ceil_div(m, config.block_m), cute.ceil_div(n, config.block_n)
    count = tiles[0] * tiles[1] * slices * batch
    work = Work((m, n), k, tiles, count, slices, cute.ceil_div(k, LINE), bx, blocks)
    is_wide, reporting = Boolean(False), Reporting(report, (status,), Int32(1), Int32(ONLY))
    strides = (row_c, column_c), (row_d, column_d)
    rows = Factor(x, ldx, batch_x, config.streamed_major)
    columns = Factor(y, ldy, batch_y, config.packed_major)
    own_notes = Notes(notes, count * config.consumers, report + NUMBER, Int32(0))
    given = (unscale, risk, status), item_stride, own_notes, doubt, (rows, columns)
    output = Output((c, d), strides, (batch_c, batch_d), slice_c, (alpha, beta), *given)
    if warp >= config.consumers:
        cute.arch.setmaxregister_decrease(REGISTERS[0])
        parts, stages = config.scheme.parts, config.stages
        own = 1, (m, k, batch), item_stride_x, stages
        other = 1, (n, k, batch * parts), item_stride, stages * parts
        majors = config.streamed_major, config.packed_major
        by_tma = tma_operand(map_x, ring.streamed, config.block_m, majors[0], *own)
        packed = tma_operand(map_packed, ring.packed, config.block_n, majors[1], *other)
        operands = streamed, by_tma, packed
        is_wide = produce(operands, ring, work, warp, early != 0, reporting, most_risk, config)
        if warp == config.consumers:
            let_next_start()  # not earlier: its instructions would displace those of this kernel
    else:
        cute.arch.setmaxregister_increase(REGISTERS[1])
        wait_for_previous()
        known = extremes(output)
        is_wide = judge(reporting, most_risk, warp, config)
        if is_wide:
            discard(ring, work, config)
        else:
            consume(streamed, ring, work, output, known, warp, config)
    # Else the compiler places this code, which rarely runs, before the loops: products of one tile
    # per block then took 7 µs longer.
    if kept(Int32(is_wide)) != 0:
        cute.arch.sync_threads()
        compute_again(output, work, batch, config)


SIGNATURES = signatures(POINTERS, kernel)
