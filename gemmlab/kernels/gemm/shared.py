"""Tiles of A and B are staged in shared memory and reused by the whole block.

Change from `naive`: the block copies a 32×32 tile of A and of B into shared memory and waits at a
barrier. Each thread multiplies its row by its column there. A second barrier keeps the tiles from
being overwritten too early. Each element loaded from global memory serves 32 threads.

Global loads drop by 32×, to M·N·K·(1/BM + 1/BN) elements: M·N·K/16 here. Every load is coalesced,
4 sectors per request. Zeros pad ragged edges; they add nothing to a sum.

Limiter: shared memory. Each multiply-add reads two operands from it, and the compiler can widen
only the reads of A, which are consecutive in k. In row layout there are no bank conflicts. In the
course layout B is loaded along k and transposed on its way in, so its store has a 32-way conflict,
once per tile. `tile-1d` and `tile-2d` keep operands in registers and read less per result.
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
    """Block of C, one thread per element, and depth of the tiles."""

    layout: str = "row"
    block_m: int = 32
    block_n: int = 32
    block_k: int = 32

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        threads = self.block_m * self.block_n
        rule = f"{threads} threads per block, must be 1 to {common.MAX_THREADS}"
        common.require(0 < threads <= common.MAX_THREADS, rule)
        sizes = (self.block_m, self.block_n, self.block_k)
        rule = f"tile is {sizes}, must be a cube: each thread loads one element of A and one of B"
        common.require(len(set(sizes)) == 1, rule)


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

    sA = simt.shared_tile(BM, BK)  # (BM, BK)
    sB = simt.shared_tile(BK, BN)  # (BK, BN)

    row = by * BM + ty
    col = bx * BN + tx
    # Neighbouring threads stage neighbouring addresses: A along k, B along its unit stride.
    b_k, b_n = (tx, ty) if cutlass.const_expr(config.layout == "course") else (ty, tx)

    acc = Float32(0)
    for k0 in cutlass.range(0, k, BK):
        sA[ty, tx] = simt.load_or_zero(mA, row, k0 + tx)
        sB[b_k, b_n] = simt.load_or_zero(mB, k0 + b_k, bx * BN + b_n)
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(BK):
            acc += sA[ty, i] * sB[i, tx]
        cute.arch.sync_threads()

    if row < m and col < n:
        mC[row, col] = acc


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry(simt.grid(config, shape), (config.block_n, config.block_m, 1))


RUNGS = (
    Rung(
        name="shared",
        problem="gemm",
        change="tiles of A and B in shared memory",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices=dict.fromkeys(("block_m", "block_n", "block_k"), (8, 16, 32)),
        requires=common.fits_grid(geometry),
    ),
)
