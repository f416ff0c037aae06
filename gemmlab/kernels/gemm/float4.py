"""Global memory is read and written 128 bits at a time.

Change from `tile-2d-8x8-strided`: one LDG.128 replaces four scalar loads, one STG.128 four scalar
stores, with the same tiles and arithmetic. A quarter of the requests load as many sectors. Stores
touch a quarter of the sectors and use all their bytes. `float4-64` has a smaller block, 64×64 with
4×4 per thread: twice the global traffic, M·N·K·(1/BM + 1/BN) elements, twice the resident warps.

A 128-bit access needs four consecutive elements on a 16-byte boundary. They run along k in A; along
n in a row-major B and C; along k in a column-major B and along m in a column-major C. A block
inside the matrices with aligned pointers and leading dimensions takes the wide path. Other blocks,
and the last tile of a ragged K, take the scalar path of the previous rung. The choice is uniform.

Limiter: two-way bank conflicts, and waiting: no tile is fetched ahead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Block of C, depth of the tiles, and elements of C per thread."""

    layout: str = "row"
    block_m: int = 128
    block_n: int = 128
    block_k: int = 8
    thread_m: int = 8
    thread_n: int = 8

    @property
    def threads(self) -> int:
        return (self.block_m // self.thread_m) * (self.block_n // self.thread_n)

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        simt.check_tiles(self)
        simt.check_fours(self)


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
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    mA, mB, mC = simt.matrices(a, b, c, (m, n, k), (lda, ldb, ldc), config.layout)
    BM, BN, BK = config.block_m, config.block_n, config.block_k
    TM, TN = config.thread_m, config.thread_n

    sA = simt.shared_tile(BM, BK)  # (BM, BK)
    sB = simt.shared_tile(BK, BN)  # (BK, BN)
    rA = cute.make_rmem_tensor(TM, Float32)
    rB = cute.make_rmem_tensor(TN, Float32)
    rC = cute.make_rmem_tensor((TM, TN), Float32)
    rC.fill(0.0)

    # Each thread stages four consecutive elements, of A along k and of B along its unit stride.
    course = config.layout == "course"
    thread = ty * (BN // TN) + tx
    a_m, a_k = thread // (BK // 4), thread % (BK // 4) * 4
    if cutlass.const_expr(course):
        b_k, b_n = thread % (BK // 4) * 4, thread // (BK // 4)
    else:
        b_k, b_n = thread // (BN // 4), thread % (BN // 4) * 4

    # Uniform across the block, so no warp diverges.
    inside = by * BM + BM <= m and bx * BN + BN <= n
    wide_loads = inside and simt.allows_quads(a, lda) and simt.allows_quads(b, ldb)
    wide_stores = inside and simt.allows_quads(c, ldc)

    for k0 in cutlass.range(0, k, BK):
        if wide_loads and k0 + BK <= k:
            four_a = simt.quad(mA, (by * BM + a_m, k0 + a_k)).load()
            four_b = simt.quad(mB, (k0 + b_k, bx * BN + b_n)).load()
            simt.write_four(sA, (a_m, a_k), four_a)
            if cutlass.const_expr(course):
                for i in cutlass.range_constexpr(4):
                    sB[b_k + i, b_n] = four_b[i]
            else:
                simt.write_four(sB, (b_k, b_n), four_b)
        else:
            for i in cutlass.range_constexpr(4):
                sA[a_m, a_k + i] = simt.load_or_zero(mA, by * BM + a_m, k0 + a_k + i)
                di, dj = (i, 0) if course else (0, i)
                sB[b_k + di, b_n + dj] = simt.load_or_zero(mB, k0 + b_k + di, bx * BN + b_n + dj)
        cute.arch.sync_threads()
        for kk in cutlass.range_constexpr(BK):
            for i in cutlass.range_constexpr(TM):
                rA[i] = sA[ty * TM + i, kk]
            for j in cutlass.range_constexpr(TN):
                rB[j] = sB[kk, tx * TN + j]
            for i in cutlass.range_constexpr(TM):
                for j in cutlass.range_constexpr(TN):
                    rC[i, j] += rA[i] * rB[j]
        cute.arch.sync_threads()

    row, col = by * BM + ty * TM, bx * BN + tx * TN
    if wide_stores:
        four = cute.make_rmem_tensor(4, Float32)
        for i in cutlass.range_constexpr(TM // 4 if course else TM):
            for j in cutlass.range_constexpr(TN if course else TN // 4):
                i0, j0 = (i * 4, j) if course else (i, j * 4)
                for e in cutlass.range_constexpr(4):
                    four[e] = rC[i0 + e, j0] if course else rC[i0, j0 + e]
                simt.write_four(mC, (row + i0, col + j0), four.load())
    else:
        for i in cutlass.range_constexpr(TM):
            for j in cutlass.range_constexpr(TN):
                simt.store_inside(mC, row + i, col + j, rC[i, j])


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    block = (config.block_n // config.thread_n, config.block_m // config.thread_m, 1)
    return Geometry(simt.grid(config, shape), block)


rung = partial(
    Rung,
    problem="gemm",
    kernel=kernel,
    geometry=geometry,
    choices={
        **dict.fromkeys(("block_m", "block_n"), (64, 128, 256)),
        "block_k": (4, 8, 16),
        **dict.fromkeys(("thread_m", "thread_n"), (4, 8)),
    },
    requires=common.fits_grid(geometry),
)
RUNGS = (
    rung(
        name="float4-64",
        change="128-bit global loads and stores, smaller blocks",
        config=Config(block_m=64, block_n=64, block_k=16, thread_m=4, thread_n=4),
    ),
    rung(name="float4", change="128-bit global loads and stores", config=Config()),
)
