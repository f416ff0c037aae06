#! gemmlab problem=transpose entry=transpose args=a,b,m,n
#! gemmlab block=32,8 grid=ceil_div(n,32),ceil_div(m,8)
"""B = Aᵀ in float32. One thread moves one element."""

from cutlass import Int32, cute


@cute.kernel
def transpose(a: cute.Pointer, b: cute.Pointer, m: Int32, n: Int32):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    mA = cute.make_tensor(a, cute.make_layout((m, n), stride=(n, 1)))
    mB = cute.make_tensor(b, cute.make_layout((n, m), stride=(m, 1)))

    row, col = by * 8 + ty, bx * 32 + tx
    if row < m and col < n:
        mB[col, row] = mA[row, col]
