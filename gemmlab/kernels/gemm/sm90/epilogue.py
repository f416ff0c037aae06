"""The end of a tile of C: undo the scaling of A and B, apply alpha and beta, store, check sums."""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import (
    FAR,
    INFINITY,
    NOT_FINITE_RISK,
    PAIRS,
    STAGED_ROWS,
    VECTOR_PITCH,
)
from gemmlab.kernels.gemm.sm90.listing import list_doubtful
from gemmlab.kernels.gemm.sm90.notes import (
    UNLISTED,
    Doubts,
    Notes,
    Share,
    bits_of,
    lowest,
    note,
    note_bits,
    words_of,
)
from gemmlab.kernels.gemm.sm90.recompute import Factors, add_doubtful
from gemmlab.kernels.gemm.sm90.staging import PITCH, store_staged

NO_LOSS = -1e38


class Output(NamedTuple):
    """C = alpha·A·B + beta·D for each item of a batch. Rows of C are contiguous. D may be C."""

    c: cute.Pointer
    ldc: Int64  # elements from row to row
    batch_c: Int64  # elements from item to item
    d: cute.Pointer
    row_d: Int64  # elements from row to row of D; any of these may be 0
    column_d: Int64  # … from column to column
    batch_d: Int64  # … from item to item
    alpha: Float32
    beta: Float32
    unscale_a: cute.Pointer  # exponents that undo the scaling of each row of A
    unscale_b: cute.Pointer  # … of each column of B
    item_stride_a: Int32  # 1; 0 if all items of the batch share A
    item_stride_b: Int32
    risk_a: cute.Pointer  # elements at risk in each row of A; negative: none
    risk_b: cute.Pointer  # … in each column of B
    shortfall_a: cute.Pointer  # see `config`
    shortfall_b: cute.Pointer
    notes: Notes  # of doubtful sums
    doubt: Float32  # see `Scheme`; 0: a sum is doubtful only if an operand is not finite
    depth: Int32  # k, of whole rows and columns
    factors: Factors
    statuses: tuple  # what `pack` has counted in A and in B


@cute.jit
def power(e: Int32) -> Float32:
    """2^e for e up to 127; 0 below the exponents of normal numbers."""
    return (cutlass.max(e + 127, Int32(0)) << 23).bitcast(Float32)


@cute.jit
def exponents_of(exponents: cute.Pointer, item: Int32, length: Int32) -> cute.Tensor:
    """The exponents of one item of a batch. Reads up to a tile past the end are safe."""
    pitch = cute.round_up(length, VECTOR_PITCH)
    return cute.make_tensor(exponents + Int64(item) * pitch, cute.make_layout(length))


@cute.jit
def unscale(
    sums: cute.Tensor,
    coords: cute.Tensor,
    exponents: tuple,
    are_near: Boolean,
    alpha: Float32,
) -> None:
    """sums = alpha·2^(ua + ub)·sums.

    exponents: pointers to ua of the tile's rows and ub of its columns, both 8-byte aligned. Those
    outside C are arbitrary. are_near: whether all others are at most `NEAR` in magnitude.
    """
    pairs, first = sums.shape[0][2], exponents[1] + coords[(0, 0, 0), 0, 0][1]
    rU = [vectors.read(exponents[0] + coords[(0, r, 0), 0, 0][0], 1)[0] for r in range(2)]
    cU = [vectors.read(first + 8 * j, 2) for j in range(pairs)]
    if are_near:
        for r in cutlass.range_constexpr(2):
            row = (rU[r] + 127) << 23
            for j in cutlass.range_constexpr(pairs):
                for e in cutlass.range_constexpr(2):
                    scale = (row + (cU[j][e] << 23)).bitcast(Float32)
                    sums[(e, r, j), 0, 0] = sums[(e, r, j), 0, 0] * scale
    else:
        for r in cutlass.range_constexpr(2):
            for j in cutlass.range_constexpr(pairs):
                for e in cutlass.range_constexpr(2):
                    # Two steps: 2^(ua + ub) itself may lie outside the range of float32.
                    exponent = rU[r] + cU[j][e]
                    half = exponent >> 1
                    value = sums[(e, r, j), 0, 0] * power(half) * power(exponent - half)
                    sums[(e, r, j), 0, 0] = value
    if alpha != 1:
        sums.store(alpha * sums.load())


@cute.jit
def add_scaled(
    sums: cute.Tensor, mD: cute.Tensor, corner: tuple, beta: Float32, wide: Boolean
) -> None:
    """sums += beta·D for the thread's elements ((2, 2, n/8), 1, 1).

    corner: row and column of the first. wide: whether D can be read in pairs, all inside.
    """
    m, n = mD.shape
    pairs = sums.shape[0][2]
    for r in cutlass.range_constexpr(2):
        row, col = corner[0] + 8 * r, corner[1]
        start = mD.iterator + cute.crd2idx((row, col), mD.layout)
        left = n - col if row < m else Int32(0)
        for j in cutlass.range_constexpr(pairs):
            if wide:
                pair = vectors.read(start + 8 * j, 2)
                for e in cutlass.range_constexpr(2):
                    sums[(e, r, j), 0, 0] += beta * pair[e]
            else:
                for e in cutlass.range_constexpr(2):
                    at = start + (8 * j + e) * mD.stride[1]
                    sums[(e, r, j), 0, 0] += beta * vectors.read_if(8 * j + e < left, at)


@cute.jit
def leave_doubtful(
    sums: cute.Tensor,
    output: Output,
    certain: Float32,
    item: Int32,
    at: tuple,
    which: Int32,
    sizes: tuple,
    inside: Boolean,
    peak: cutlass.Constexpr,
) -> Int32:
    """Replace doubtful sums by 0 and note them; see `Scheme`. Returns how many the warp has.

    certain: what the row and the column with the most elements at risk may lose. Few warps have a
    smaller sum; only these read the counts of their own rows and columns. Shortfalls are read only
    for sums that are small compared with these counts, too. at: row and column of the thread's
    first sum. Its two rows are 8 apart, as are its pairs of columns. which: see `Notes`.
    """
    m, n = sizes
    row0, col0 = at
    pairs = sums.shape[0][2]
    small = Boolean(False)
    if certain > 0:
        if not inside:  # sums outside C are 0; none is doubtful
            for j in cutlass.range_constexpr(pairs):
                for e in cutlass.range_constexpr(2):
                    for r in cutlass.range_constexpr(2):
                        if row0 + 8 * r >= m or col0 + 8 * j + e >= n:
                            sums[(e, r, j), 0, 0] = Float32(INFINITY)
        magnitudes = [cute.math.absf(sums[i]) for i in range(cute.size(sums))]
        small = simt.pairwise(magnitudes, cute.arch.fmin) < certain
    found = Int32(cute.arch.vote_ballot_sync(small) != 0)
    if found != 0:
        bits = cute.make_rmem_tensor((2, words_of(pairs)), Uint32)
        rA = exponents_of(output.risk_a, item * output.item_stride_a, m)
        rB = exponents_of(output.risk_b, item * output.item_stride_b, n)
        lost = [loss_of(rA[row0 + 8 * r], output.doubt) for r in range(2)]
        for r in cutlass.range_constexpr(2):
            for start in cutlass.range_constexpr(0, pairs, PAIRS):
                doubtful, count = Uint32(0), min(PAIRS, pairs - start)
                for i in cutlass.range_constexpr(2 * count):
                    col = col0 + 8 * (start + i // 2) + i % 2
                    value = sums[(i % 2, r, start + i // 2), 0, 0]
                    if cute.math.absf(value) < lost[r] + loss_of(rB[col], output.doubt):
                        doubtful |= Uint32(1 << i)
                first = row0 + 8 * r, col0 + 8 * start
                doubtful = without_large(doubtful, first, lost[r], output, item, sizes, peak)
                bits[r, start // PAIRS] = doubtful
                for i in cutlass.range_constexpr(2 * count):
                    if doubtful & Uint32(1 << i) != 0:
                        sums[(i % 2, r, start + i // 2), 0, 0] = Float32(0)
        found = note_bits(output.notes, which, bits)
    note(output.notes, which, found)
    return found


@cute.jit
def without_large(
    small: Uint32,
    at: tuple,
    lost: Float32,
    output: Output,
    item: Int32,
    sizes: tuple,
    peak: cutlass.Constexpr,
) -> Uint32:
    """Return the bits of those small sums whose terms may be small, too.

    small: a bit for each sum that may be doubtful, in pairs that are eight columns apart. at: row
    and column of the first. lost: what their row may lose.
    """
    m, n = sizes
    row, first = at
    rB = exponents_of(output.risk_b, item * output.item_stride_b, n)
    fA = exponents_of(output.shortfall_a, item * output.item_stride_a, m)
    fB = exponents_of(output.shortfall_b, item * output.item_stride_b, n)
    doubtful, left = small, small
    for _ in cutlass.range(cute.arch.popc(small), unroll=1):
        i = lowest(left)
        left = left & (left - 1)
        col = first + i // 2 * 8 + i % 2
        known = least_magnitude(fA[row] + fB[col], output.depth, peak)
        if known >= lost + loss_of(rB[col], output.doubt):
            doubtful &= ~(Uint32(1) << i)
    return doubtful


@cute.jit
def extremes(output: Output) -> tuple:
    """What the row and the column with the most elements at risk may lose (see `loss_of`), and
    whether all scales are near 1 (see `config`)."""
    (_, bad_a, most_a), (_, bad_b, most_b) = (counts_of(status) for status in output.statuses)
    loss = (Float32(Int32(most_a)) + Float32(Int32(most_b))) * output.doubt
    if bad_a + bad_b > 0:
        loss = Float32(INFINITY)
    return loss, cutlass.max(most_a, most_b) < Uint64(FAR)


def counts_of(status: cute.Pointer) -> list:
    """The three counts of an operand; see `pack`."""
    return [simt.element(status, i)[0] for i in range(3)]


@cute.jit
def computes(statuses: tuple, limits: tuple) -> Boolean:
    """Whether the number of elements at risk is one for which this kernel computes."""
    risk = simt.element(statuses[0], 0)[0] + simt.element(statuses[1], 0)[0]
    return risk >= limits[0] and risk <= limits[1]


@cute.jit
def least_magnitude(shortfall: Float32, depth: Int32, peak: cutlass.Constexpr) -> Float32:
    """A lower bound on the sum of the magnitudes of a sum's terms, or 0; see `Scheme`."""
    exponent = 2 * peak - 1 - Int32(shortfall)  # Int32 rounds down
    least = Float32(depth) * power(exponent)
    if exponent < 0:
        least = Float32(0)
    return least


@cute.jit
def loss_of(risk: Int32, doubt: Float32) -> Float32:
    """A vector's loss. A sum smaller than the losses of its row and column may be doubtful.

    With a vector that is not finite, every sum is doubtful; else with an empty one, none is.
    """
    loss = Float32(risk) * doubt
    if risk < 0:
        loss = Float32(NO_LOSS)
        if risk == NOT_FINITE_RISK:
            loss = Float32(INFINITY)
    return loss


@cute.jit
def exponents_at(output: Output, tile: tuple, sizes: tuple, config: cutlass.Constexpr) -> tuple:
    """Pointers to the exponents of a tile's rows and columns in memory. Both are aligned."""
    item, tile_m, tile_n = tile
    uA = exponents_of(output.unscale_a, item * output.item_stride_a, sizes[0])
    uB = exponents_of(output.unscale_b, item * output.item_stride_b, sizes[1])
    found = uA.iterator + tile_m * config.block_m, uB.iterator + tile_n * config.block_n
    return tuple([cute.make_ptr(Int32, x.toint(), x.memspace, assumed_align=16) for x in found])


@cute.jit
def finish_tile(
    sums: cute.Tensor,
    coords: cute.Tensor,
    output: Output,
    staged: cute.Pointer,
    known: tuple,
    exponents: tuple,
    tile: tuple,
    which: Int32,
    sizes: tuple,
    config: cutlass.Constexpr,
) -> Int32:
    """Write the thread's elements of one tile of C. Returns how many of the warp's are doubtful.

    coords: row and column of each sum within the tile. staged: `staged_bytes` of shared memory.
    known: `extremes`. exponents: see `unscale`. tile: batch item, tile row, tile column. which: see
    `Notes`.
    """
    certain, are_near = known
    item, tile_m, tile_n = tile
    m, n = sizes
    ldc = output.ldc
    mC = cute.make_tensor(
        output.c + item * output.batch_c, cute.make_layout((m, n), stride=(ldc, 1))
    )
    row0, col0 = tile_m * config.block_m, tile_n * config.block_n
    mD = cute.make_tensor(
        output.d + item * output.batch_d,
        cute.make_layout((m, n), stride=(output.row_d, output.column_d)),
    )
    inside = row0 + config.block_m <= m and col0 + config.block_n <= n
    wide = inside and mD.iterator.toint() % 8 == 0 and output.row_d % 2 == 0
    wide = wide and output.column_d == 1
    row, col = coords[(0, 0, 0), 0, 0]
    row, col = row0 + row, col0 + col
    rest = item, (row, col), which, sizes, inside, config.scheme.peak
    found = leave_doubtful(sums, output, certain, *rest)
    unscale(sums, coords, exponents, are_near, output.alpha)
    if output.beta != 0:
        add_scaled(sums, mD, (row, col), output.beta, wide)
    thread, _, _ = cute.arch.thread_idx()
    warp, lane = thread // 32, thread % 32
    own = staged + warp * (STAGED_ROWS * PITCH)
    store_staged(sums, own, (row - lane // 4, col - lane % 4 * 2), mC)
    return found


@cute.jit
def finish_doubtful(
    output: Output,
    at: tuple,
    pairs: cutlass.Constexpr,
    which: Int32,
    count: Int32,
    share: Share,
    sizes: tuple,
) -> None:
    """Add the `count` doubtful sums of a note to C, in the warp's share, or leave them to `finish`.

    at: item, row, and column of the first sum of those that the thread's lane has noted.
    """
    (item, row, col), (m, n) = at, sizes
    mC = cute.make_tensor(
        output.c + item * output.batch_c, cute.make_layout((m, n), stride=(output.ldc, 1))
    )
    doubts = Doubts(bits_of(output.notes, which, pairs), [row, row + 8], col)
    rest = output.factors, item, mC, output.alpha, output.notes
    left = Boolean(False)
    if output.notes.room > 0 and count <= UNLISTED:
        left = list_doubtful(doubts, output.notes, count, Int64(item) * m * n, n, pairs)
    if not left:
        add_doubtful(doubts, count, share, pairs, *rest)
