"""Each thread has a row and adds up along it: the definition, one addition after another.

n additions in a chain, each waiting for the one before and for its load. The 32 rows of a warp are
n words apart: 32 sectors per request, 4 of 32 bytes used.

Traffic: m·n loads and m·n stores of elements. Limiter: uncoalesced accesses, and for few rows the
chain.
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
        total = Float32(0)
        for j in cutlass.range(n):
            total += mX[row, j]
            mY[row, j] = total


RUNGS = (
    Rung(
        name="serial",
        problem="scan",
        change="one row per thread, one chain",
        kernel=kernel,
        config=rows.Config(),
        geometry=rows.threads_per_row(1),
        choices={"threads": (32, 64, 128, 256)},
    ),
)
