"""One warp copies and two warpgroups multiply; each waits only for the stage that it needs.

Change from `wgmma-tma`: there all warps meet at a barrier after each tile before the next copy
begins. Here a producer warp only starts copies, as far ahead as the ring has free stages. Each of
two consumer warpgroups multiplies 64 rows of the block. While one of them waits for its wgmma to
finish, the wgmma of the other keep the tensor cores busy.

Each tile of the ring has two barriers. `full` completes when TMA has written the tile, `empty` when
all warps of both consumers have read it. The producer waits for `empty`, consumers wait for `full`.
setmaxnreg moves registers from the producer's warpgroup, three warps of which are idle, to the
consumers, whose sums alone take 96 registers per thread.

A tile of 128×192 needs 5/6 of the bytes per result of one of 128×128. C still has the same bits.
Limiter at n = 4096: power. The tensor cores are busy, and the GPU lowers its clock.
"""

from dataclasses import dataclass
from typing import ClassVar

import cutlass
from cutlass import Constexpr, Int32, Int64, cute
from cutlass.cute.nvgpu import warpgroup

from gemmlab.kernels.common import require
from gemmlab.kernels.gemm import packed, simt, wgmma, wgmma_tma
from gemmlab.kernels.gemm.packed import LINE, PARTS
from gemmlab.kernels.gemm.sm90.sizes import MMA_M, WARPGROUP

CONSUMERS = 2
REGISTERS = 40, 232  # per thread of the producer's warpgroup and of the others


@dataclass(frozen=True)
class Config(wgmma_tma.Config):
    """Two consumer warpgroups and a producer."""

    block_n: int = 192
    chains: ClassVar[int] = 0  # of sums beside the first, per thread

    def __post_init__(self) -> None:
        packed.Config.__post_init__(self)
        packed.check_ring(self)
        wgmma.check_sums(self, MMA_M * (1 + self.chains))
        rule = f"block_m = {self.block_m}, must be {MMA_M} rows for each of {CONSUMERS} consumers"
        require(self.block_m == MMA_M * CONSUMERS, rule)

    @property
    def threads(self) -> int:
        return WARPGROUP * (CONSUMERS + 1)


@cute.jit
def produce(operands, block, tiles: Int32, barriers, config: Constexpr):
    """Fill the ring with all tiles, as room appears. Run by one warp."""
    full, empty = barriers
    for t in cutlass.range(tiles, unroll=1):
        # Waiting for the phase before the first one of a new barrier returns at once.
        cute.arch.mbarrier_wait(empty + t % config.tiles, t // config.tiles % 2 ^ 1)
        wgmma_tma.fetch(operands, block, t, full, config)


@cute.jit
def release(empty: cute.Pointer):
    """Report that this warp has read a tile."""
    if cute.arch.lane_idx() == 0:
        cute.arch.mbarrier_arrive(empty)


@cute.jit
def consume(shared, tiles: Int32, barriers, config: Constexpr):
    """Return the sums of all tiles for the warpgroup's 64 rows."""
    full, empty = barriers
    mma = wgmma.tiled_mma(config)
    sums = packed.no_sums(mma.partition_shape_C((MMA_M, config.block_n)))
    for t in cutlass.range(tiles, unroll=1):
        at = t % config.tiles
        cute.arch.mbarrier_wait(full + at, t // config.tiles % 2)
        wgmma.multiply(mma, *shared, sums, at * PARTS)
        warpgroup.wait_group(0)
        release(empty + at)
    return sums


@cute.jit
def run(maps, c, scales, sizes, ldc: Int64, consume: Constexpr, config: Constexpr):
    """The kernel; `consume` is how a warpgroup computes its sums."""
    m, n, k = sizes
    group = cute.arch.make_warp_uniform(cute.arch.warp_idx()) // 4
    bx, by = simt.walk(config.group)
    readers = 4 * CONSUMERS
    operands, (sA, sB), barriers = wgmma_tma.set_up(maps, sizes, readers, config)
    tiles = cute.ceil_div(k, LINE)
    if group == CONSUMERS:
        cute.arch.setmaxregister_decrease(REGISTERS[0])
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == readers:
            produce(operands, (by, bx), tiles, barriers, config)
    else:
        cute.arch.setmaxregister_increase(REGISTERS[1])
        own = cute.local_tile(sA, (MMA_M, LINE, config.stages), (group, 0, 0))
        sums = consume((own, sB), tiles, barriers, config)
        mC = cute.make_tensor(c, cute.make_layout((m, n), stride=(ldc, 1)))
        corner = by * config.block_m + group * MMA_M, bx * config.block_n
        wgmma.store(sums, corner, mC, scales, config)


@cute.kernel
def kernel(
    map_a: cute.CopyAtom,
    map_b: cute.CopyAtom,
    c: cute.Pointer,
    unscale_a: cute.Pointer,
    unscale_b: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    ldc: Int64,
    config: Constexpr,
):
    run((map_a, map_b), c, (unscale_a, unscale_b), (m, n, k), ldc, consume, config)
