"""A thin 1024×1 block along a column of C: the counterexample to coalescing.

A first attempt at a faster kernel that failed, kept because it is correct and slow. It performs the
arithmetic of `naive` in the same order. Only the shape of the block differs, and with it which
elements the 32 threads of a warp access together.

In row layout, neighbouring threads are one row apart. Their loads of A and stores of C are lda and
ldc elements apart: 32 sectors per request instead of 1 and 4, with 4 bytes used of every 32. All
threads of a warp read the same element of B. Load requests average 16.5 sectors instead of 2.5. In
the course layout A and B both run along k: `naive` averages 16.5, too, and is about as slow.

Loads: 2·M·N·K elements requested from L1, as before. A sector of A holds eight values of k and is
fetched again for each one unless it stays in the cache. Limiter: sectors. The remedy is the block
of `naive`; the next step, `shared`, chooses the order of its loads freely.
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
    """Rows and columns of the block of C, one thread per element; x runs down a column."""

    layout: str = "row"
    block_m: int = 1024
    block_n: int = 1

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        threads = self.block_m * self.block_n
        rule = f"{threads} threads per block, must be 1 to {common.MAX_THREADS}"
        common.require(0 < threads <= common.MAX_THREADS, rule)


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

    # x runs down a column: neighbouring threads access neighbouring rows.
    row = by * config.block_m + tx
    col = bx * config.block_n + ty
    if row < m and col < n:
        acc = Float32(0)
        for i in cutlass.range(k):
            acc += mA[row, i] * mB[i, col]
        mC[row, col] = acc


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry(simt.grid(config, shape), (config.block_m, config.block_n, 1))


RUNGS = (
    Rung(
        name="uncoalesced",
        problem="gemm",
        change="adjacent threads compute adjacent rows of C",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"block_m": (64, 128, 256, 512, 1024)},
        requires=common.fits_grid(geometry),
    ),
)
