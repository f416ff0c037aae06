"""Compute doubtful sums of C again in float32, in the launch that has formed them.

Deep products leave them to a launch of their own (`listing`), as far as its list has room. Which
ones find room varies between runs, so the others are added up in the same order (`add_as_finish`).

A sum is doubtful if elements that lose bits may have spoiled it, or if its row of A or its column
of B has an infinity or a NaN: then its parts are zeros. The warp that holds it leaves it out, so
that C holds beta·D alone, and notes it in memory (`notes`). When the warps of a block have stored
all tiles, and one of them has noted a sum, they go through all notes of the block together.

Mostly there are few doubtful sums, or none. If a block of `mainloop` has many, it computes its
tiles in another way, where it can. Otherwise the warps take turns at the notes of a tile, and the
lanes share the terms of one sum after the other. If a note has more than `ALONE`, all warps take
turns at its sums. If it has more than `FEW`, or `UNLISTED` in a deep product, they take turns at
groups of columns (`recompute_groups`): a warp computes all sums of a group by tensor cores, in TF32
as `direct` does, and adds those that are doubtful. Where elements are too small for that, or a sum
is not finite, it multiplies and adds in float32.
"""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels import atomics
from gemmlab.kernels.gemm.sm90.config import FINISH_WARPS, PAIRS
from gemmlab.kernels.gemm.sm90.notes import UNLISTED, Doubts, Notes, Share, lowest
from gemmlab.kernels.gemm.sm90.recompute_groups import add_groups

FEW = 48  # sums of a note that are computed one by one
SUMS = 8  # of products of two elements, per lane
GROUP = 8  # sums that a block of `finish` computes together
DEPTH = 32 // GROUP * SUMS  # terms of each of them that a warp reads at once


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


@cute.jit
def add_doubtful(
    doubts: Doubts,
    count: Int32,
    share: Share,
    pairs: cutlass.Constexpr,
    factors: Factors,
    item: Int32,
    mC: cute.Tensor,
    alpha: Float32,
    notes: Notes,
) -> None:
    """C += alpha·A·B where sums are doubtful, in the warp's share of them.

    count: of all warps' shares.
    """
    if share.first == 0 and cute.arch.lane_idx() == 0:
        atomics.add(notes.number, Uint64(count))
    (a, b, ends), (m, n) = factors, mC.shape
    strides_a = (a.ld, Int64(1)) if a.major == "k" else (Int64(1), a.ld)
    strides_b = (Int64(1), b.ld) if b.major == "k" else (b.ld, Int64(1))
    mA = cute.make_tensor(a.start + item * a.step, cute.make_layout((m, ends[1]), stride=strides_a))
    mB = cute.make_tensor(b.start + item * b.step, cute.make_layout((ends[1], n), stride=strides_b))
    if count > cutlass.select_(notes.room > 0, Int32(UNLISTED), Int32(FEW)):
        add_groups(doubts, share, pairs, mA, mB, mC, ends, alpha)
    else:
        add_each(doubts, share, mA, mB, mC, ends, alpha, notes.room > 0)


@cute.jit
def add_each(
    doubts: Doubts,
    share: Share,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mC: cute.Tensor,
    ends: tuple,
    alpha: Float32,
    deep: Boolean,
) -> None:
    """Compute one sum after the other, together with the other lanes.

    deep: whether `finish` computes such sums, too.
    """
    bits, words = doubts.bits, cute.size(doubts.bits)
    others = share.first  # sums before the warp's next one
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
                if others == 0:
                    place = at, first + i // 2 * 8 + i % 2
                    if deep:
                        add_as_finish(mA, mB, mC, place, ends, alpha)
                    else:
                        add_element(mA, mB, mC, place, ends, alpha)
                    others = share.warps
                others -= 1


@cute.jit
def add_element(
    mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, at: tuple, ends: tuple, alpha: Float32
) -> None:
    """C[at] += alpha·A·B, over k between `ends`. Run by a warp."""
    lane = cute.arch.lane_idx()
    total = share_of_sum(mA, mB, at, ends, lane, 32, 32 * SUMS)
    for level in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, 16 >> level)
    if lane == 0:
        mC[at] += alpha * total


@cute.jit
def add_as_finish(
    mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, at: tuple, ends: tuple, alpha: Float32
) -> None:
    """The same as `add_element`, in the order in which `finish` adds the terms."""
    lane, total = cute.arch.lane_idx(), Float32(0)
    for first in cutlass.range_constexpr(0, FINISH_WARPS, GROUP):
        own = part_of_sum(mA, mB, at, ends, first + lane % GROUP)
        for i in cutlass.range_constexpr(GROUP):
            other = cute.arch.shuffle_sync(own, i)
            total = other if cutlass.const_expr(first + i == 0) else total + other
    if lane == 0:
        mC[at] += alpha * total


@cute.jit
def part_of_sum(mA: cute.Tensor, mB: cute.Tensor, at: tuple, ends: tuple, part: Int32) -> Float32:
    """One of the `FINISH_WARPS` parts of a sum that `finish` adds up, in order.

    Lanes that are multiples of `GROUP` apart share a part, and get the same result.
    """
    first = DEPTH * part + cute.arch.lane_idx() // GROUP
    total = share_of_sum(mA, mB, at, ends, first, 32 // GROUP, DEPTH * FINISH_WARPS)
    for distance in (GROUP, 2 * GROUP):
        total += cute.arch.shuffle_sync_bfly(total, distance)
    return Float32(total)


@cute.jit
def share_of_sum(
    mA: cute.Tensor,
    mB: cute.Tensor,
    at: tuple,
    ends: tuple,
    first: Int32,
    step: cutlass.Constexpr,
    stride: cutlass.Constexpr,
) -> Float32:
    """A lane's terms of the sum at a row and column, added in `SUMS` chains.

    They are the k between `ends`, `first` after the first one, then each `step` further, `SUMS`
    times; and all that lie multiples of `stride` after these.
    """
    (row, col), (start, end) = at, ends
    sums = [Float32(0) for _ in range(SUMS)]
    whole = end - (end - start) % stride
    for k in cutlass.range(start + first, whole, stride, unroll=2):
        for i in cutlass.range_constexpr(SUMS):
            sums[i] += mA[row, k + step * i] * mB[k + step * i, col]
    for i in cutlass.range_constexpr(SUMS):
        k = whole + first + step * i
        if k < end:
            sums[i] += mA[row, k] * mB[k, col]
    total = Float32(0)
    for i in cutlass.range_constexpr(SUMS):
        total += sums[i]
    return Float32(total)
