"""Repair C: elements whose product `mainloop` left out hold only beta·D; add it in float32.

**Non-finite rows.** A row of A or column of B with an infinity or a NaN is marked by `pack`, and
its parts are zero. Blocks take turns at the tiles of C. For each tile that a marked row or column
crosses, a block forms the float32 product as the `shared` rung does, and adds it to the marked
elements.

**Doubtful elements.** `mainloop` sets a bit of `doubts` for each sum that elements at risk may have
spoiled. Blocks take turns at the words of `doubts`: doubtful elements are often adjacent, so
neighbouring words go to different blocks, whose warps take turns at the elements. Each of several
launches over k has its own words, for the terms of its `segment` of k. If there are more than
`most_doubts` of them, all of C has been computed again.

Counters show whether there is anything to do; if not, every block ends at once. The counts are
copied to `report` and cleared for the next product, except those of operands that stay packed.
"""

import cutlass
from cutlass import Float32, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import NOT_FINITE_RISK, REPAIR_TILE, VECTOR_PITCH
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
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
    "doubts": ("uint32", "input"),
}

DEPTH = 16  # of the tiles in shared memory
THREADS = 256
WARPS = THREADS // 32
BARRIER = 4  # of these threads; `finish` has more
SUMS = 8  # of products of two elements, per lane
WORDS = 8  # of `doubts`, which a thread loads before it tests the first
EACH = REPAIR_TILE // 16  # rows, and columns, per thread, 16 apart


def synchronize() -> None:
    """A barrier of the THREADS that repair."""
    cute.arch.barrier(barrier_id=BARRIER, number_of_threads=THREADS)


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
        synchronize()
        for kk in cutlass.range(DEPTH, unroll=4):
            for i in cutlass.range_constexpr(EACH):
                for j in cutlass.range_constexpr(EACH):
                    rC[i, j] += sA[ty + 16 * i, kk] * sB[kk, tx + 16 * j]
        synchronize()
    m, n = mC.shape
    for i in cutlass.range_constexpr(EACH):
        for j in cutlass.range_constexpr(EACH):
            row, col = row0 + ty + 16 * i, col0 + tx + 16 * j
            marked = sM[0, ty + 16 * i] + sM[1, tx + 16 * j] > 0
            if marked and row < m and col < n:
                mC[row, col] += alpha * rC[i, j]


@cute.jit
def add_not_finite(
    arrays: tuple, strides: tuple, sizes: tuple, risks: tuple, marked_a: Int32, alpha: Float32
) -> None:
    """Add float32 products in the rows and columns of C whose vectors are marked.

    marked_a: rows of A that may be marked: all of them, or none if A is not packed.
    """
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
        synchronize()
        if thread < REPAIR_TILE:
            sM[0, thread] = mark(risks[0], item * Int32(batch_a != 0), marked_a, row0 + thread)
        elif thread < 2 * REPAIR_TILE:
            at = thread - REPAIR_TILE
            sM[1, at] = mark(risks[1], item * Int32(batch_b != 0), n, col0 + at)
        synchronize()
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


@cute.jit
def add_element(
    mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, at: tuple, ends: tuple, alpha: Float32
) -> None:
    """C[at] += alpha·A·B, over k between `ends`. Run by a warp, with `SUMS` sums per lane."""
    row, col = at
    start, end = ends
    lane = cute.arch.lane_idx()
    sums = [Float32(0) for _ in range(SUMS)]
    whole = end - (end - start) % (32 * SUMS)
    for kk in cutlass.range(start + lane, whole, 32 * SUMS, unroll=4):
        for i in cutlass.range_constexpr(SUMS):
            sums[i] += mA[row, kk + 32 * i] * mB[kk + 32 * i, col]
    for i in cutlass.range_constexpr(SUMS):
        kk = whole + lane + 32 * i
        if kk < end:
            sums[i] += mA[row, kk] * mB[kk, col]
    total = Float32(0)
    for i in cutlass.range_constexpr(SUMS):
        for level in cutlass.range_constexpr(5):
            sums[i] += cute.arch.shuffle_sync_bfly(sums[i], 16 >> level)
        total += sums[i]
    if lane == 0:
        mC[row, col] += alpha * total


@cute.jit
def lowest(word: Uint32) -> Int32:
    """The position of the lowest bit that is set."""
    return Int32(cute.arch.popc((word & (Uint32(0) - word)) - 1))


@cute.jit
def add_doubtful(
    arrays: tuple,
    strides: tuple,
    sizes: tuple,
    doubts: cute.Pointer,
    alpha: Float32,
) -> None:
    """Compute the elements of C whose bits are set in `doubts`.

    A block takes the bits of all segments, because they may belong to the same element of C.
    """
    m, n, k, batch, segment = sizes
    a, b, c = arrays
    row_a, col_a, row_b, col_b, row_c, col_c, batch_a, batch_b, batch_c = strides
    thread, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    shape = cute.make_layout((WORDS, THREADS), stride=(THREADS, 1))
    sW = cute.make_tensor(cute.arch.alloc_smem(Uint32, WORDS * THREADS), shape)
    sH = cute.make_tensor(cute.arch.alloc_smem(Uint32, WARPS), cute.make_layout(WARPS))
    pitch = cute.ceil_div(n, 32)  # words per row of C
    words, step = batch * m * pitch, blocks * THREADS
    found = cute.make_rmem_tensor(WORDS, Uint32)
    for first in cutlass.range(bx, words, WORDS * step, unroll=1):
        for start in cutlass.range(0, k, segment, unroll=1):
            ends = (start, cutlass.min(start + segment, k))
            own = doubts + Int64(start // segment) * words
            for i in cutlass.range_constexpr(WORDS):
                index = first + i * step + thread * blocks
                found[i] = Uint32(0)
                if index < words:
                    found[i] = Uint32(simt.element(own, index)[0])
            any_bit = Uint32(0)
            for i in cutlass.range_constexpr(WORDS):
                any_bit = any_bit | found[i]
                sW[i, thread] = found[i]
            holders = cute.arch.vote_ballot_sync(any_bit != 0)
            if thread % 32 == 0:
                sH[thread // 32] = Uint32(holders)  # lanes with a bit
            synchronize()
            count = Int32(0)
            for warp in cutlass.range(WARPS, unroll=1):
                lanes = Uint32(sH[warp])
                while lanes != 0:
                    holder = warp * 32 + lowest(lanes)
                    lanes = lanes & (lanes - 1)
                    for i in cutlass.range(WORDS, unroll=1):
                        bits, at_word = Uint32(sW[i, holder]), first + i * step + holder * blocks
                        if bits != 0:
                            line, left = at_word // pitch, at_word % pitch * 32
                            row, item = line % m, line // m
                            mA = cute.make_tensor(
                                a + item * batch_a, cute.make_layout((m, k), stride=(row_a, col_a))
                            )
                            mB = cute.make_tensor(
                                b + item * batch_b, cute.make_layout((k, n), stride=(row_b, col_b))
                            )
                            mC = cute.make_tensor(
                                c + item * batch_c, cute.make_layout((m, n), stride=(row_c, col_c))
                            )
                            while bits != 0:
                                place = (row, left + lowest(bits))
                                bits = bits & (bits - 1)
                                if count % WARPS == thread // 32:
                                    add_element(mA, mB, mC, place, ends, alpha)
                                count += 1
            synchronize()  # before the next words


@cute.jit
def count(counts: cute.Pointer, index: cutlass.Constexpr) -> Uint64:
    """One of the counts, which another block may clear meanwhile."""
    return cute.arch.load(counts + index, Uint64, sem="relaxed", scope="gpu")


@cute.jit
def read_counts(report: cute.Pointer, statuses: tuple) -> tuple:
    """Elements at risk, non-finite vectors, and doubtful elements of this product.

    One thread of each block reads them. L2 serves loads of the same word one after the other, so
    loads by all warps of all blocks would take microseconds.
    """
    thread, _, _ = cute.arch.thread_idx()
    sC = cute.make_tensor(cute.arch.alloc_smem(Uint64, 3, 8), cute.make_layout(3))
    if thread == 0:
        sC[0] = count(statuses[0], 0) + count(statuses[1], 0)
        sC[1] = count(statuses[0], 1) + count(statuses[1], 1)
        sC[2] = count(report, 3)
    cute.arch.sync_threads()
    return sC[0], sC[1], sC[2]


@cute.jit
def report_counts(report: cute.Pointer, statuses: tuple, counts: tuple, clear: Int32) -> None:
    """Write the counts to `report`. Clear those of A if bit 0 of `clear` is set, of B if bit 1 is.

    report: elements at risk, non-finite vectors, blocks that have ended, doubtful elements of the
    product that is running, and of the last one. Run by one thread.
    """
    for i, value in ((0, counts[0]), (1, counts[1]), (2, Uint64(0)), (4, counts[2])):
        simt.element(report, i)[0] = value
    cute.arch.store(report + 3, Uint64(0), sem="relaxed", scope="gpu")
    for side in cutlass.range_constexpr(2):
        if clear & (1 << side) != 0:
            for i in cutlass.range_constexpr(3):
                cute.arch.store(statuses[side] + i, Uint64(0), sem="relaxed", scope="gpu")


@cute.jit
def report_if_first(report: cute.Pointer, statuses: tuple, counts: tuple, clear: Int32) -> None:
    """Report if no block has anything to do: block 0 does so at once.

    To other blocks, cleared counts mean the same. This comes before all else in the machine code:
    the next kernel waits for it, and for the instructions to be fetched.
    """
    thread, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    if bx == 0 and thread == 0:
        report_counts(report, statuses, counts, clear)


@cute.jit
def report_if_last(report: cute.Pointer, statuses: tuple, counts: tuple, clear: Int32) -> None:
    """Report if this block is the last one to end."""
    thread, _, _ = cute.arch.thread_idx()
    blocks, _, _ = cute.arch.grid_dim()
    cute.arch.sync_threads()
    if thread == 0:
        cute.arch.fence_acq_rel_gpu()  # this block has finished reading the counts
        ended = cute.arch.atomic_add(report + 2, Uint64(1), sem="relaxed", scope="gpu")
        cute.arch.fence_acq_rel_gpu()
        if ended == blocks - 1:
            report_counts(report, statuses, counts, clear)


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
    doubts: cute.Pointer,
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
    segment: Int32,
    marked_a: Int32,
    most_doubts: Uint64,
):
    pdl_wait()
    statuses, arrays = (status_a, status_b), (a, b, c)
    strides = (row_a, col_a, row_b, col_b, row_c, col_c, batch_a, batch_b, batch_c)
    counts = read_counts(report, statuses)
    _, not_finite, doubted = counts
    results = report, statuses, counts, clear
    if not_finite == 0 and doubted == 0:
        report_if_first(*results)
    else:
        if not_finite > 0:
            risks = risk_a, risk_b
            add_not_finite(arrays, strides, (m, n, k, batch), risks, marked_a, alpha)
        if doubted > 0 and doubted <= most_doubts:
            add_doubtful(arrays, strides, (m, n, k, batch, segment), doubts, alpha)
        report_if_last(*results)


SIGNATURES = signatures(POINTERS, kernel)
