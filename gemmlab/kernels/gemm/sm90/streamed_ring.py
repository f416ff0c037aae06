"""The stages of `streamed` in shared memory, and the warps that fill them.

In each stage are a tile of the streamed operand and all parts of one of the packed operand. One
warp starts all copies if TMA can make them; else four warps copy the streamed operand.
"""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint64, cute
from cutlass.cute.nvgpu import cpasync

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import LINE
from gemmlab.kernels.gemm.sm90.pdl import wait_for_previous
from gemmlab.kernels.gemm.sm90.reporting import BARRIER, Reporting, begin_block
from gemmlab.kernels.gemm.sm90.scheduling import next_stage
from gemmlab.kernels.gemm.sm90.sizes import WARPGROUP
from gemmlab.kernels.gemm.sm90.splitting import kept
from gemmlab.kernels.gemm.sm90.streamed_config import COPIERS
from gemmlab.kernels.gemm.sm90.streamed_output import Place
from gemmlab.kernels.gemm.sm90.streaming import copy_tile, is_aligned
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS, fetch

WARPS = WARPGROUP // 32


class Ring(NamedTuple):
    """The stages in shared memory, and their barriers."""

    streamed: cute.Pointer  # (stages) tiles; see `streaming`
    shifts: cute.Pointer  # (stages) of tiles that TMA has not copied
    packed: cute.Pointer  # (stages, parts, block_n, LINE)
    staged: cute.Pointer  # room for `staging`
    full: cute.Pointer  # (stages)
    empty: cute.Pointer  # (stages)


class Work(NamedTuple):
    """The computed matrix of each item of a batch in tiles, for each slice of k.

    A block computes the tiles `first`, `first + step`, …
    """

    shape: tuple  # rows: vectors of the streamed operand; columns: of the packed one
    k: Int32
    tiles: tuple  # rows and columns of them
    count: Int32  # tiles of all slices and items
    slices: Int32
    k_tiles: Int32  # of all slices
    first: Int32
    step: Int32


@cute.jit
def set_up_ring(maps: tuple, warp: Int32, by_tma: Boolean, config: cutlass.Constexpr) -> Ring:
    """Allocate stages and barriers, initialize the barriers, synchronize the block.

    by_tma: whether TMA copies the streamed operand, too.
    """
    STAGES, element = config.stages, ELEMENTS[config.scheme.dtype]
    streamed = cute.arch.get_dyn_smem(Float32, 1024)
    packed = streamed + STAGES * config.streamed_room // 4
    staged = packed + STAGES * config.packed_bytes // 4
    shifts = cute.arch.alloc_smem(Int32, STAGES)
    full = cute.arch.alloc_smem(Int64, STAGES, 8)
    empty = cute.arch.alloc_smem(Int64, STAGES, 8)
    if warp == 0:
        cpasync.prefetch_descriptor(maps[1])
        arrivals = Int32(1 + COPIERS)
        if by_tma:
            cpasync.prefetch_descriptor(maps[0])
            arrivals = Int32(1)
        with cute.arch.elect_one():
            for i in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + i, arrivals)
                cute.arch.mbarrier_init(empty + i, config.consumers)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    return Ring(streamed, shifts, cute.recast_ptr(packed, dtype=element), staged, full, empty)


@cute.jit
def place_of(tile: Int32, work: Work) -> Place:
    """Where a tile is. Neighbors in a row follow each other: they share the streamed operand."""
    column, rest = tile % work.tiles[1], tile // work.tiles[1]
    row, rest = rest % work.tiles[0], rest // work.tiles[0]
    return Place(rest // work.slices, row, column, rest % work.slices)


@cute.jit
def ends_of(piece: Int32, work: Work) -> tuple:
    """The first k-tile of a slice, and the one after its last."""
    each = cute.ceil_div(work.k_tiles, work.slices)
    begin = cutlass.min(piece * each, work.k_tiles)
    return begin, cutlass.min(begin + each, work.k_tiles)


@cute.jit
def produce(
    operands: tuple,
    ring: Ring,
    work: Work,
    warp: Int32,
    early: Boolean,
    reporting: Reporting,
    most_risk: Uint64,
    config: cutlass.Constexpr,
) -> Boolean:
    """Fill the stages in the order in which `consume` reads them. Run by a warpgroup.

    operands: the streamed one, the same for TMA, and the packed one. early: whether the streamed
    one may be read before the previous kernel has finished. Returns whether the packed one is too
    wide: it has more than `most_risk` elements at risk.
    """
    leads, aligned = warp == config.consumers, is_aligned(operands[0])
    waits, is_wide = Boolean(True), Boolean(False)
    if not early:
        is_wide = judge(reporting, most_risk, warp, config)
        waits = Boolean(False)
    given = operands, ring, work, warp, reporting, most_risk
    # Not one loop with branches, for which registers do not suffice.
    if not aligned:
        waits, is_wide = fill_stages(*given, waits, is_wide, False, config)
        cute.arch.cp_async_wait_group(0)
    elif leads:
        waits, is_wide = fill_stages(*given, waits, is_wide, True, config)
    if waits:
        is_wide = judge(reporting, most_risk, warp, config)
    return is_wide


@cute.jit
def fill_stages(
    operands: tuple,
    ring: Ring,
    work: Work,
    warp: Int32,
    reporting: Reporting,
    most_risk: Uint64,
    waits: Boolean,
    is_wide: Boolean,
    aligned: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> tuple:
    """Copy all k-tiles of the block's tiles. aligned: whether TMA copies the streamed operand, too.

    waits: whether the packed operand has not been judged yet. Returns it, and the judgment.
    """
    streamed, by_tma, packed = operands
    # Else the compiler reads the thread's index again for each element.
    PARTS, thread = config.scheme.parts, kept(cute.arch.thread_idx()[0] % COPIERS)
    stage, phase = Int32(0), Int32(0)
    for tile in cutlass.range(work.first, work.count, work.step, unroll=1):
        place = place_of(tile, work)
        begin, end = ends_of(place.piece, work)
        for k_tile in cutlass.range(begin, end, unroll=1):
            bar, nbytes, shift = ring.full + stage, config.packed_bytes, Int32(0)
            cute.arch.mbarrier_wait(ring.empty + stage, phase ^ 1)
            if cutlass.const_expr(not aligned):
                target = ring.streamed + stage * (config.streamed_room // 4)
                origin = place.row * config.block_m, k_tile * LINE
                shift = copy_tile(streamed, target, place.item, origin, thread, config)
                cute.arch.cp_async_mbarrier_arrive_noinc(bar)
            if warp == config.consumers:
                if cutlass.const_expr(aligned):
                    nbytes += config.streamed_bytes
                with cute.arch.elect_one():
                    simt.element(ring.shifts, stage)[0] = shift
                    cute.arch.mbarrier_arrive_and_expect_tx(bar, nbytes)
                if cutlass.const_expr(aligned):
                    item = place.item * by_tma.item_stride
                    fetch(by_tma, place.row, k_tile, item, stage, bar)
            if waits:
                is_wide = judge(reporting, most_risk, warp, config)
                waits = Boolean(False)
            if warp == config.consumers:
                for part in cutlass.range_constexpr(PARTS):
                    at = place.item * packed.item_stride * PARTS + part
                    fetch(packed, place.column, k_tile, at, stage * PARTS + part, bar)
            stage, phase = next_stage(stage, phase, config.stages)
    return waits, is_wide


@cute.jit
def judge(
    reporting: Reporting, most_risk: Uint64, warp: Int32, config: cutlass.Constexpr
) -> Boolean:
    """Whether the packed operand, which the previous kernel has finished, is too wide.

    The last warp reports, and clears the counts, when all others have read them.
    """
    wait_for_previous()
    is_wide = simt.element(reporting.statuses[0], 0)[0] > most_risk
    if warp == config.consumers + WARPS - 1:
        cute.arch.barrier(barrier_id=BARRIER, number_of_threads=config.threads)
        with cute.arch.elect_one():
            begin_block(reporting)
    else:
        cute.arch.barrier_arrive(barrier_id=BARRIER, number_of_threads=config.threads)
    return is_wide


@cute.jit
def discard(ring: Ring, work: Work, config: cutlass.Constexpr) -> None:
    """Release all stages unread: the producer does not wait to know whether they are needed."""
    stage, phase = Int32(0), Int32(0)
    for tile in cutlass.range(work.first, work.count, work.step, unroll=1):
        begin, end = ends_of(place_of(tile, work).piece, work)
        for _ in cutlass.range(begin, end, unroll=1):
            cute.arch.mbarrier_wait(ring.full + stage, phase)
            if cute.arch.lane_idx() == 0:
                cute.arch.mbarrier_arrive(ring.empty + stage)
            stage, phase = next_stage(stage, phase, config.stages)
