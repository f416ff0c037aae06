"""Compute the doubtful sums that blocks of `mainloop` have left in a list, in float32.

Doubtful sums often lie in few rows or columns, and so in the tiles of few blocks. In deep products
each sum takes long, so all blocks of one more launch take turns. A block computes `GROUP` neighbors
of the list together, which often have the same row and adjacent columns: the lanes of a warp then
read the same element of A and one sector of a row-major B. Its warps share the terms.

If the list is empty, as it mostly is, every block ends at once. The last block to begin empties it.
"""

import cutlass
from cutlass import Float32, Int32, Int64, Uint64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import FINISH_WARPS
from gemmlab.kernels.gemm.sm90.listing import NO_ENTRY
from gemmlab.kernels.gemm.sm90.pdl import let_next_start, wait_for_previous
from gemmlab.kernels.gemm.sm90.recompute import GROUP, part_of_sum
from gemmlab.kernels.gemm.sm90.reporting import FINISHING, LISTED, count
from gemmlab.kernels.signature import signatures

POINTERS = {
    "x_a": ("float32", "input"),
    "x_b": ("float32", "input"),
    "c": ("float32", "output"),
    "doubts": ("uint64", "input"),
    "report": ("uint64", "accumulator"),
}


@cute.jit
def take_length(report: cute.Pointer) -> Uint64:
    """The length of the list, which becomes 0 when all blocks have read it. Run by one thread."""
    blocks, _, _ = cute.arch.grid_dim()
    length = count(report, LISTED)
    cute.arch.fence_acq_rel_gpu()
    begun = cute.arch.atomic_add(report + FINISHING, Uint64(1), sem="relaxed", scope="gpu")
    cute.arch.fence_acq_rel_gpu()
    if begun == blocks - 1:
        for word in (LISTED, FINISHING):
            cute.arch.store(report + word, Uint64(0), sem="relaxed", scope="gpu")
    return Uint64(length)


@cute.kernel
def kernel(
    x_a: cute.Pointer,
    x_b: cute.Pointer,
    c: cute.Pointer,
    doubts: cute.Pointer,
    report: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    begin: Int32,
    row_a: Int64,
    col_a: Int64,
    row_b: Int64,
    col_b: Int64,
    batch_a: Int64,
    batch_b: Int64,
    ldc: Int64,
    batch_c: Int64,
    alpha: Float32,
    room: Int32,
):
    thread, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(thread // 32)
    wait_for_previous()
    # L2 serves loads of the same word one after the other: one thread of each block reads it.
    shared = cute.arch.alloc_smem(Uint64, 1)
    if thread == 0:
        simt.element(shared, 0)[0] = take_length(report)
    cute.arch.sync_threads()
    length = Int32(cutlass.min(simt.element(shared, 0)[0], Uint64(room)))  # may exceed 32 bits
    let_next_start()
    lane, ends = thread % 32, (begin, begin + k)
    of_a = cute.make_layout((m, begin + k), stride=(row_a, col_a))
    of_b = cute.make_layout((begin + k, n), stride=(row_b, col_b))
    of_warps = cute.make_layout((FINISH_WARPS, GROUP), stride=(GROUP, 1))
    sums = cute.make_tensor(cute.arch.alloc_smem(Float32, FINISH_WARPS * GROUP), of_warps)
    for first in cutlass.range(bx * GROUP, length, blocks * GROUP, unroll=1):
        entry, i = Uint64(NO_ENTRY), first + lane % GROUP
        if i < length:
            entry = Uint64(simt.element(doubts, i)[0])
        listed = entry != Uint64(NO_ENTRY)
        place = Int64(0)  # without an entry, the lane computes a sum that is not used
        if listed:
            place = Int64(entry)
        col, line = Int32(place % n), place // n
        row, item = Int32(line % m), line // m
        mA = cute.make_tensor(x_a + item * batch_a, of_a)
        mB = cute.make_tensor(x_b + item * batch_b, of_b)
        total = part_of_sum(mA, mB, (row, col), ends, warp)
        if lane < GROUP:
            sums[warp, lane] = total
        cute.arch.sync_threads()
        if thread < GROUP and listed:
            total = sums[0, thread]
            for other in cutlass.range_constexpr(1, FINISH_WARPS):
                total += sums[other, thread]
            mC = cute.make_tensor(c + item * batch_c, cute.make_layout((m, n), stride=(ldc, 1)))
            mC[row, col] += alpha * total
        cute.arch.sync_threads()


SIGNATURES = signatures(POINTERS, kernel)
