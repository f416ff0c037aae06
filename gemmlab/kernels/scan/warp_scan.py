"""The steps move from shared memory to registers: a warp has a row, lanes exchange by shuffles.

Change from `hillis-steele`: `shfl.sync.up` gives a lane the register of the lane d places before
it. Five steps scan 32 elements without a barrier, and the last lane's sum is carried on. No shared
memory is used, and short rows occupy one warp instead of a block.

Traffic: m·n loads and m·n stores. Limiter: a chain of n / 32 tiles, each with five shuffles; few
rows leave the GPU idle.
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
        carried = Float32(0)
        for first in cutlass.range(0, n, rows.WARP):
            value = Float32(0)
            if first + lane < n:
                value = mX[row, first + lane]
            for level in cutlass.range_constexpr(5):
                before = cute.arch.shuffle_sync_up(value, 1 << level, mask_and_clamp=0)
                if lane >= 1 << level:
                    value += before
            if first + lane < n:
                mY[row, first + lane] = carried + value
            carried += cute.arch.shuffle_sync(value, rows.WARP - 1)


RUNGS = (
    Rung(
        name="warp-scan",
        problem="scan",
        change="one row per warp, steps by shuffles",
        kernel=kernel,
        config=rows.Config(),
        geometry=rows.threads_per_row(rows.WARP),
        choices={"threads": (32, 64, 128, 256)},
    ),
)
