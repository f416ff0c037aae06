#! gemmlab problem=vector-add entry=add args=a,b,c,n
#! gemmlab block=256 grid=ceil_div(n,256)
"""c = a + b for vectors of n float32 numbers. Each thread adds one element."""

from cutlass import Int64, cute


@cute.kernel
def add(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, n: Int64):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mA, mB, mC = (cute.make_tensor(x, cute.make_layout(n)) for x in (a, b, c))

    i = Int64(bx) * 256 + tx
    if i < n:
        mC[i] = mA[i] + mB[i]
