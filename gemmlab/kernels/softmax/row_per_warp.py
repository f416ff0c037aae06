"""A warp has a row: its lanes take every 32nd element, and shuffles combine what they found.

Change from `row-per-thread`: neighbouring lanes read neighbouring elements, 4 sectors per request
instead of 32, and 32 loads of a row are in flight at a time. Five shuffles give every lane the
maximum or the sum; no shared memory and no barrier is needed.

Traffic: 3·m·n loads as before, in an eighth of the sectors. The second and third pass find a short
row in L1. Limiter: three passes.
"""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels import rows
from gemmlab.kernels.rung import Rung


@cute.kernel
def kernel(x: cute.Pointer, y: cute.Pointer, m: Int32, n: Int32, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mX, mY = rows.matrix(x, m, n), rows.matrix(y, m, n)

    row = (bx * config.threads + tx) // rows.WARP
    lane = tx % rows.WARP
    if row < m:  # the same for all lanes of a warp
        most = Float32(rows.LOWEST)
        for j in cutlass.range(lane, n, rows.WARP):
            most = cute.arch.fmax(most, mX[row, j])
        most = rows.warp_max(most)
        total = Float32(0)
        for j in cutlass.range(lane, n, rows.WARP):
            total += cute.math.exp(mX[row, j] - most)
        total = rows.warp_sum(total)
        for j in cutlass.range(lane, n, rows.WARP):
            mY[row, j] = cute.math.exp(mX[row, j] - most) / total


RUNGS = (
    Rung(
        name="row-per-warp",
        problem="softmax",
        change="one row per warp, combined by shuffles",
        kernel=kernel,
        config=rows.Config(),
        geometry=rows.threads_per_row(rows.WARP),
        choices={"threads": (32, 64, 128, 256)},
    ),
)
