"""Each thread moves one element: it reads along a row of A and writes down a column of B.

The 32 threads of a warp read 32 consecutive elements of a row of A: 4 sectors per load request, the
minimum. They write elements ldb apart in B: 32 sectors per store request, with 4 bytes used of
every 32. Swapping x and y would only move the strided side to the load. One side of a transpose is
strided as long as each thread keeps its element.

Traffic: 2·M·N elements, 8·M·N bytes, is the minimum. The stores request eight times their share,
and the caches have to merge the sectors. A transpose computes nothing, so bytes per second is its
only measure. Limiter: sectors. `shared` makes both sides run along rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.kernels.transpose import simt


@dataclass(frozen=True)
class Config:
    """Rows and columns of the block of A, one thread per element."""

    block_m: int = 8
    block_n: int = 32

    def __post_init__(self) -> None:
        threads = self.block_m * self.block_n
        rule = f"{threads} threads per block, must be 1 to {common.MAX_THREADS}"
        common.require(0 < threads <= common.MAX_THREADS, rule)


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    m: Int32,
    n: Int32,
    lda: Int64,
    ldb: Int64,
    config: cutlass.Constexpr,
):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    mA, mB = simt.matrices(a, b, m, n, lda, ldb)

    row = by * config.block_m + ty
    col = bx * config.block_n + tx
    if row < m and col < n:
        mB[col, row] = mA[row, col]


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    columns = common.ceil_div(shape["n"], config.block_n)
    rows = common.ceil_div(shape["m"], config.block_m)
    return Geometry((columns, rows, 1), (config.block_n, config.block_m, 1))


RUNGS = (
    Rung(
        name="naive",
        problem="transpose",
        change="one thread per element",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"block_m": (4, 8, 16), "block_n": (32, 64, 128)},
        requires=common.fits_grid(geometry),
    ),
)
