#! gemmlab problem=histogram entry=histogram args=data,counts,n
#! gemmlab block=256 grid=ceil_div(n,256)
"""How often each of the 256 byte values occurs in n bytes. Each thread counts one byte."""

from cutlass import Int32, Int64, Uint32, cute


@cute.kernel
def histogram(data: cute.Pointer, counts: cute.Pointer, n: Int64):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mD = cute.make_tensor(data, cute.make_layout(n))

    i = Int64(bx) * 256 + tx
    if i < n:  # the counts are 0 when the kernel starts
        value = Int32(mD[i]) & 0xFF  # the DSL widens a byte with its sign
        cute.arch.atomic_add(counts + value, Uint32(1))
