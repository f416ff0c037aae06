"""TMA copies a tile with one instruction; mbarriers in shared memory count the bytes that arrive.

Change from `wgmma`: there each of 128 threads issues 32 cp.async per tile, and computes an address,
a swizzle and a bounds check for every 16 bytes. Here one warp names a tile by its coordinates. The
Tensor Memory Accelerator (TMA) reads address, extents, strides, box and swizzle of the matrix from
a tensor map, which the host encodes, and writes zeros for elements outside the matrix.

A thread can wait only for its own cp.async, but any thread can wait for TMA. Each tile of the ring
has an mbarrier, which is told how many bytes to expect. TMA reports the bytes as they arrive; the
last ones complete the barrier's phase, for which all threads wait. Both tiles of the ring are in
flight at first. Once all warps have read a tile, the copy of the next one into its place begins.

Limiter: before each copy the warpgroup waits until its wgmma have finished; none is queued then.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Constexpr, Float16, Int32, Int64, cute
from cutlass.cute.nvgpu import cpasync, warpgroup

from gemmlab.kernels.gemm import packed, simt, wgmma
from gemmlab.kernels.gemm.packed import LINE, PARTS
from gemmlab.kernels.gemm.sm90 import tiles as sm90


@dataclass(frozen=True)
class Config(wgmma.Config):
    """The configuration of `wgmma`, with copies by TMA."""

    @property
    def tensor_maps(self) -> tuple[Any, ...]:
        """The kernel's first parameters, of A and of B, for the compiler: CuTe copy atoms."""
        return sm90.tensor_map(self.a_copy), sm90.tensor_map(self.b_copy)


@cute.jit
def set_up(maps, sizes, readers: Constexpr, config: Constexpr):
    """Set up the ring. Returns the operands as TMA copies them, their tiles, and two barriers each.

    A tile is full when its bytes have arrived, and empty when `readers` warps have read it.
    """
    m, n, k = sizes
    BM, BN = config.block_m, config.block_n
    ring_a = cute.arch.get_dyn_smem(Float16, alignment=1024)
    ring_b = ring_a + config.stages * BM * LINE
    full = cute.arch.alloc_smem(Int64, config.tiles, 8)
    empty = cute.arch.alloc_smem(Int64, config.tiles, 8)
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
        for i in cutlass.range_constexpr(2):
            cpasync.prefetch_descriptor(maps[i])
        with cute.arch.elect_one():
            for t in cutlass.range_constexpr(config.tiles):
                cute.arch.mbarrier_init(full + t, 1)
                cute.arch.mbarrier_init(empty + t, readers)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    one = Int32(0)  # there is one A, and one B
    a = sm90.tma_operand(maps[0], ring_a, BM, "k", 1, (m, k, PARTS), one, config.stages)
    b = sm90.tma_operand(maps[1], ring_b, BN, config.b_major, 1, (n, k, PARTS), one, config.stages)
    sA = sm90.tiles_of(ring_a, BM, "k", config.stages)  # (BM, BK, stages)
    sB = sm90.tiles_of(ring_b, BN, config.b_major, config.stages)  # (BN, BK, stages)
    return (a, b), (sA, sB), (full, empty)


@cute.jit
def fetch(operands, block, t: Int32, full, config: Constexpr):
    """Start the copies of tile t of A and of B for a block of C. Run by one warp."""
    bar, first = full + t % config.tiles, t % config.tiles * PARTS
    with cute.arch.elect_one():
        size = config.smem // config.tiles
        cute.arch.mbarrier_arrive_and_expect_tx(bar, size)
    for part in cutlass.range_constexpr(PARTS):
        for i in cutlass.range_constexpr(2):
            sm90.fetch(operands[i], block[i], t, Int32(part), first + part, bar)


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
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    bx, by = simt.walk(config.group)
    TILES = config.tiles
    operands, (sA, sB), (full, _) = set_up((map_a, map_b), (m, n, k), 4, config)
    mma = wgmma.tiled_mma(config)
    sums = packed.no_sums(mma.partition_shape_C((config.block_m, config.block_n)))
    tiles = cute.ceil_div(k, LINE)
    if warp == 0:
        for t in cutlass.range(cutlass.min(TILES, tiles), unroll=1):
            fetch(operands, (by, bx), t, full, config)
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(full + t % TILES, t // TILES % 2)
        wgmma.multiply(mma, sA, sB, sums, t % TILES * PARTS)
        warpgroup.wait_group(0)
        cute.arch.sync_threads()
        if warp == 0 and t + TILES < tiles:
            fetch(operands, (by, bx), t + TILES, full, config)
    mC = cute.make_tensor(c, cute.make_layout((m, n), stride=(ldc, 1)))
    corner = by * config.block_m, bx * config.block_n
    wgmma.store(sums, corner, mC, (unscale_a, unscale_b), config)
