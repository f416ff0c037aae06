"""Tensor cores add over 64 values of k at a time; float32 additions, which round, add these sums.

Change from `warp-specialized`: there a tensor core's sum runs through all of k and is truncated at
each step. A step loses up to 2 u (u = 2^-24), always towards zero, so the error grows with k. Here
each tile starts a new sum, a *chain*, at zero. An ordinary addition adds the finished chain to the
result; it rounds up as often as down.

Within a chain the small products come first: lo·hi and hi·lo for all 64 of k, then hi·hi. If they
were added to the large ones, their last bits would be lost. Results are accurate to float32 again:
the column "error u" of the climb hardly grows with k.

The cost: 96 more registers per thread, and 96 additions per thread and tile beside 12 wgmma of 192
columns, during which the other warpgroup's wgmma run. `fp16x3` goes on from here: its blocks are
persistent, clusters share tiles of B, and each part's stage is freed as soon as it has been read.
Limiter: power.
"""

from dataclasses import dataclass
from typing import ClassVar

import cutlass
from cutlass import Constexpr, Int32, Int64, cute
from cutlass.cute.nvgpu import warpgroup

from gemmlab.kernels.gemm import packed, warp_specialized, wgmma
from gemmlab.kernels.gemm.packed import LINE, PARTS, PRODUCTS
from gemmlab.kernels.gemm.sm90.sizes import MMA_K, MMA_M


@dataclass(frozen=True)
class Config(warp_specialized.Config):
    """The sums of a thread, and as many sums of the current chain."""

    chains: ClassVar[int] = 1


@cute.jit
def multiply(mma, shared, chain, first: Int32):
    """Issue chain = A·B for the tile whose parts are in the stages from `first` on, as a group."""
    own = mma.get_slice(0)
    rA = mma.make_fragment_A(own.partition_A(shared[0]))
    rB = mma.make_fragment_B(own.partition_B(shared[1]))
    warpgroup.fence()
    for i in cutlass.range_constexpr(len(PRODUCTS)):
        a, b = PRODUCTS[i]
        for kk in cutlass.range_constexpr(LINE // MMA_K):
            mma.set(warpgroup.Field.ACCUMULATE, i + kk > 0)
            tA, tB = rA[None, None, kk, first + a], rB[None, None, kk, first + b]
            cute.gemm(mma, chain, tA, tB, chain)
    warpgroup.commit_group()


@cute.jit
def consume(shared, tiles: Int32, barriers, config: Constexpr):
    """Return the sums of all tiles for the warpgroup's 64 rows."""
    full, empty = barriers
    mma = wgmma.tiled_mma(config)
    sums = packed.no_sums(mma.partition_shape_C((MMA_M, config.block_n)))
    chain = packed.no_sums(sums.layout)
    for t in cutlass.range(tiles, unroll=1):
        at = t % config.tiles
        cute.arch.mbarrier_wait(full + at, t // config.tiles % 2)
        multiply(mma, shared, chain, at * PARTS)
        warpgroup.wait_group(0)
        warp_specialized.release(empty + at)
        for i in cutlass.range_constexpr(cute.size(sums)):
            sums[i] += chain[i]
    return sums


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
    maps, scales = (map_a, map_b), (unscale_a, unscale_b)
    warp_specialized.run(maps, c, scales, (m, n, k), ldc, consume, config)
