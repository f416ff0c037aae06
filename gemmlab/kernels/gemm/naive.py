"""Each thread computes one element of C in a loop over all of K.

The baseline. It deliberately reuses nothing: each iteration issues two loads for one multiply-add,
so warps spend most of their time waiting for memory, and reuse is left to the caches.

In row layout the 32 threads of a warp share a row of A (one address, 1 sector) and read 32
consecutive elements of a row of B (4 sectors): 2.5 sectors per request. In the course layout B and
C are column-major. The same warp then reads B with stride ldb, one sector per lane: 16.5 sectors
per request. The code is the same; only the strides differ.

Loads: 2·M·N·K elements requested from L1. Limiter: these requests, one for each operand of a
multiply-add. `shared` replaces most of them by tiles that the whole block reuses.
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
    """Rows and columns of the block of C, one thread per element."""

    layout: str = "row"
    block_m: int = 32
    block_n: int = 32

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

    # x runs along a row: neighbouring threads access neighbouring columns.
    row = by * config.block_m + ty
    col = bx * config.block_n + tx
    if row < m and col < n:
        acc = Float32(0)
        for i in cutlass.range(k):
            acc += mA[row, i] * mB[i, col]
        mC[row, col] = acc


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry(simt.grid(config, shape), (config.block_n, config.block_m, 1))


RUNGS = (
    Rung(
        name="naive",
        problem="gemm",
        change="one thread per element of C",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"block_m": (4, 8, 16, 32), "block_n": (16, 32, 64, 128)},
        requires=common.fits_grid(geometry),
        course_name="naive-tnn",
    ),
)
