"""Each thread computes a rectangle of TM×TN elements of C and keeps it in registers.

Change from `tile-1d`: a step in k reads TM elements of A and TN of B from shared memory for TM·TN
multiply-adds, or K·(1/TM + 1/TN) shared reads per result. The compiler widens consecutive reads (B
along n, A along k) to 128 bits. Global loads, M·N·K·(1/BM + 1/BN) elements, halve again: BM = BN =
128.

`tile-2d-4x4` takes 1024 threads. `tile-2d-4x4-bk32` has a quarter of its barriers, but each thread
stages four consecutive elements by scalar loads, so a warp requests the same 16 sectors four times.
`tile-2d-8x8` stages the same way, with 256 threads and half the shared reads. With strides, in
`tile-2d-8x8-strided`, neighbouring threads load neighbouring elements: 4 sectors per request.

Limiter: scalar accesses, and bank conflicts: neighbouring threads read B 8 elements apart, and the
two rows of A that a warp reads share their banks. With 64 sums, a thread takes 128 registers, so a
multiprocessor holds two blocks. `float4` combines four accesses into one.
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
    """Block of C, depth of the tiles, and elements of C per thread.

    strided: neighbouring threads stage neighbouring elements. Otherwise a thread stages a run.
    """

    layout: str = "row"
    block_m: int = 128
    block_n: int = 128
    block_k: int = 8
    thread_m: int = 8
    thread_n: int = 8
    strided: bool = False

    @property
    def threads(self) -> int:
        return (self.block_m // self.thread_m) * (self.block_n // self.thread_n)

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        simt.check_tiles(self)
        for name, extent in (("block_m", self.block_m), ("block_n", self.block_n)):
            run, rest = divmod(extent * self.block_k, self.threads)
            fits = rest == 0 and self.block_k % run == 0 and extent % run == 0
            rule = f"{self.threads} threads must share it in runs of equal length"
            if self.strided:
                fits = rest == 0 and self.threads % self.block_k == self.threads % self.block_n == 0
                rule = f"{self.threads} threads must stage whole rows of it at a time"
            common.require(fits, f"tile {name} × block_k is {extent} × {self.block_k}, {rule}")


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

    # Each thread stages a run of consecutive elements, of A along k and of B along its unit stride;
    # with strides, single elements of every few rows.
    course = config.layout == "course"
    thread = ty * (BN // TN) + tx
    count_a = BM * BK // config.threads
    count_b = BK * BN // config.threads
    run_a, run_b = (1, 1) if config.strided else (count_a, count_b)
    a_m, a_k = thread // (BK // run_a), thread % (BK // run_a) * run_a
    step_a = (config.threads // BK, 0) if config.strided else (0, 1)
    if cutlass.const_expr(course):
        b_k, b_n = thread % (BK // run_b) * run_b, thread // (BK // run_b)
        step_b = (0, config.threads // BK) if config.strided else (1, 0)
    else:
        b_k, b_n = thread // (BN // run_b), thread % (BN // run_b) * run_b
        step_b = (config.threads // BN, 0) if config.strided else (0, 1)

    for k0 in cutlass.range(0, k, BK):
        for i in cutlass.range_constexpr(count_a):
            di, dk = i * step_a[0], i * step_a[1]
            sA[a_m + di, a_k + dk] = simt.load_or_zero(mA, by * BM + a_m + di, k0 + a_k + dk)
        for i in cutlass.range_constexpr(count_b):
            dk, dj = i * step_b[0], i * step_b[1]
            sB[b_k + dk, b_n + dj] = simt.load_or_zero(mB, k0 + b_k + dk, bx * BN + b_n + dj)
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
        "block_k": (8, 16, 32),
        **dict.fromkeys(("thread_m", "thread_n"), (4, 8)),
    },
    requires=common.fits_grid(geometry),
)
RUNGS = (
    rung(
        name="tile-2d-4x4",
        change="a 4×4 tile of C in registers",
        config=Config(thread_m=4, thread_n=4),
    ),
    rung(
        name="tile-2d-4x4-bk32",
        change="tiles four times as deep, fewer barriers",
        config=Config(thread_m=4, thread_n=4, block_k=32),
    ),
    rung(name="tile-2d-8x8", change="an 8×8 tile of C in registers", config=Config()),
    rung(
        name="tile-2d-8x8-strided",
        change="neighbouring threads load neighbouring elements",
        config=Config(strided=True),
    ),
)
