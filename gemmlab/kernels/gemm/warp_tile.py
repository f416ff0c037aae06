"""A warp owns a compact tile of C, and its lanes are ordered for 128-bit reads.

Against `padded`: there a warp covers 16×128 elements of C and reads 144 elements per step of k for
them; 32×64 take 96. Each thread still owns 8×8, now as four 4×4 pieces WM/2 and WN/2 apart: in
one LDS.128 the eight columns of lanes read 32 neighbouring words of B, without a conflict and
without padding inside the row. Rows stay padded for the transposed stores.

The order of the lanes matters too. LDS.128 serves eight lanes at a time, and joins two such groups
when lanes l and l^1, or l and l^2, read the same four. So bit 0 of the lane chooses a row, bits 1
to 3 the column, bit 4 the other rows: fragments of A and of B cost two wavefronts each, not four.

Global traffic: M·N·K·(1/BM + 1/BN) elements, as before. Limited next by latency: every warp loads
a tile, waits for it, stores it and waits at the barrier before there is anything to multiply.
`double-buffer` has the next tile on its way by then.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Block of C, depth of the tiles, and what of C each warp and each thread owns."""

    layout: str = "row"
    block_m: int = 128
    block_n: int = 128
    block_k: int = 8
    warp_m: int = 32
    warp_n: int = 64
    thread_m: int = 8
    thread_n: int = 8

    @property
    def threads(self) -> int:
        return (self.block_m // self.thread_m) * (self.block_n // self.thread_n)

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        simt.check_tiles(self)
        simt.check_fours(self)
        simt.check_warps(self)


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
    config: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    mA, mB, mC = simt.matrices(a, b, c, (m, n, k), (lda, ldb, ldc), config.layout)
    BM, BN, BK = config.block_m, config.block_n, config.block_k
    WM, WN = config.warp_m, config.warp_n
    TM, TN = config.thread_m, config.thread_n

    sA = simt.shared_tile(BK, BM, padding=4)  # (BK, BM)
    sB = simt.shared_tile(BK, BN, padding=4)  # (BK, BN)
    rA = cute.make_rmem_tensor(TM, Float32)
    rB = cute.make_rmem_tensor(TN, Float32)
    rC = cute.make_rmem_tensor((TM, TN), Float32)
    rC.fill(0.0)

    # Each thread stages four consecutive elements: of A along k, of B along its unit stride.
    unit = simt.unit_axis(config)
    a_k, a_m = simt.four_of(thread, BK, BM, 0)
    b_k, b_n = simt.four_of(thread, BK, BN, unit)
    t_m, t_n = simt.warp_place(thread, config)

    # The same for every thread of the block, so no warp diverges.
    inside = by * BM + BM <= m and bx * BN + BN <= n
    wide_loads = inside and simt.allows_quads(a, lda) and simt.allows_quads(b, ldb)
    wide_stores = inside and simt.allows_quads(c, ldc)

    for k0 in cutlass.range(0, k, BK):
        wide = wide_loads and k0 + BK <= k
        four_a = simt.load_four(mA, by * BM + a_m, k0 + a_k, 1, wide)
        four_b = simt.load_four(mB, k0 + b_k, bx * BN + b_n, unit, wide)
        simt.stage(sA, a_k, a_m, four_a, 0)
        simt.stage(sB, b_k, b_n, four_b, unit)
        cute.arch.sync_threads()
        for kk in cutlass.range_constexpr(BK):
            for i in cutlass.range_constexpr(0, TM, 4):
                simt.read_four(sA, (kk, t_m + i * (WM // TM)), rA, i)
            for j in cutlass.range_constexpr(0, TN, 4):
                simt.read_four(sB, (kk, t_n + j * (WN // TN)), rB, j)
            for i in cutlass.range_constexpr(TM):
                for j in cutlass.range_constexpr(TN):
                    rC[i, j] += rA[i] * rB[j]
        cute.arch.sync_threads()

    simt.store_warp_tiles(mC, by * BM, bx * BN, rC, wide_stores, config)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry(simt.grid(config, shape), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="warp-tile",
        problem="gemm",
        change="a compact tile of C per warp",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        requires=common.fits_grid(geometry),
    ),
)
