#! gemmlab problem=sum entry=sum_all args=x,out,n
#! gemmlab block=256 grid=ceil_div(n,256)
"""The sum of n float32 numbers. Each thread adds its element to the result."""

from cutlass import Int64, cute


@cute.kernel
def sum_all(x: cute.Pointer, out: cute.Pointer, n: Int64):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mX = cute.make_tensor(x, cute.make_layout(n))

    i = Int64(bx) * 256 + tx
    if i < n:  # out holds 0 when the kernel starts
        cute.arch.atomic_add(out, mX[i])
