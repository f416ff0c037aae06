#! gemmlab problem=gemm entry=sgemm args=a,b,c,m,n,k layout=row
#! gemmlab block=32,8 grid=ceil_div(n,32),ceil_div(m,8)
"""C = A·B in float32. One thread computes one element of C."""

from cutlass import Float32, Int32, cute, range


@cute.kernel
def sgemm(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    mA = cute.make_tensor(a, cute.make_layout((m, k), stride=(k, 1)))
    mB = cute.make_tensor(b, cute.make_layout((k, n), stride=(n, 1)))
    mC = cute.make_tensor(c, cute.make_layout((m, n), stride=(n, 1)))

    row, col = by * 8 + ty, bx * 32 + tx
    if row < m and col < n:
        acc = Float32(0)
        for i in range(k):
            acc += mA[row, i] * mB[i, col]
        mC[row, col] = acc
