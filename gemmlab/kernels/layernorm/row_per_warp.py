"""One warp per row: its lanes take every 32nd element, and shuffles add up their sums.

Change from `row-per-thread`: neighbouring lanes read neighbouring elements of x, gamma and beta, 4
sectors per request instead of 32 of x, and 32 loads of a row are in flight at a time. Five shuffles
give every lane the sum; no shared memory and no barrier is needed.

Traffic: 3·m·n loads of x as before, in an eighth of the sectors. The second and third pass find a
short row in L1. Limiter: device memory.
"""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels import rows
from gemmlab.kernels.layernorm.row_per_thread import EPSILON
from gemmlab.kernels.rung import Rung


@cute.kernel
def kernel(
    x: cute.Pointer,
    gamma: cute.Pointer,
    beta: cute.Pointer,
    y: cute.Pointer,
    m: Int32,
    n: Int32,
    config: cutlass.Constexpr,
):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mX, mY = rows.matrix(x, m, n), rows.matrix(y, m, n)
    mG, mB = (cute.make_tensor(pointer, cute.make_layout(n)) for pointer in (gamma, beta))

    row = (bx * config.threads + tx) // rows.WARP
    lane = tx % rows.WARP
    if row < m:  # the same for all lanes of a warp
        total = Float32(0)
        for j in cutlass.range(lane, n, rows.WARP):
            total += mX[row, j]
        mean = rows.warp_sum(total) / Float32(n)
        squares = Float32(0)
        for j in cutlass.range(lane, n, rows.WARP):
            squares += (mX[row, j] - mean) * (mX[row, j] - mean)
        squares = rows.warp_sum(squares)
        scale = Float32(1) / cute.math.sqrt(squares / Float32(n) + Float32(EPSILON))
        for j in cutlass.range(lane, n, rows.WARP):
            mY[row, j] = (mX[row, j] - mean) * scale * mG[j] + mB[j]


RUNGS = (
    Rung(
        name="row-per-warp",
        problem="layernorm",
        change="one row per warp, combined by shuffles",
        kernel=kernel,
        config=rows.Config(),
        geometry=rows.threads_per_row(rows.WARP),
        choices={"threads": (32, 64, 128, 256)},
    ),
)
