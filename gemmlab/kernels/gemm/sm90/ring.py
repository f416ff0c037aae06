"""The ring of stages between the producer and the consumers of `mainloop`.

`mainloop` describes a stage, and which warps arrive at each barrier and wait on it.
"""

from typing import NamedTuple

import cutlass
from cutlass import Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import cpasync

from gemmlab.kernels.gemm.sm90.config import LINE
from gemmlab.kernels.gemm.sm90.epilogue import Output, exponents_at
from gemmlab.kernels.gemm.sm90.scheduling import next_stage, tile_coordinates
from gemmlab.kernels.gemm.sm90.sizes import WARPGROUP
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS, TmaOperand, fetch, fetch_line

WARPS = WARPGROUP // 32


class Ring(NamedTuple):
    """The stages in shared memory, their barriers, and exponents of tiles of C."""

    a: cute.Pointer  # (stages, block_m, LINE)
    b: cute.Pointer  # (stages, block_n, LINE)
    exponents: cute.Pointer  # (exponent_buffers, block_m + block_n)
    staged: cute.Pointer  # room for `staging`
    full: cute.Pointer  # (stages)
    empty: cute.Pointer  # (stages)


class Work(NamedTuple):
    """C (m, n) of each batch item in tiles. Cluster i computes tiles i, i + clusters, …"""

    m: Int32
    n: Int32
    batch: Int32
    k_tiles: Int32  # tiles of A and of B that a tile of C takes
    whole: Int32  # … that have more than one chain; at least 1
    tiles: Int32  # a cluster's blocks compute one each
    block: Int32  # this block's index
    blocks: Int32  # of the grid


@cute.jit
def set_up_ring(
    map_a: cute.CopyAtom, map_b: cute.CopyAtom, warp: Int32, config: cutlass.Constexpr
) -> Ring:
    """Allocate stages and barriers, initialize the barriers, synchronize the cluster."""
    STAGES, CLUSTER = config.stages, config.cluster
    smem_a = cute.arch.get_dyn_smem(ELEMENTS[config.scheme.dtype], 1024)
    smem_b = smem_a + STAGES * config.block_m * LINE
    exponents = cute.recast_ptr(smem_b + STAGES * config.block_n * LINE, dtype=Int32)
    count = config.exponent_buffers * config.exponents
    staged = cute.recast_ptr(exponents + count, dtype=Float32)
    full = cute.arch.alloc_smem(Int64, STAGES, 8)
    empty = cute.arch.alloc_smem(Int64, STAGES, 8)
    if warp == 0:
        cpasync.prefetch_descriptor(map_a)
        cpasync.prefetch_descriptor(map_b)
        with cute.arch.elect_one():
            for i in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + i, 1)
                cute.arch.mbarrier_init(empty + i, WARPS * config.consumers * CLUSTER)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()
    return Ring(smem_a, smem_b, exponents, staged, full, empty)


@cute.jit
def produce(
    operand_a: TmaOperand,
    operand_b: TmaOperand,
    ring: Ring,
    work: Work,
    output: Output,
    config: cutlass.Constexpr,
) -> None:
    """Fill the stages in the order in which `consume` reads them. Run by one warp.

    The exponents of a tile of C arrive with its first stage.
    """
    PARTS, STAGES, CLUSTER = config.scheme.parts, config.stages, config.cluster
    stage, phase, buffer = Int32(0), Int32(0), Int32(0)
    for tile in cutlass.range(work.block // CLUSTER, work.tiles, work.blocks // CLUSTER):
        place = tile_coordinates(tile, work.m, work.n, config)
        item, tile_m, tile_n = place
        # The barrier may count the exponents only after the stage's previous phase has ended.
        # NOTE: a wait for the phase before a new barrier's first returns at once.
        cute.arch.mbarrier_wait(ring.empty + stage, phase ^ 1)
        with cute.arch.elect_one():
            first, at = ring.full + stage, ring.exponents + buffer * config.exponents
            rows, columns = exponents_at(output, place, (work.m, work.n), config)
            cute.arch.mbarrier_expect_tx(first, 4 * config.exponents)
            fetch_line(rows, at, config.block_m, first)
            fetch_line(columns, at + config.block_m, config.block_n, first)
        for k_tile in cutlass.range(work.k_tiles, unroll=1):
            for part in cutlass.range_constexpr(PARTS - 1, -1, -1):
                part_a = item * operand_a.item_stride * PARTS + part
                part_b = item * operand_b.item_stride * PARTS + part
                bar = ring.full + stage
                cute.arch.mbarrier_wait(ring.empty + stage, phase ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(bar, config.stage_bytes)
                fetch(operand_a, tile_m, k_tile, part_a, stage, bar)
                fetch(operand_b, tile_n, k_tile, part_b, stage, bar)
                stage, phase = next_stage(stage, phase, STAGES)
        buffer = (buffer + 1) % config.exponent_buffers


@cute.jit
def release(ring: Ring, stage: Int32, config: cutlass.Constexpr) -> None:
    """Signal to the producers of the cluster's blocks that this warp no longer reads the stage."""
    lane = cute.arch.lane_idx()
    if lane < config.cluster:
        cute.arch.mbarrier_arrive(ring.empty + stage, lane)


@cute.jit
def discard(ring: Ring, work: Work, config: cutlass.Constexpr) -> None:
    """Release all stages unread, if the kernel does not compute.

    The producer does not wait for the counts that decide: every product would then start later by
    a load from L2.
    """
    stage, phase = Int32(0), Int32(0)
    for _ in cutlass.range(
        work.block // config.cluster, work.tiles, work.blocks // config.cluster, unroll=1
    ):
        for _ in cutlass.range(work.k_tiles * config.scheme.parts, unroll=1):
            cute.arch.mbarrier_wait(ring.full + stage, phase)
            release(ring, stage, config)
            stage, phase = next_stage(stage, phase, config.stages)
