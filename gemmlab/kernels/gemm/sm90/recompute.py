"""Compute doubtful sums of C again in float32, in the launch that has formed them.

A sum is doubtful if elements that lose bits may have spoiled it, or if its row of A or its column
of B has an infinity or a NaN: then its parts are zeros. The warp that holds it leaves it out, so
that C holds beta·D alone, and notes it in memory: for each tile a *note* says whether the warp has
any, and then each lane has bits for its own sums. When a warp has stored all its tiles, it goes
through its notes. In the loop over tiles, registers are too scarce for anything more than which
notes it has to read (`Pending`).

There are few doubtful sums, if any: the lanes of a warp share the terms of one after the other. If
a warp has more than `FEW` in a tile, each lane computes all its sums there, and adds those that are
doubtful.
"""

from typing import NamedTuple

import cutlass
from cutlass import Float32, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels import atomics
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import PAIRS

FEW = 48
SUMS = 8  # of products of two elements, per lane
CHAIN = 32  # terms that are added to a sum of their own first


class Factor(NamedTuple):
    """A float32 operand: a stack of matrices."""

    start: cute.Pointer
    ld: Int64  # elements from line to line
    step: Int64  # … from matrix to matrix
    major: str  # the axis along which lines run: "k" or "mn"


class Factors(NamedTuple):
    """What C is the product of, over the k between `ends`."""

    a: Factor
    b: Factor
    ends: tuple


class Notes(NamedTuple):
    """What warps note of their sums: of each warp and tile, a word; then bits, by word and lane."""

    start: cute.Pointer  # Uint32
    count: Int32  # of warps times tiles
    number: cute.Pointer  # counts the doubtful sums of the whole product


class Doubts(NamedTuple):
    """The doubtful sums of a thread: it has two rows, and pairs of columns, eight columns apart."""

    bits: cute.Tensor  # (2 rows, words): Uint32, a bit per sum of PAIRS pairs
    rows: list  # the two
    column: Int32  # the first one


def words_of(pairs: int) -> int:
    """Words with a bit for each sum of a thread in a row."""
    return -(-pairs // PAIRS)


@cute.jit
def note_bits(notes: Notes, which: Int32, bits: cute.Tensor) -> Int32:
    """Store the bits of the thread's sums. Returns whether the warp has doubtful ones."""
    own = Uint32(0)
    for i in cutlass.range_constexpr(cute.size(bits)):
        at = notes.count + (Int64(which) * cute.size(bits) + i) * 32 + cute.arch.lane_idx()
        simt.element(notes.start, at)[0] = bits[i]
        own |= bits[i]
    return Int32(cute.arch.vote_ballot_sync(own != 0) != 0)


@cute.jit
def note(notes: Notes, which: Int32, doubtful: Int32) -> None:
    """Store whether the warp has doubtful sums in a tile."""
    if cute.arch.lane_idx() == 0:
        simt.element(notes.start, which)[0] = Uint32(doubtful)


class Pending(NamedTuple):
    """Which of its tiles a warp has to look at again: a bit for each `group` of them in order.

    first, step: the numbers of the warp's tiles.
    """

    bits: cute.Tensor  # (1): Uint64
    first: Int32
    step: Int32
    group: Int32


def nothing_pending(first: Int32, count: Int32, step: Int32) -> Pending:
    """The state of a warp before its first tile. count: of the tiles of all blocks."""
    bits = cute.make_rmem_tensor(1, Uint64)
    bits.fill(0)
    return Pending(bits, first, step, cute.ceil_div(cute.ceil_div(count, step), 64))


@cute.jit
def add_pending(pending: Pending, tile: Int32) -> None:
    """The warp will look at a tile again."""
    group = (tile - pending.first) // pending.step // pending.group
    pending.bits[0] = pending.bits[0] | (Uint64(1) << Uint64(group))


@cute.jit
def next_pending(left: Uint64) -> tuple:
    """The number of the first group that is left, and the others."""
    lowest_bit = left & (~left + 1)
    low, high = Uint32(lowest_bit & 0xFFFFFFFF), Uint32(lowest_bit >> 32)
    group = lowest(low)
    if low == 0:
        group = 32 + lowest(high)
    return group, left & ~lowest_bit


@cute.jit
def bits_of(notes: Notes, which: Int32, pairs: cutlass.Constexpr) -> cute.Tensor:
    """The bits that the thread has noted, (2, words)."""
    bits = cute.make_rmem_tensor((2, words_of(pairs)), Uint32)
    bits.fill(0)
    if simt.element(notes.start, which)[0] != 0:
        for i in cutlass.range_constexpr(cute.size(bits)):
            at = notes.count + (Int64(which) * cute.size(bits) + i) * 32 + cute.arch.lane_idx()
            bits[i] = simt.element(notes.start, at)[0]
    return bits


@cute.jit
def lowest(word: Uint32) -> Int32:
    """The position of the lowest bit that is set."""
    return Int32(cute.arch.popc((word & (~word + 1)) - 1))


@cute.jit
def add_doubtful(
    doubts: Doubts,
    pairs: cutlass.Constexpr,
    factors: Factors,
    item: Int32,
    mC: cute.Tensor,
    alpha: Float32,
    number: cute.Pointer,
) -> None:
    """C += alpha·A·B where the warp's sums are doubtful. number: where they are counted."""
    own = Int32(0)
    for i in cutlass.range_constexpr(cute.size(doubts.bits)):
        own += cute.arch.popc(doubts.bits[i])
    if cute.arch.vote_ballot_sync(own > 0) != 0:
        count = own
        for level in cutlass.range_constexpr(5):
            count += cute.arch.shuffle_sync_bfly(count, 16 >> level)
        if cute.arch.lane_idx() == 0:
            atomics.add(number, Uint64(count))
        (a, b, ends), (m, n) = factors, mC.shape
        strides_a = (a.ld, Int64(1)) if a.major == "k" else (Int64(1), a.ld)
        strides_b = (Int64(1), b.ld) if b.major == "k" else (b.ld, Int64(1))
        mA = cute.make_tensor(
            a.start + item * a.step, cute.make_layout((m, ends[1]), stride=strides_a)
        )
        mB = cute.make_tensor(
            b.start + item * b.step, cute.make_layout((ends[1], n), stride=strides_b)
        )
        if count > FEW:
            add_all(doubts, pairs, mA, mB, mC, ends, alpha)
        else:
            add_each(doubts, mA, mB, mC, ends, alpha)


@cute.jit
def add_each(
    doubts: Doubts,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mC: cute.Tensor,
    ends: tuple,
    alpha: Float32,
) -> None:
    """Compute one sum after the other, together with the other lanes."""
    bits, words = doubts.bits, cute.size(doubts.bits)
    for which in cutlass.range(words, unroll=1):
        row, word, column = doubts.rows[0], Uint32(0), doubts.column
        for i in cutlass.range_constexpr(words):
            if which == i:
                row, word = doubts.rows[i % 2], Uint32(bits[i])
                column = doubts.column + i // 2 * (8 * PAIRS)
        holders = Uint32(cute.arch.vote_ballot_sync(word != 0))
        while holders != 0:
            lane = lowest(holders)
            holders = holders & (holders - 1)
            left = cute.arch.shuffle_sync(word, lane)
            at, first = cute.arch.shuffle_sync(row, lane), cute.arch.shuffle_sync(column, lane)
            while left != 0:
                i = lowest(left)
                left = left & (left - 1)
                add_element(mA, mB, mC, (at, first + i // 2 * 8 + i % 2), ends, alpha)


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
    for kk in cutlass.range(start + lane, whole, 32 * SUMS, unroll=2):
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
def add_all(
    doubts: Doubts,
    pairs: cutlass.Constexpr,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mC: cute.Tensor,
    ends: tuple,
    alpha: Float32,
) -> None:
    """Compute all sums of each thread, and add those that are doubtful."""
    m, n = mC.shape
    rows = [cutlass.min(row, m - 1) for row in doubts.rows]
    sums = cute.make_rmem_tensor((2, 2, pairs), Float32)
    chain = cute.make_rmem_tensor((2, 2, pairs), Float32)
    sums.fill(0.0)
    for begin in cutlass.range(ends[0], ends[1], CHAIN, unroll=1):
        chain.fill(0.0)
        for kk in cutlass.range(begin, cutlass.min(begin + CHAIN, ends[1]), unroll=1):
            own = [mA[row, kk] for row in rows]
            for j in cutlass.range_constexpr(pairs):
                for e in cutlass.range_constexpr(2):
                    column = cutlass.min(doubts.column + (8 * j + e), n - 1)
                    value = mB[kk, column]
                    for h in cutlass.range_constexpr(2):
                        chain[e, h, j] += own[h] * value
        sums.store(sums.load() + chain.load())
    for h in cutlass.range_constexpr(2):
        for j in cutlass.range_constexpr(pairs):
            for e in cutlass.range_constexpr(2):
                if doubts.bits[h, j // PAIRS] & Uint32(1 << (j % PAIRS * 2 + e)) != 0:
                    at = doubts.rows[h], doubts.column + (8 * j + e)
                    mC[at] += alpha * sums[e, h, j]
