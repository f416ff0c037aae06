"""Store a tile's sums by way of shared memory, so that a warp writes contiguous parts of rows.

wgmma leaves two neighboring elements in each of eight rows to a warp's threads. Stores from there
would touch eight rows per instruction, and L1 takes a cycle for each. So a warp copies a *piece* of
its sums, 16 rows and 32 columns, to shared memory, and eight lanes store 128 bytes of a row.

If rows of C are not aligned, the 128 bytes are shifted to begin where a sector of L2 does: writing
a part of a sector takes L2 as long as writing a whole one. The columns that a piece's stores leave
out are kept for the next piece, in a margin.
"""

import cutlass
from cutlass import Int32, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import MARGIN, PIECE, STAGED_ROWS

PITCH = MARGIN + PIECE  # floats; rows then begin eight banks apart: no access has conflicts
LANES = PIECE // 4  # that store a part of a row, four elements each
LINES = 32 // LANES  # rows that an instruction stores
ROUNDS = STAGED_ROWS // LINES
PAIRS = PIECE // 8  # of each thread's sums in a row of a piece


@cute.jit
def store_staged(
    sums: cute.Tensor,
    staged: cute.Pointer,
    corner: tuple,
    mC: cute.Tensor,
    rows: tuple | None = None,
) -> None:
    """C = sums for a warp's elements ((2, 2, n/8), 1, 1).

    staged: room for a piece in shared memory, of this warp. corner: row and column of the first of
    the warp's sums. rows: the thread's first row, from there on, and how far the second one is from
    it; None: those of wgmma.
    """
    if simt.allows_quads(mC.iterator, mC.stride[0]) and mC.shape[1] % 4 == 0:
        store_aligned(sums, staged, corner, mC, rows)
    else:
        store_shifted(sums, staged, corner, mC, rows)


@cute.jit
def row_of(corner: tuple, line: Int32, mC: cute.Tensor) -> tuple:
    """Where a row of the warp's sums begins, and how many columns of C follow."""
    row, column = corner[0] + line, corner[1]
    end = cutlass.select_(row < mC.shape[0], mC.shape[1] - column, Int32(0))
    return mC.iterator + cute.crd2idx((row, column), mC.layout), Int32(end)


@cute.jit
def stage(
    sums: cute.Tensor,
    staged: cute.Pointer,
    piece: cutlass.Constexpr,
    margin: cutlass.Constexpr,
    rows: tuple | None,
) -> None:
    """Copy a thread's sums of a piece to shared memory, and those of `margin` pairs before it."""
    lane, pairs = cute.arch.lane_idx(), sums.shape[0][2]
    first, end = max(0, PAIRS * piece - margin), min(pairs, PAIRS * (piece + 1))
    row, apart = (lane // 4, 8) if cutlass.const_expr(rows is None) else rows
    target = staged + (row * PITCH + MARGIN + lane % 4 * 2)
    cute.arch.sync_warp()  # the previous piece has been read
    for j in cutlass.range_constexpr(first, end):
        for r in cutlass.range_constexpr(2):
            at = apart * r * PITCH + 8 * (j - PAIRS * piece)
            vectors.write(target + at, [sums[(e, r, j), 0, 0] for e in range(2)])
    cute.arch.sync_warp()


@cute.jit
def store_aligned(
    sums: cute.Tensor, staged: cute.Pointer, corner: tuple, mC: cute.Tensor, own_rows: tuple | None
) -> None:
    """`store_staged` where each four elements of a row of C are 16-byte aligned."""
    lane, pieces = cute.arch.lane_idx(), sums.shape[0][2] // PAIRS
    line, four = lane // LANES, lane % LANES * 4
    source = staged + (line * PITCH + MARGIN + four)
    rows = [row_of(corner, line + LINES * i, mC) for i in range(ROUNDS)]
    targets = [start + four for start, _ in rows]
    held = []
    for piece in cutlass.range_constexpr(pieces + 1):
        if cutlass.const_expr(piece < pieces):
            stage(sums, staged, piece, 0, own_rows)
        # While the next piece is staged, the values of this one arrive.
        for i, values in enumerate(held):
            if four + (piece - 1) * PIECE < rows[i][1]:
                vectors.write(targets[i] + (piece - 1) * PIECE, values)
        if cutlass.const_expr(piece < pieces):
            held = [vectors.read(source + i * LINES * PITCH, 4) for i in range(ROUNDS)]


@cute.jit
def store_shifted(
    sums: cute.Tensor, staged: cute.Pointer, corner: tuple, mC: cute.Tensor, own_rows: tuple | None
) -> None:
    """`store_staged` for any alignment.

    A row is stored in groups of four elements. The first group begins at column -`shift`, where a
    sector begins.
    """
    lane, pieces = cute.arch.lane_idx(), sums.shape[0][2] // PAIRS
    line, four = lane // LANES, lane % LANES * 4
    rows = [row_of(corner, line + LINES * i, mC) for i in range(ROUNDS)]
    shifts = [shift_of(start) for start, _ in rows]
    source = staged + (line * PITCH + MARGIN + four)
    sources = [source + (i * LINES * PITCH - shifts[i]) for i in range(ROUNDS)]
    # In the first four of a row, and in the last ones, a lane per row stores what is in the tile.
    own, own_end = row_of(corner, lane % STAGED_ROWS, mC)
    shift, own_staged = shift_of(own), staged + (lane % STAGED_ROWS * PITCH + MARGIN)
    for piece in cutlass.range_constexpr(pieces):
        stage(sums, staged, piece, 1, own_rows)
        held = [[vectors.read(sources[i] + e, 1)[0] for e in range(4)] for i in range(ROUNDS)]
        for i in cutlass.range_constexpr(ROUNDS):
            column, (start, end) = piece * PIECE + four - shifts[i], rows[i]
            if column >= 0 and column + 3 < end:
                vectors.write(start + column, held[i])
            elif column >= 0 and column < end:
                store_single(held[i], start + column, column, end)
        if cutlass.const_expr(piece == 0):
            column = -(shift % 4)
            values = [vectors.read(own_staged + (column + e), 1)[0] for e in range(4)]
            if lane < STAGED_ROWS:
                store_single(values, own + column, column, own_end)
    column = pieces * PIECE - shift
    if lane >= STAGED_ROWS:
        column += 4
    own_end, at = cutlass.min(own_end, pieces * PIECE), column - (pieces - 1) * PIECE
    values = [vectors.read_if(column + e < own_end, own_staged + (at + e)) for e in range(4)]
    store_single(values, own + column, column, own_end)


def shift_of(start: cute.Pointer) -> Int32:
    """Elements from the beginning of a sector to an address."""
    return Int32(start.toint() >> 2) & (MARGIN - 1)


@cute.jit
def store_single(values: list, target: cute.Pointer, column: Int32, end: Int32) -> None:
    """Store those of four neighboring elements whose columns are from 0 to `end`, exclusive."""
    for e in cutlass.range_constexpr(4):
        vectors.write_if(column + e >= 0 and column + e < end, target + e, values[e])
