"""C = alpha · the sum of slices + beta · D: the second launch of a product whose k is in slices.

Each slice is a product over a share of k, in the workspace. A lane adds up four elements of C. A
small C may have more than a hundred slices: then the warps of a block divide them (`together`).
Each adds its own, in order, and the first one adds the sums of all, in order. So every run has the
same bits. The slices are read from L2, where they were written.
"""

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.gemm.sm90.shares import finish_four
from gemmlab.kernels.signature import signatures

POINTERS = {
    "slices": ("float32", "input"),
    "c": ("float32", "output"),
    "d": ("float32", "input"),
}
WARPS = 8


@cute.kernel
def kernel(
    slices: cute.Pointer,
    c: cute.Pointer,
    d: cute.Pointer,
    m: Int32,
    n: Int32,
    count: Int32,
    pitch: Int64,
    row_c: Int64,
    batch_c: Int64,
    row_d: Int64,
    column_d: Int64,
    batch_d: Int64,
    together: Int32,
    alpha: Float32,
    beta: Float32,
):
    thread, _, _ = cute.arch.thread_idx()
    bx, item, _ = cute.arch.block_idx()
    warp, lane = thread // 32, thread % 32
    shape = cute.make_layout((WARPS, 32, 4), stride=(128, 4, 1))
    sums = cute.make_tensor(cute.arch.alloc_smem(Float32, WARPS * 128, 16), shape)
    fours = cute.ceil_div(n, 4)
    own = warp % together
    at = (bx * (WARPS // together) + warp // together) * 32 + lane
    row, col = at // fours, at % fours * 4
    pdl_wait()
    total = cute.make_rmem_tensor(4, Float32)
    total.fill(0.0)
    if row < m:
        size, each = m * pitch, cute.ceil_div(count, together)
        first = slices + (item * count * size + row * pitch + col)
        for i in cutlass.range(own * each, cutlass.min((own + 1) * each, count), unroll=8):
            address = (first + i * size).toint()
            place = cute.make_ptr(Float32, address, first.memspace, assumed_align=16)
            four = cute.make_tensor(place, cute.make_layout(4)).load()
            for e in cutlass.range_constexpr(4):
                total[e] += four[e]
    simt.quad(sums, (warp, lane, 0)).store(total.load())
    cute.arch.sync_threads()
    if own == 0 and row < m:
        for other in cutlass.range(1, together, unroll=1):
            four = simt.quad(sums, (warp + other, lane, 0)).load()
            for e in cutlass.range_constexpr(4):
                total[e] += four[e]
        mC = cute.make_tensor(c + item * batch_c, cute.make_layout((m, n), stride=(row_c, 1)))
        strides = row_d, column_d
        mD = cute.make_tensor(d + item * batch_d, cute.make_layout((m, n), stride=strides))
        finish_four(mC, mD, (row, col), total, (alpha, beta))


SIGNATURES = signatures(POINTERS, kernel)
