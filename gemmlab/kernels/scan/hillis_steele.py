"""A block has a row and scans tiles of it in shared memory: log2(T) steps instead of T additions.

Change from `serial`: in step d every element adds the one d places before it, for d = 1, 2, 4, …
(Hillis and Steele: "Data parallel algorithms", 1986). A barrier before and after each step keeps
reads apart from writes. The last element of a tile is carried into the next.

T·log2(T) additions instead of T, but in 8 steps for 256 elements, and neighbouring threads access
neighbouring elements. Traffic: m·n loads and m·n stores. Limiter: barriers, two per step.
"""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels import rows
from gemmlab.kernels.rung import Rung


@cute.kernel
def kernel(x: cute.Pointer, y: cute.Pointer, m: Int32, n: Int32, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    mX, mY = rows.matrix(x, m, n), rows.matrix(y, m, n)
    T = config.threads
    sX = cute.make_tensor(cute.arch.alloc_smem(Float32, T, 16), cute.make_layout(T))

    carried = Float32(0)
    for first in cutlass.range(0, n, T):
        value = Float32(0)
        if first + tx < n:
            value = mX[row, first + tx]
        sX[tx] = value
        cute.arch.sync_threads()
        for level in cutlass.range_constexpr(config.threads.bit_length() - 1):
            before = Float32(0)
            if tx >= 1 << level:
                before = sX[tx - (1 << level)]
            cute.arch.sync_threads()
            value += before
            sX[tx] = value
            cute.arch.sync_threads()
        if first + tx < n:
            mY[row, first + tx] = carried + value
        carried += sX[T - 1]
        cute.arch.sync_threads()


RUNGS = (
    Rung(
        name="hillis-steele",
        problem="scan",
        change="one row per block, log2(n) steps",
        kernel=kernel,
        config=rows.Config(),
        geometry=rows.block_per_row,
        choices={"threads": (64, 128, 256, 512)},
    ),
)
