"""Each warp computes a compact tile of C, with lanes ordered for 128-bit reads.

Change from `padded`: there a warp computes 16×128 elements of C and reads 144 elements per step in
k; 32×64 takes 96. A thread still computes 8×8, now as four 4×4 pieces WM/2 and WN/2 apart. The
eight columns of lanes read 32 consecutive words of B in one LDS.128, so rows need no padding
inside. Padding after each row remains, for the transposed stores.

The order of lanes matters too. An LDS.128 serves eight lanes at a time, and merges two such groups
if lanes l and l^1, or l and l^2, read the same four words. So bit 0 of the lane selects a row, bits
1 to 3 the column and bit 4 the other rows: a fragment costs two wavefronts instead of four.

Global traffic: M·N·K·(1/BM + 1/BN) elements, as before. Limiter: latency. Every warp loads a tile,
waits for it, stores it and waits at the barrier before it can multiply. `double-buffer` fetches the
next tile meanwhile.
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
    """Block of C, depth of the tiles, and elements of C per warp and per thread."""

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
    rC = cute.make_rmem_tensor((TM, TN), Float32)
    rC.fill(0.0)

    # Each thread stages four consecutive elements, of A along k and of B along its unit stride.
    unit = simt.unit_axis(config)
    a_k, a_m = simt.four_of(thread, BK, BM, 0)
    b_k, b_n = simt.four_of(thread, BK, BN, unit)
    t_m, t_n = simt.warp_place(thread, config)

    # Uniform across the block, so no warp diverges.
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
            rows = [t_m + i * (WM // TM) for i in range(0, TM, 4)]
            columns = [t_n + j * (WN // TN) for j in range(0, TN, 4)]
            rA = [x for row in rows for x in simt.read_four(sA, (kk, row))]
            rB = [x for column in columns for x in simt.read_four(sB, (kk, column))]
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
        choices=simt.WARP_TILES,
        requires=common.fits_grid(geometry),
    ),
)
