"""Maximum and sum in one pass: when a lane finds a larger maximum, it scales its sum down.

Change from `row-per-warp`: with s = Σ exp(x - old), the sum for a new maximum is
s·exp(old - new) + exp(x - new) (Milakov and Gimelshein: "Online normalizer calculation for
softmax", 2018). In the end a lane's sum is scaled to the row's maximum before the lanes add up.

Traffic: 2·m·n loads instead of 3·m·n. Each element costs one more exp. Limiter: device memory, if
the rows of all warps do not fit in L1.
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
        most, total = Float32(rows.LOWEST), Float32(0)
        for j in cutlass.range(lane, n, rows.WARP):
            value = mX[row, j]
            larger = cute.arch.fmax(most, value)
            total = total * cute.math.exp(most - larger) + cute.math.exp(value - larger)
            most = larger
        of_row = rows.warp_max(most)
        total = rows.warp_sum(total * cute.math.exp(most - of_row))
        for j in cutlass.range(lane, n, rows.WARP):
            mY[row, j] = cute.math.exp(mX[row, j] - of_row) / total


RUNGS = (
    Rung(
        name="online",
        problem="softmax",
        change="maximum and sum in one pass",
        kernel=kernel,
        config=rows.Config(),
        geometry=rows.threads_per_row(rows.WARP),
        choices={"threads": (32, 64, 128, 256)},
    ),
)
