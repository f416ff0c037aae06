"""Each thread has a row and walks along it three times: for the maximum, the sum and the results.

Subtracting the maximum keeps every exp at most 1, so no sum overflows. A thread waits for each
load, and the 32 rows of a warp are n words apart: 32 sectors per request, 4 of 32 bytes used.

Traffic: 3·m·n loads and m·n stores of elements. Limiter: uncoalesced accesses.
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

    row = bx * config.threads + tx
    if row < m:
        most = Float32(rows.LOWEST)
        for j in cutlass.range(n):
            most = cute.arch.fmax(most, mX[row, j])
        total = Float32(0)
        for j in cutlass.range(n):
            total += cute.math.exp(mX[row, j] - most)
        for j in cutlass.range(n):
            mY[row, j] = cute.math.exp(mX[row, j] - most) / total


RUNGS = (
    Rung(
        name="row-per-thread",
        problem="softmax",
        change="one row per thread, three passes",
        kernel=kernel,
        config=rows.Config(),
        geometry=rows.threads_per_row(1),
        choices={"threads": (32, 64, 128, 256)},
    ),
)
