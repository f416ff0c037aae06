"""Repair C of a rung that multiplies packed operands and does not look for infinities.

A row of A or column of B with an infinity or a NaN is marked by `pack`, and its parts are zero, so
C holds 0 there. Blocks take turns at the tiles of C. For each tile that a marked row or column
crosses, a block forms the float32 product as the `shared` rung does, and adds it to the marked
elements. If no vector is marked, every block ends at once. The counts are reported and cleared.
`mainloop` needs no such launch: it computes these elements itself.
"""

import cutlass
from cutlass import Float32, Int32, Int64, Uint64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import NOT_FINITE_RISK, ONLY, REPAIR_TILE, VECTOR_PITCH
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.gemm.sm90.reporting import Reporting, begin_block, count
from gemmlab.kernels.signature import signatures

POINTERS = {
    "a": ("float32", "input"),
    "b": ("float32", "input"),
    "c": ("float32", "output"),
    "risk_a": ("int32", "input"),
    "risk_b": ("int32", "input"),
    "status_a": ("uint64", "accumulator"),
    "status_b": ("uint64", "accumulator"),
    "report": ("uint64", "accumulator"),
}

DEPTH = 16  # of the tiles in shared memory
THREADS = 256
EACH = REPAIR_TILE // 16  # rows, and columns, per thread, 16 apart


@cute.jit
def mark(risk: cute.Pointer, item: Int32, length: Int32, vector: Int32) -> Int32:
    """1 if the vector has an infinity or a NaN, else 0."""
    found = Int32(0)
    if vector < length:
        at = Int64(item) * cute.round_up(length, VECTOR_PITCH) + vector
        found = Int32(simt.element(risk, at)[0] == NOT_FINITE_RISK)
    return found


@cute.jit
def add_products(
    mA: cute.Tensor,
    mB: cute.Tensor,
    mC: cute.Tensor,
    sM: cute.Tensor,
    corner: tuple,
    alpha: Float32,
) -> None:
    """C += alpha·A·B in the marked rows and columns of the tile at `corner`.

    sM: (2, REPAIR_TILE), the marks of its rows and of its columns.
    """
    thread, _, _ = cute.arch.thread_idx()
    row0, col0 = corner
    ty, tx = thread // 16, thread % 16
    sA = simt.shared_tile(REPAIR_TILE, DEPTH, padding=1)
    sB = simt.shared_tile(DEPTH, REPAIR_TILE)
    rC = cute.make_rmem_tensor((EACH, EACH), Float32)
    rC.fill(0.0)
    for k0 in cutlass.range(0, mA.shape[1], DEPTH):
        for e in cutlass.range_constexpr(0, REPAIR_TILE * DEPTH, THREADS):
            i, kk = (thread + e) // DEPTH, (thread + e) % DEPTH
            sA[i, kk] = simt.load_or_zero(mA, row0 + i, k0 + kk)
            kk, j = (thread + e) // REPAIR_TILE, (thread + e) % REPAIR_TILE
            sB[kk, j] = simt.load_or_zero(mB, k0 + kk, col0 + j)
        cute.arch.sync_threads()
        for kk in cutlass.range(DEPTH, unroll=4):
            for i in cutlass.range_constexpr(EACH):
                for j in cutlass.range_constexpr(EACH):
                    rC[i, j] += sA[ty + 16 * i, kk] * sB[kk, tx + 16 * j]
        cute.arch.sync_threads()
    m, n = mC.shape
    for i in cutlass.range_constexpr(EACH):
        for j in cutlass.range_constexpr(EACH):
            row, col = row0 + ty + 16 * i, col0 + tx + 16 * j
            marked = sM[0, ty + 16 * i] + sM[1, tx + 16 * j] > 0
            if marked and row < m and col < n:
                mC[row, col] += alpha * rC[i, j]


@cute.jit
def add_not_finite(
    arrays: tuple, strides: tuple, sizes: tuple, risks: tuple, alpha: Float32
) -> None:
    """Add float32 products in the rows and columns of C whose vectors are marked."""
    m, n, k, batch = sizes
    a, b, c = arrays
    row_a, col_a, row_b, col_b, row_c, col_c, batch_a, batch_b, batch_c = strides
    thread, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    shape = cute.make_layout((2, REPAIR_TILE), stride=(REPAIR_TILE, 1))
    sM = cute.make_tensor(cute.arch.alloc_smem(Int32, 2 * REPAIR_TILE), shape)
    columns, rows = cute.ceil_div(n, REPAIR_TILE), cute.ceil_div(m, REPAIR_TILE)
    for tile in cutlass.range(bx, columns * rows * batch, blocks):
        item, tile_in_item = tile // (columns * rows), tile % (columns * rows)
        row0, col0 = tile_in_item // columns * REPAIR_TILE, tile_in_item % columns * REPAIR_TILE
        cute.arch.sync_threads()
        if thread < REPAIR_TILE:
            sM[0, thread] = mark(risks[0], item * Int32(batch_a != 0), m, row0 + thread)
        elif thread < 2 * REPAIR_TILE:
            at = thread - REPAIR_TILE
            sM[1, at] = mark(risks[1], item * Int32(batch_b != 0), n, col0 + at)
        cute.arch.sync_threads()
        marks = Int32(0)
        for i in cutlass.range(REPAIR_TILE):
            marks += sM[0, i] + sM[1, i]
        if marks > 0:
            mA = cute.make_tensor(
                a + item * batch_a, cute.make_layout((m, k), stride=(row_a, col_a))
            )
            mB = cute.make_tensor(
                b + item * batch_b, cute.make_layout((k, n), stride=(row_b, col_b))
            )
            mC = cute.make_tensor(
                c + item * batch_c, cute.make_layout((m, n), stride=(row_c, col_c))
            )
            add_products(mA, mB, mC, sM, (row0, col0), alpha)


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    risk_a: cute.Pointer,
    risk_b: cute.Pointer,
    status_a: cute.Pointer,
    status_b: cute.Pointer,
    report: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    batch: Int32,
    row_a: Int64,
    col_a: Int64,
    row_b: Int64,
    col_b: Int64,
    row_c: Int64,
    col_c: Int64,
    batch_a: Int64,
    batch_b: Int64,
    batch_c: Int64,
    alpha: Float32,
    clear: Int32,
):
    pdl_wait()
    thread, _, _ = cute.arch.thread_idx()
    statuses, arrays = (status_a, status_b), (a, b, c)
    strides = (row_a, col_a, row_b, col_b, row_c, col_c, batch_a, batch_b, batch_c)
    # L2 serves loads of the same word one after the other: one thread of each block reads it.
    marked = cute.arch.alloc_smem(Uint64, 1)
    if thread == 0:
        simt.element(marked, 0)[0] = count(status_a, 1) + count(status_b, 1)
        begin_block(Reporting(report, statuses, clear, Int32(ONLY)))
    cute.arch.sync_threads()
    if simt.element(marked, 0)[0] > 0:
        add_not_finite(arrays, strides, (m, n, k, batch), (risk_a, risk_b), alpha)


SIGNATURES = signatures(POINTERS, kernel)
