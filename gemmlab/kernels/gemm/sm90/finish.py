"""The last launch of a product in `fp16x3`: repair C, or compute all of it again.

If few elements of C are doubtful, they are computed again in float32, as in `repair`. If many are,
or if many vectors are wide, this launch computes the product from the float32 operands, as `direct`
does; `mainloop` may have left C unchanged. In both cases the counts are reported and cleared.

Nearly every product has nothing to repair, and this launch ends at once. It replaces three:
`repack`, a product in bfloat16, and `repair`. Large products keep these, because bfloat16 is faster
than TF32 there, and two more launches hardly matter.
"""

import cutlass
from cutlass import Float32, Int32, Int64, Uint64, cute

from gemmlab.kernels.gemm.sm90 import repair
from gemmlab.kernels.gemm.sm90.direct import multiply
from gemmlab.kernels.gemm.sm90.items import Operand, Result
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.signature import signatures

POINTERS = {**repair.POINTERS, "d": ("float32", "input")}


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    d: cute.Pointer,
    risk_a: cute.Pointer,
    risk_b: cute.Pointer,
    status_a: cute.Pointer,
    status_b: cute.Pointer,
    report: cute.Pointer,
    doubts: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    batch: Int32,
    lda: Int64,
    ldb: Int64,
    batch_a: Int64,
    batch_b: Int64,
    row_c: Int64,
    col_c: Int64,
    batch_c: Int64,
    row_d: Int64,
    column_d: Int64,
    batch_d: Int64,
    alpha: Float32,
    beta: Float32,
    items: Int32,
    clear: Int32,
    segment: Int32,
    marked_a: Int32,
    least_risk: Uint64,
    most_doubts: Uint64,
    config: cutlass.Constexpr,
):
    pdl_wait()
    thread, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    statuses, arrays, one = (status_a, status_b), (a, b, c), Int64(1)
    a_strides = (lda, one) if config.a_major == "k" else (one, lda)
    b_strides = (one, ldb) if config.b_major == "k" else (ldb, one)
    strides = (*a_strides, *b_strides, row_c, col_c, batch_a, batch_b, batch_c)
    counts = repair.read_counts(report, statuses)
    at_risk, not_finite, doubted = counts
    again = at_risk >= least_risk or doubted > most_doubts
    results = report, statuses, counts, clear
    if not again and not_finite == 0 and doubted == 0:
        repair.report_if_first(*results)
    else:
        if again:
            if bx < items:
                operands = (
                    Operand(a, lda, batch_a, m, config.a_major, config.block_m),
                    Operand(b, ldb, batch_b, n, config.b_major, config.block_n),
                )
                c_strides, factors = ((row_c, col_c), (row_d, column_d)), (alpha, beta)
                result = Result((c, d), (m, n), c_strides, (batch_c, batch_d), Int64(0), factors)
                division, own = (1, 1, items), cutlass.min(blocks, items)
                multiply(operands, result, k, division, own, None, config)
        elif thread < repair.THREADS:
            if not_finite > 0:
                risks, sizes = (risk_a, risk_b), (m, n, k, batch)
                repair.add_not_finite(arrays, strides, sizes, risks, marked_a, alpha)
            if doubted > 0:
                repair.add_doubtful(arrays, strides, (m, n, k, batch, segment), doubts, alpha)
        repair.report_if_last(*results)


SIGNATURES = signatures(POINTERS, kernel)
