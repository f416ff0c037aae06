"""Each thread computes a column of TM elements of C and keeps it in registers.

Change from `shared`: a step in k reads one element of B and TM of A from shared memory for TM
multiply-adds. A result costs K·(1 + 1/TM) shared reads instead of 2·K. The TM sums are independent,
so some advance while others wait for operands: instruction-level parallelism (ILP).

`shared-ilp2` keeps the tiles of `shared` with the shortest column, TM = 2: half the threads do the
same work. `tile-1d` uses TM = 8: 512 threads compute 64×64 elements, and global loads,
M·N·K·(1/BM + 1/BN) elements, halve too. The elements that a thread stages are `threads` apart, so a
warp always accesses consecutive addresses: 4 sectors per request.

Limiter: still shared memory, as each element of A read serves one multiply-add. In the course
layout B is transposed on its way in, with 8-way store conflicts, 32-way if BK = 32. `tile-2d` also
reuses A: a rectangle of C per thread instead of a column.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Block of C, depth of the tiles, and length of each thread's column."""

    layout: str = "row"
    block_m: int = 64
    block_n: int = 64
    block_k: int = 8
    thread_m: int = 8
    thread_n: ClassVar[int] = 1

    @property
    def threads(self) -> int:
        return (self.block_m // self.thread_m) * self.block_n

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        simt.check_tiles(self)
        for name, extent in (("block_m", self.block_m), ("block_n", self.block_n)):
            rule = f"{self.threads} threads must share it equally"
            fits = extent * self.block_k % self.threads == 0
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
    TM = config.thread_m

    sA = simt.shared_tile(BM, BK)  # (BM, BK)
    sB = simt.shared_tile(BK, BN)  # (BK, BN)
    rC = cute.make_rmem_tensor(TM, Float32)
    rC.fill(0.0)

    # Neighbouring threads stage neighbouring addresses: A along k, B along its unit stride.
    course = config.layout == "course"
    thread = ty * BN + tx

    for k0 in cutlass.range(0, k, BK):
        for i in cutlass.range_constexpr(BM * BK // config.threads):
            at = thread + i * config.threads
            a_m, a_k = at // BK, at % BK
            sA[a_m, a_k] = simt.load_or_zero(mA, by * BM + a_m, k0 + a_k)
        for i in cutlass.range_constexpr(BK * BN // config.threads):
            at = thread + i * config.threads
            b_k, b_n = (at % BK, at // BK) if course else (at // BN, at % BN)
            sB[b_k, b_n] = simt.load_or_zero(mB, k0 + b_k, bx * BN + b_n)
        cute.arch.sync_threads()
        for kk in cutlass.range_constexpr(BK):
            for i in cutlass.range_constexpr(TM):
                rC[i] += sA[ty * TM + i, kk] * sB[kk, tx]
        cute.arch.sync_threads()

    row, col = by * BM + ty * TM, bx * BN + tx
    for i in cutlass.range_constexpr(TM):
        simt.store_inside(mC, row + i, col, rC[i])


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    block = (config.block_n, config.block_m // config.thread_m, 1)
    return Geometry(simt.grid(config, shape), block)


rung = partial(
    Rung,
    problem="gemm",
    kernel=kernel,
    geometry=geometry,
    choices={
        **dict.fromkeys(("block_m", "block_n"), (32, 64, 128)),
        "block_k": (8, 16, 32),
        "thread_m": (2, 4, 8, 16),
    },
    requires=common.fits_grid(geometry),
)
RUNGS = (
    rung(
        name="shared-ilp2",
        change="two elements of C per thread",
        config=Config(block_m=32, block_n=32, block_k=32, thread_m=2),
    ),
    rung(name="tile-1d", change="a column of 8 elements per thread", config=Config()),
)
