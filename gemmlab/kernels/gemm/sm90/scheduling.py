"""Order in the persistent kernel: of stages, of tiles of C, of consumer warpgroups."""

import cutlass
from cutlass import Int32, cute

from gemmlab.kernels.gemm.sm90.sizes import WARPGROUP


@cute.jit
def next_stage(stage: Int32, phase: Int32, stages: cutlass.Constexpr) -> tuple:
    """Advance around the ring of stages. The phase of their barriers flips at each wrap-around."""
    stage += 1
    if stage == stages:
        stage = Int32(0)
        phase ^= 1
    return stage, phase


@cute.jit
def tile_coordinates(tile: Int32, m: Int32, n: Int32, config: cutlass.Constexpr) -> tuple:
    """Batch item, tile row and tile column of this block in the cluster's tile number `tile`.

    Clusters traverse C in bands of `raster` rows of clusters, column by column. Clusters that run
    at the same time then cover a compact part of C and share tiles of A and B through L2.
    """
    bx, _, _ = cute.arch.block_idx()
    rows = cute.ceil_div(m, config.block_m * config.cluster)
    columns = cute.ceil_div(n, config.block_n)
    item, tile = tile // (rows * columns), tile % (rows * columns)
    top = tile // (config.raster * columns) * config.raster
    band = cutlass.min(config.raster, rows - top)  # rows of clusters
    tile -= top * columns
    return item, (top + tile % band) * config.cluster + bx % config.cluster, tile // band


@cute.jit
def wait_for_turn(warpgroup: Int32) -> None:
    """Wait until the previous consumer warpgroup has issued its wgmma instructions."""
    cute.arch.barrier(barrier_id=1 + warpgroup, number_of_threads=2 * WARPGROUP)


@cute.jit
def pass_turn(warpgroup: Int32, consumers: cutlass.Constexpr) -> None:
    """Let the next consumer warpgroup issue its wgmma instructions."""
    following = (warpgroup + 1) % consumers
    cute.arch.barrier_arrive(barrier_id=1 + following, number_of_threads=2 * WARPGROUP)


@cute.jit
def synchronize_consumers(config: cutlass.Constexpr) -> None:
    """A barrier of all threads that multiply."""
    cute.arch.barrier(barrier_id=3, number_of_threads=config.consumers)
