"""A second level of sums: registers hold the sum over `total_k` of k, device memory the total.

Every float32 addition to a sum rounds by up to half a unit of the sum's last place. After a large
term that error is large, so `bf16x6` limits how many additions one sum takes. Each thread owns the
totals of its own elements of C. They stay in L2.
"""

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm.sm90.sizes import WARPGROUP


@cute.jit
def totals_of(pointer: cute.Pointer, thread: Int32, config: cutlass.Constexpr) -> cute.Tensor:
    """The thread's totals (4, sums / 4): 128-bit accesses, consecutive among threads."""
    bx, _, _ = cute.arch.block_idx()
    first = pointer + Int64(bx) * (config.block_m * config.block_n) + 4 * thread
    aligned = cute.make_ptr(Float32, first.toint(), pointer.memspace, assumed_align=16)
    shape, stride = (4, config.block_n // 8), (1, 4 * WARPGROUP * config.consumers)
    return cute.make_tensor(aligned, cute.make_layout(shape, stride=stride))


@cute.jit
def add_totals(sums: cute.Tensor, totals: cute.Tensor) -> None:
    """sums += totals."""
    for j in cutlass.range_constexpr(totals.shape[1]):
        four = vectors.read(totals[None, j].iterator, 4)
        for e in cutlass.range_constexpr(4):
            sums[4 * j + e] += four[e]


@cute.jit
def move_to_totals(totals: cute.Tensor, sums: cute.Tensor, done: Int32, every: Int32) -> None:
    """Before each k-tile that follows `every` others: totals += sums (first time: =), sums = 0.

    done: k-tiles added to `sums` so far.
    """
    if done % every == 0:
        if done > every:
            add_totals(sums, totals)
        cute.autovec_copy(cute.make_tensor(sums.iterator, totals.shape), totals)
        sums.fill(0.0)
