"""Each thread has a row and walks along it three times: mean, variance, results.

The variance is the mean square of the differences to the mean: unlike E[x²] - E[x]², it does not
cancel. The 32 rows of a warp are n words apart: 32 sectors per request, 4 of 32 bytes used.

Traffic: 3·m·n loads of x, 2·m·n of gamma and beta, which a warp shares, and m·n stores. Limiter:
uncoalesced accesses.
"""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels import rows
from gemmlab.kernels.rung import Rung

EPSILON = 1e-5


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

    row = bx * config.threads + tx
    if row < m:
        total = Float32(0)
        for j in cutlass.range(n):
            total += mX[row, j]
        mean = total / Float32(n)
        squares = Float32(0)
        for j in cutlass.range(n):
            squares += (mX[row, j] - mean) * (mX[row, j] - mean)
        scale = Float32(1) / cute.math.sqrt(squares / Float32(n) + Float32(EPSILON))
        for j in cutlass.range(n):
            mY[row, j] = (mX[row, j] - mean) * scale * mG[j] + mB[j]


RUNGS = (
    Rung(
        name="row-per-thread",
        problem="layernorm",
        change="one row per thread, three passes",
        kernel=kernel,
        config=rows.Config(),
        geometry=rows.threads_per_row(1),
        choices={"threads": (32, 64, 128, 256)},
    ),
)
