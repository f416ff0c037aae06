"""Asynchronous copies move tiles from global to shared memory, two tiles ahead.

Change from `rasterized`: there each tile passes through eight registers of each thread. A cp.async
(LDGSTS) names both addresses and completes on its own: of S tiles in a ring, S - 1 have arrived or
are in flight. Before each tile a thread waits for its own oldest copies, then at a barrier for the
others'. Without registers to hold, tiles can be 16 deep, which halves the barriers. Three such
tiles exceed 48 KB, so shared memory is dynamic.

A copy cannot scatter four elements along k to four rows. Data along k is copied 4 bytes at a time:
eight lanes share a sector, padding spreads them over the banks, and no alignment is required. If k
is not a multiple of 16, the first tile begins before the matrix: copies of size 0 write zeros.

Global traffic: M·N·K·(1/BM + 1/BN) elements, as before; shared stores no longer count as such.
Limiter: issue slots: 1024 FFMA are 87 % of the instructions of a tile.
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
    """Block of C, depth and number of tiles, and elements of C per warp and per thread."""

    layout: str = "row"
    block_m: int = 128
    block_n: int = 128
    block_k: int = 16
    stages: int = 3
    warp_m: int = 32
    warp_n: int = 64
    thread_m: int = 8
    thread_n: int = 8
    group: int = 8  # rows of blocks in a band that is walked column by column
    min_blocks: int = 2  # per multiprocessor: at most 128 registers

    @property
    def threads(self) -> int:
        return self.block_m // self.thread_m * (self.block_n // self.thread_n)

    @property
    def unit(self) -> int:  # the axis along which B and C are contiguous
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
    """Start the copies of tile t (BK, BX) of a matrix (k, x).

    how: the axis along which the matrix is contiguous; whether to copy 16 bytes at a time; whether
    the tile may begin before the matrix.
    """
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
        simt.copy_async(source, target, k0 + kk >= 0 if guarded else None)


@cute.jit
def accumulate(mA, mB, sA, sB, rC, corner, own, wide: Constexpr, config: Constexpr):
    """rC += A·B in the block at `corner`, for the thread's elements, which begin at `own`."""
    tiles, S, unit = cute.ceil_div(mA.shape[0], config.block_k), config.stages, config.unit
    for t in cutlass.range_constexpr(S - 1):
        if t < tiles:
            # Only the first tile can begin before k = 0.
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
    # The condition is uniform across the block, so no warp diverges.
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
        change="asynchronous copies, several tiles ahead",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={**simt.WARP_TILES, "block_k": (8, 16, 32), "stages": (2, 3, 4)},
        requires=common.fits_grid(geometry),
    ),
)
