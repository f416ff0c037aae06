"""A thin 1024×1 block along a column of C: the counter-example to coalescing.

The failed first attempt at a faster kernel, kept because it is right and slow. It does the same
arithmetic as `naive` in the same order; only the shape of the block changed, and with it which
elements the 32 threads of a warp touch together.

Row-major, neighbouring threads are one row apart: their loads of A and stores of C are lda and ldc
elements apart, 32 sectors per request instead of 1 and 4, of which 4 bytes in 32 are used. B is
one address for the warp. (16.5 sectors per load request on average against 2.5.)

Loads: 2·M·N·K elements asked of L1, as before; each sector of A is fetched anew unless the cache
still holds it for the next seven values of k. Limited by sectors. The way back is `naive`'s block;
the way forward is to load tiles in an order of our own choice: `shared`.
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
    """Block of C in rows and columns, one thread per element; x runs down the rows."""

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

    # x runs down the column: neighbouring threads touch neighbouring rows.
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
        change="thin block: neighbouring threads, neighbouring rows",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        requires=common.fits_grid(geometry),
    ),
)
