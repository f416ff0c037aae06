"""The end of a tile of `streamed`: undo the packed operand's scales, store, check sums."""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import FAR, INFINITY, NOT_FINITE_RISK, PAIRS, STAGED_ROWS
from gemmlab.kernels.gemm.sm90.epilogue import counts_of, exponents_of, power
from gemmlab.kernels.gemm.sm90.notes import (
    Doubts,
    Notes,
    Share,
    bits_of,
    note,
    note_bits,
    words_of,
)
from gemmlab.kernels.gemm.sm90.recompute import Factors, add_doubtful
from gemmlab.kernels.gemm.sm90.shares import matrices
from gemmlab.kernels.gemm.sm90.staging import PITCH, store_staged
from gemmlab.kernels.gemm.sm90.streaming import rows_of

LARGE = 2.0**60  # sums of rows with larger factors may be infinite or NaN
ROWS = 16  # of a warp


class Place(NamedTuple):
    """Where a tile is."""

    item: Int32
    row: Int32  # of tiles
    column: Int32
    piece: Int32  # slice of k


class Losses(NamedTuple):
    """What the thread's two rows may lose; see `streaming.Splits`."""

    loss: cute.Tensor  # (2) of the thread's elements at risk: the sum over all chains
    most: cute.Tensor  # (2) the largest `undo` of a chain


class Output(NamedTuple):
    """C = factors[0] · A·B + factors[1] · D. `starts`, `strides` and `steps` are of C and of D."""

    starts: tuple
    strides: tuple  # of rows and columns
    steps: tuple  # elements to the next matrix
    slice_step: Int64  # elements of C to the next slice of k
    factors: tuple
    packed: tuple  # of the packed operand: exponents, risk, status; see `pack`
    item_stride: Int32  # 1; 0 if all items of the batch share the packed operand
    notes: Notes  # of doubtful sums
    doubt: Float32  # see `Scheme`
    operands: tuple  # the float32 ones: streamed and packed


@cute.jit
def extremes(output: Output) -> tuple:
    """The most elements at risk in a column of the packed operand, or more; whether all its scales
    are near 1 (see `config`)."""
    _, bad, most = counts_of(output.packed[2])
    risk = Float32(Int32(most))
    if bad > 0:
        risk = Float32(INFINITY)
    return risk, most < Uint64(FAR)


@cute.jit
def finish_tile(
    sums: cute.Tensor,
    losses: Losses,
    output: Output,
    staged: cute.Pointer,
    known: tuple,
    place: Place,
    which: Int32,
    shape: tuple,
    warp: Int32,
    config: cutlass.Constexpr,
) -> Int32:
    """Write the thread's elements of one tile of C. Returns how many of the warp's are doubtful.

    staged: `staged_bytes` of shared memory. known: `extremes`. which: see `Notes`.
    """
    own_rows = rows_of(cute.arch.lane_idx(), config)
    corner, at = places_of(place, warp, config)
    inside = corner[0] + ROWS <= shape[0] and corner[1] + config.block_n <= shape[1]
    found = leave_doubtful(
        sums, losses, output, known[0], place.item, at, which, shape, inside, config
    )
    item = place.item * output.item_stride
    first = exponents_of(output.packed[0], item, shape[1]).iterator + at[1]
    pairs = [vectors.read(first + 8 * j, 2) for j in range(config.block_n // 8)]
    if known[1]:
        scale_columns(sums, [[((e + 127) << 23).bitcast(Float32) for e in pair] for pair in pairs])
    else:
        # Two steps: 2^e itself may lie outside the range of float32.
        halves = [[e >> 1 for e in pair] for pair in pairs]
        rest = [
            [e - half for e, half in zip(*x, strict=True)] for x in zip(pairs, halves, strict=True)
        ]
        for exponents in (halves, rest):
            scale_columns(sums, [[power(e) for e in pair] for pair in exponents])
    alpha, beta = output.factors
    if alpha != 1:
        sums.store(sums.load() * alpha)
    mC, mD = targets_of(output, place, shape)
    if beta != 0:
        add_scaled(sums, mD, at, beta)
    if mC.stride[1] != 1:
        store_columns(sums, at, mC, inside, config)
    elif inside and mC.iterator.toint() % 8 == 0 and mC.stride[0] % 2 == 0:
        for h in cutlass.range_constexpr(2):
            start = mC.iterator + cute.crd2idx((at[0][h], at[1]), mC.layout)
            for j in cutlass.range_constexpr(config.block_n // 8):
                vectors.write(start + 8 * j, [sums[(e, h, j), 0, 0] for e in range(2)])
    else:
        own = staged + warp * (STAGED_ROWS * PITCH)
        store_staged(sums, own, corner, mC, own_rows)
    return found


@cute.jit
def places_of(place: Place, warp: Int32, config: cutlass.Constexpr) -> tuple:
    """The first row and column of a warp's sums; the thread's two rows, and its first column."""
    lane = cute.arch.lane_idx()
    first_row, apart = rows_of(lane, config)
    corner = place.row * config.block_m + warp * ROWS, place.column * config.block_n
    rows = [corner[0] + first_row + apart * h for h in range(2)]
    return corner, (rows, corner[1] + lane % 4 * 2)


@cute.jit
def targets_of(output: Output, place: Place, shape: tuple) -> tuple:
    """The matrix C, or a slice of it, and the matrix D of a tile."""
    steps = output.steps
    starts = (
        output.starts[0] + (place.item * steps[0] + place.piece * output.slice_step),
        output.starts[1] + place.item * steps[1],
    )
    return matrices(starts, shape, output.strides)


@cute.jit
def finish_doubtful(
    output: Output,
    place: Place,
    ends: tuple,
    which: Int32,
    count: Int32,
    share: Share,
    shape: tuple,
    warp: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Add doubtful sums of a tile to C, in this warp's share of those that `warp` has noted.

    ends: the first k of the sums and the one after the last.
    """
    _, (rows, column) = places_of(place, warp, config)
    mC, _ = targets_of(output, place, shape)
    pairs = config.block_n // 8
    doubts = Doubts(bits_of(output.notes, which, pairs), rows, column)
    rest = place.item, mC, output.factors[0], output.notes
    add_doubtful(doubts, count, share, pairs, Factors(*output.operands, ends), *rest)


def scale_columns(sums: cute.Tensor, factors: list) -> None:
    """Multiply the thread's sums by a factor for each of its columns, which come in pairs."""
    for j, pair in enumerate(factors):
        for e in range(2):
            for h in range(2):
                sums[(e, h, j), 0, 0] = sums[(e, h, j), 0, 0] * pair[e]


@cute.jit
def leave_doubtful(
    sums: cute.Tensor,
    losses: Losses,
    output: Output,
    risk: Float32,
    item: Int32,
    at: tuple,
    which: Int32,
    shape: tuple,
    inside: Boolean,
    config: cutlass.Constexpr,
) -> Int32:
    """Replace doubtful sums by 0 and note them; see `Scheme`. Returns how many the warp has.

    Sums are those of float32 elements times scaled ones. An element at risk of the streamed operand
    loses up to 2^-25 of what undoes its scale; one of the packed operand, up to 2^-25, and its
    factor is below 2^15 times the largest of a row's `undo`. So a sum is certain if it is at least
    `doubt` times its row's `loss` plus `most` times its column's number of elements at risk.
    Infinite sums and NaNs are doubtful, too. at: the thread's rows, and its first column. which:
    see `Notes`.
    """
    pairs = config.block_n // 8
    if not inside:  # sums outside C are 0; they must not look small
        for j in cutlass.range_constexpr(pairs):
            for e in cutlass.range_constexpr(2):
                for h in cutlass.range_constexpr(2):
                    if at[1] + 8 * j + e >= shape[1]:
                        sums[(e, h, j), 0, 0] = Float32(INFINITY)
    small = Boolean(False)
    lost = cute.make_rmem_tensor(2, Float32)
    for h in cutlass.range_constexpr(2):
        loss, most = losses.loss[h], losses.most[h]
        for distance in (1, 2):  # four lanes share a row
            loss += cute.arch.shuffle_sync_bfly(loss, distance)
        lost[h] = loss
        certain = output.doubt * (loss + risk * most)
        sizes = [cute.math.absf(sums[(e, h, j), 0, 0]) for j in range(pairs) for e in range(2)]
        suspect = simt.pairwise(sizes, cute.arch.fmin) < certain or most >= LARGE
        small = small or (at[0][h] < shape[0] and suspect)
    found = Int32(cute.arch.vote_ballot_sync(small) != 0)
    if found != 0:
        bits = cute.make_rmem_tensor((2, words_of(pairs)), Uint32)
        bits.fill(0)
        for h in cutlass.range_constexpr(2):
            if at[0][h] < shape[0]:
                for start in cutlass.range_constexpr(0, pairs, PAIRS):
                    bits[h, start // PAIRS] = doubtful_of(
                        sums[(None, h, None), 0, 0],
                        start,
                        at[1] + 8 * start,
                        (lost[h], losses.most[h]),
                        output,
                        item,
                        shape[1],
                    )
        found = note_bits(output.notes, which, bits)
    note(output.notes, which, found)
    return found


@cute.jit
def doubtful_of(
    sums: cute.Tensor,
    start: cutlass.Constexpr,
    first: Int32,
    row: tuple,
    output: Output,
    item: Int32,
    n: Int32,
) -> Uint32:
    """Replace the doubtful sums of PAIRS pairs of a row (2, pairs) by 0, from pair `start` on.

    Returns their bits. first: column of the first one. row: its `loss` and `most`.
    """
    numbers = exponents_of(output.packed[1], item * output.item_stride, n)
    doubtful = Uint32(0)
    for i in cutlass.range_constexpr(2 * min(PAIRS, sums.shape[1] - start)):
        at, col = (i % 2, start + i // 2), first + i // 2 * 8 + i % 2
        size, number = cute.math.absf(sums[at]), numbers[col]
        lost = output.doubt * (row[0] + Float32(cutlass.max(number, Int32(0))) * row[1])
        sound = size >= lost and size < INFINITY and number != NOT_FINITE_RISK
        if col < n and not sound:
            sums[at] = Float32(0)
            doubtful |= Uint32(1 << i)
    return doubtful


@cute.jit
def add_scaled(sums: cute.Tensor, mD: cute.Tensor, at: tuple, beta: Float32) -> None:
    """sums += beta·D for the thread's elements."""
    for h in cutlass.range_constexpr(2):
        for j in cutlass.range_constexpr(sums.shape[0][2]):
            for e in cutlass.range_constexpr(2):
                row, col = at[0][h], at[1] + 8 * j + e
                valid = row < mD.shape[0] and col < mD.shape[1]
                place = mD.iterator + cute.crd2idx((row, col), mD.layout)
                sums[(e, h, j), 0, 0] += beta * vectors.read_if(valid, place)


@cute.jit
def store_columns(
    sums: cute.Tensor, at: tuple, mC: cute.Tensor, inside: Boolean, config: cutlass.Constexpr
) -> None:
    """C = sums where its columns are contiguous: eight lanes store 32 or 64 bytes of one.

    A thread's two rows are neighbors if the streamed operand is MN-major.
    """
    start = mC.iterator + cute.crd2idx((at[0][0], at[1]), mC.layout)
    wide = inside and start.toint() % 8 == 0 and mC.stride[1] % 2 == 0
    if cutlass.const_expr(config.streamed_major != "mn"):
        wide = False
    for j in cutlass.range_constexpr(sums.shape[0][2]):
        for e in cutlass.range_constexpr(2):
            column = start + (8 * j + e) * mC.stride[1]
            two = [sums[(e, h, j), 0, 0] for h in range(2)]
            if wide:
                vectors.write(column, two)
            else:
                for h in cutlass.range_constexpr(2):
                    valid = at[0][h] < mC.shape[0] and at[1] + 8 * j + e < mC.shape[1]
                    vectors.write_if(valid, column + (at[0][h] - at[0][0]), two[h])
