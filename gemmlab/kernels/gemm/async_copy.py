"""Copies go from global to shared memory by themselves, two tiles ahead.

Against `rasterized`: there a tile passes through eight registers of each thread. cp.async (LDGSTS)
names both addresses and is done with it: of S tiles in a ring S - 1 are on their way or there. One
wait for the thread's own oldest copies and one barrier for those of the others stand before each
tile. With nothing to hold in registers, tiles are 16 deep: half as many barriers. Three of them
exceed 48 KB, so shared memory is dynamic.

No copy turns four elements along k into four rows. What lies along k is copied by 4 bytes: eight
lanes take one sector, padding spreads them over the banks, and no alignment is needed. Where k is
no multiple of 16 the first tile begins before the matrix, with copies of source size 0: zeros.

Global traffic: M·N·K·(1/BM + 1/BN) elements, as before; shared stores are gone from their counter.
Limited next by issue slots: 1024 FFMA are 87 % of the instructions of a tile.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Constexpr, Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Block of C, depth and number of the tiles, and what of C each warp and each thread owns."""

    layout: str = "row"
    block_m: int = 128
    block_n: int = 128
    block_k: int = 16
    stages: int = 3
    warp_m: int = 32
    warp_n: int = 64
    thread_m: int = 8
    thread_n: int = 8
    group: int = 8  # rows of blocks that are walked together, column by column
    min_blocks: int = 2  # per multiprocessor: at most 128 registers

    @property
    def threads(self) -> int:
        return self.block_m // self.thread_m * (self.block_n // self.thread_n)

    @property
    def unit(self) -> int:  # axis along which B and C are contiguous
        return 0 if self.layout == "course" else 1

    @property
    def smem(self) -> int:
        return 4 * self.stages * self.block_k * (self.block_m + self.block_n + 2 * simt.PADDING)

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        simt.check_warps(self)
        simt.check_ring(self)


@cute.jit
def fetch(matrix, ring, t: Int32, x0: Int32, how: Constexpr, config: Constexpr):
    """Start the copies of tile t (BK, BX) of a matrix (k, x) that is contiguous along `axis`."""
    axis, wide, guarded = how
    thread, _, _ = cute.arch.thread_idx()
    BK, BX, threads = config.block_k, ring.shape[1], config.threads
    k, last = matrix.shape[0], matrix.shape[1] - 1
    k0, row = k - cute.ceil_div(k, BK) * BK + t * BK, t % config.stages * BK
    for r in cutlass.range_constexpr(BK * BX // (4 * threads if wide else threads)):
        if cutlass.const_expr(wide):
            kk, x = simt.four_of(thread + r * threads, BK, BX, 1)
            target, source = simt.quad(ring, (row + kk, x)), simt.quad(matrix, (k0 + kk, x0 + x))
        else:
            kk, x = simt.one_of(thread, r, threads, BK, BX, axis)
            column = cutlass.min(x0 + x, last)
            target, source = simt.one(ring, (row + kk, x)), simt.one(matrix, (k0 + kk, column))
        simt.copy_async(source, target, k0 + kk >= 0, guarded)


@cute.jit
def accumulate(mA, mB, sA, sB, rC, corner, own, wide: Constexpr, config: Constexpr):
    """rC += the thread's part, at `own`, of the product of the strips of A and B at `corner`."""
    tiles, S, unit = cute.ceil_div(mA.shape[0], config.block_k), config.stages, config.unit
    for t in cutlass.range_constexpr(S - 1):
        if t < tiles:
            # The first tile is the only one that can begin before k = 0.
            fetch(mA, sA, t, corner[0], (0, False, t == 0), config)
            fetch(mB, sB, t, corner[1], (unit, wide, t == 0), config)
        cute.arch.cp_async_commit_group()
    for t in cutlass.range(tiles):
        cute.arch.cp_async_wait_group(S - 2)
        cute.arch.sync_threads()
        if t + S - 1 < tiles:
            fetch(mA, sA, t + S - 1, corner[0], (0, False, False), config)
            fetch(mB, sB, t + S - 1, corner[1], (unit, wide, False), config)
        cute.arch.cp_async_commit_group()
        simt.multiply(sA, sB, rC, t % S * config.block_k, own[0], own[1], config)


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    lda: Int64,
    ldb: Int64,
    ldc: Int64,
    config: Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    bx, by = simt.walk(config.group)
    mA, mB, mC = simt.matrices(a, b, c, (m, n, k), (lda, ldb, ldc), config.layout)
    mA = cute.make_tensor(mA.iterator, cute.select(mA.layout, mode=[1, 0]))  # (k, m)
    BM, BN = config.block_m, config.block_n
    sA, sB = simt.rings(config.stages * config.block_k, BM, BN)
    rC = cute.make_rmem_tensor((config.thread_m, config.thread_n), Float32)
    rC.fill(0.0)
    # What is asked here is the same for every thread of the block, so no warp diverges.
    corner, own = (by * BM, bx * BN), simt.warp_place(thread, config)
    if config.unit == 1 and bx * BN + BN <= n and simt.allows_quads(b, ldb):
        accumulate(mA, mB, sA, sB, rC, corner, own, True, config)
    else:
        accumulate(mA, mB, sA, sB, rC, corner, own, False, config)

    wide_stores = by * BM + BM <= m and bx * BN + BN <= n and simt.allows_quads(c, ldc)
    simt.store_warp_tiles(mC, *corner, rC, wide_stores, config)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry(simt.grid(config, shape), (config.threads, 1, 1), config.smem)


RUNGS = (
    Rung(
        name="async-copy",
        problem="gemm",
        change="copies past the registers, tiles ahead",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        requires=common.fits_grid(geometry),
    ),
)
