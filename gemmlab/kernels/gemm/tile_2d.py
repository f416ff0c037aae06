"""Each thread owns an 8×8 rectangle of C, kept in registers.

Against `shared`: a step in k reads 8 elements of A and 8 of B from shared memory and does 64
multiply-adds with them, 4 per element read instead of 1/2. The 64 sums are independent, so the
fused multiply-add pipeline has work while loads are in flight (instruction-level parallelism).

Global loads fall to M·N·K·(1/BM + 1/BN) elements with BM = BN = 128, a quarter of `shared`. Each
thread stages four consecutive elements of each tile by four scalar loads: a warp asks for the same
16 sectors four times. Shared reads per result: K/64·16. The compiler widens them to 128 bits where
they are consecutive: B along n, A along k.

Limited next by issue slots of those scalar accesses and by bank conflicts: neighbouring threads
read B 8 elements apart, and the two rows of A that a warp reads share their banks. 128 registers
leave two blocks per multiprocessor. `float4` makes one access out of four.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels.gemm import parts
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Block of C, depth of the tiles, and the elements of C that each thread owns."""

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
        parts.check_layout(self.layout)
        parts.check_tiles(self)
        for name, extent in (("block_m", self.block_m), ("block_n", self.block_n)):
            run, rest = divmod(extent * self.block_k, self.threads)
            fits = rest == 0 and self.block_k % run == 0 and extent % run == 0
            rule = f"{self.threads} threads must share it in runs of equal length"
            parts.require(fits, f"tile {name} × block_k is {extent} × {self.block_k}, {rule}")


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
    mA, mB, mC = parts.matrices(a, b, c, (m, n, k), (lda, ldb, ldc), config.layout)
    BM, BN, BK = config.block_m, config.block_n, config.block_k
    TM, TN = config.thread_m, config.thread_n

    sA = parts.shared_tile(BM, BK)  # (BM, BK)
    sB = parts.shared_tile(BK, BN)  # (BK, BN)
    rA = cute.make_rmem_tensor(TM, Float32)
    rB = cute.make_rmem_tensor(TN, Float32)
    rC = cute.make_rmem_tensor((TM, TN), Float32)
    rC.fill(0.0)

    # Each thread stages a run of consecutive elements: of A along k, of B along its unit stride.
    course = config.layout == "course"
    thread = ty * (BN // TN) + tx
    run_a = BM * BK // config.threads
    run_b = BK * BN // config.threads
    a_m, a_k = thread // (BK // run_a), thread % (BK // run_a) * run_a
    if cutlass.const_expr(course):
        b_k, b_n = thread % (BK // run_b) * run_b, thread // (BK // run_b)
    else:
        b_k, b_n = thread // (BN // run_b), thread % (BN // run_b) * run_b

    for k0 in cutlass.range(0, k, BK):
        for i in cutlass.range_constexpr(run_a):
            sA[a_m, a_k + i] = parts.load_or_zero(mA, by * BM + a_m, k0 + a_k + i)
        for i in cutlass.range_constexpr(run_b):
            di, dj = (i, 0) if course else (0, i)
            sB[b_k + di, b_n + dj] = parts.load_or_zero(mB, k0 + b_k + di, bx * BN + b_n + dj)
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
    for i in cutlass.range_constexpr(TM):
        for j in cutlass.range_constexpr(TN):
            parts.store_inside(mC, row + i, col + j, rC[i, j])


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    across = parts.ceil_div(shape["n"], config.block_n)
    down = parts.ceil_div(shape["m"], config.block_m)
    block = (config.block_n // config.thread_n, config.block_m // config.thread_m, 1)
    return Geometry((across, down, 1), block)


RUNGS = (
    Rung(
        name="tile-2d-8x8",
        problem="gemm",
        change="an 8×8 tile of C in registers",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        requires=parts.fits_grid(geometry),
    ),
)
