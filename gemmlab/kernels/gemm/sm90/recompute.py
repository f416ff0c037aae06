"""Compute doubtful sums of C again in float32, in the launch that has formed them.

Deep products leave them to a launch of their own (`listing`), as far as its list has room. It
varies which ones find room, so the others are computed to the same bits (`add_as_finish`).

A sum is doubtful if elements that lose bits may have spoiled it, or if its row of A or its column
of B has an infinity or a NaN: then its parts are zeros. The warp that holds it leaves it out, so
that C holds beta·D alone, and notes it in memory: for each tile a *note* says whether the warp has
any, and then each lane has bits for its own sums. When the warps of a block have stored all tiles,
and one of them has noted a sum, they go through all notes of the block together.

Mostly there are few doubtful sums, or none. If a block of `mainloop` has many, it computes its
tiles in another way, where it can. Otherwise the warps take turns at the notes of a tile, and the
lanes share the terms of one sum after the other. If a note has more than `ALONE`, all warps take
turns at its sums. If it has more than `FEW`, or `UNLISTED` in a deep product, they take turns at
groups of columns: a warp computes all sums of a group by tensor cores, in TF32 as `direct` does,
and adds those that are doubtful. Where elements are too small for that, or a sum is not finite, it
multiplies and adds in float32.
"""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels import atomics, vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import FINISH_WARPS, PAIRS
from gemmlab.kernels.gemm.sm90.splitting import large_part

ALONE, FEW = 8, 48
UNLISTED = 512  # a note with more sums is not listed
SUMS = 8  # of products of two elements, per lane
GROUP = 8  # sums that a block of `finish` computes together
DEPTH = 32 // GROUP * SUMS  # terms of each of them that a warp reads at once
COLUMNS = 2  # pairs of them, of a group
AHEAD = 4  # notes that a lane reads at once
MULTIPLYING = 5  # barrier of the threads that multiply, or of all
INFINITY = float("inf")
SMALLEST = 2.0**-101  # of an element whose TF32 parts lose no bits but the last two
CHAIN = 32  # terms that are added to a sum of their own first
STEP = 8  # of them, which a tensor core's instruction adds


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
    """One word per warp and tile: the number of doubtful sums. The bits of all notes follow, 32
    lanes per word.

    Then comes the list of sums that are left to `finish`: for each, (item·m + row)·n + column.
    """

    start: cute.Pointer  # Uint32
    count: Int32  # of warps times tiles
    number: cute.Pointer  # counts the doubtful sums of all products
    room: Int32  # of the list; 0: no sum is left


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
    """Store the bits of the thread's sums. Returns how many doubtful ones the warp has."""
    count = Int32(0)
    for i in cutlass.range_constexpr(cute.size(bits)):
        at = notes.count + (Int64(which) * cute.size(bits) + i) * 32 + cute.arch.lane_idx()
        simt.element(notes.start, at)[0] = bits[i]
        count += Int32(cute.arch.popc(bits[i]))
    for level in cutlass.range_constexpr(5):
        count += cute.arch.shuffle_sync_bfly(count, 16 >> level)
    return Int32(count)


@cute.jit
def note(notes: Notes, which: Int32, doubtful: Int32) -> None:
    """Store how many doubtful sums the warp has in a tile."""
    if cute.arch.lane_idx() == 0:
        simt.element(notes.start, which)[0] = Uint32(doubtful)


class Tiles(NamedTuple):
    """The tiles of a block: `first`, `first + step`, … below `count`."""

    first: Int32
    step: Int32
    count: Int32


class Share(NamedTuple):
    """Which doubtful sums a warp computes: every `warps`-th one from number `first` on."""

    first: Int32
    warps: Int32


@cute.jit
def threads_with(holds: Boolean, threads: cutlass.Constexpr) -> Int32:
    """For how many of the threads it holds. They wait for each other."""
    text = (
        "{ .reg .pred holds; setp.ne.s32 holds, {$r0}, 0; "
        f"barrier.cta.red.popc.aligned.u32 {{$w0}}, {MULTIPLYING}, {threads}, holds; }}"
    )
    count = cute.arch.inline_ptx(text, write_only_types=[Int32], read_only_args=[Int32(holds)])
    return Int32(count)


@cute.jit
def add_noted(
    notes: Notes,
    tiles: Tiles,
    each: cutlass.Constexpr,
    warp: Int32,
    warps: cutlass.Constexpr,
    add: cutlass.Constexpr,
) -> None:
    """Call `add(tile, i, count, share)` if note `i` of a tile, of `each`, has sums for the warp."""
    # One warp lists all sums of a note.
    alone = cutlass.select_(notes.room > 0, Int32(UNLISTED), Int32(ALONE))
    lane, count = cute.arch.lane_idx(), cute.ceil_div(tiles.count - tiles.first, tiles.step) * each
    for begin in cutlass.range(0, count, 32 * AHEAD, unroll=1):
        words = cute.make_rmem_tensor(AHEAD, Int32)
        for r in cutlass.range_constexpr(AHEAD):
            number, value = begin + (32 * r + lane), Uint32(0)
            if number < count:
                tile = tiles.first + number // each * tiles.step
                value = Uint32(simt.element(notes.start, tile * each + number % each)[0])
            words[r] = Int32(value)
        for r in cutlass.range(AHEAD, unroll=1):
            word = Int32(0)
            for i in cutlass.range_constexpr(AHEAD):
                if r == i:
                    word = Int32(words[i])
            left = Uint32(cute.arch.vote_ballot_sync(word != 0))
            while left != 0:
                i = lowest(left)
                left = left & (left - 1)
                number, doubtful = begin + 32 * r + i, cute.arch.shuffle_sync(word, i)
                share = Share(warp, Int32(warps))
                if doubtful <= alone:
                    share = Share(Int32(0), Int32(1))
                if doubtful > alone or number % warps == warp:
                    tile = tiles.first + number // each * tiles.step
                    add(tile, number % each, doubtful, share)


@cute.jit
def bits_of(notes: Notes, which: Int32, pairs: cutlass.Constexpr) -> cute.Tensor:
    """The bits of a note for the thread's lane, (2, words)."""
    bits = cute.make_rmem_tensor((2, words_of(pairs)), Uint32)
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


@cute.jit
def add_groups(
    doubts: Doubts,
    share: Share,
    pairs: cutlass.Constexpr,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mC: cute.Tensor,
    ends: tuple,
    alpha: Float32,
) -> None:
    """Compute all sums in the warp's groups of columns; add those in doubt."""
    sums = cute.make_rmem_tensor((2, 2, COLUMNS), Float32)
    wanted = cute.make_rmem_tensor((2, 2, COLUMNS), Int32)
    places = [(e, h, j) for e in range(2) for h in range(2) for j in range(COLUMNS)]
    for group in cutlass.range(share.first, pairs // COLUMNS, share.warps, unroll=1):
        first, start = doubts.column + group * (8 * COLUMNS), group * COLUMNS
        for h in cutlass.range_constexpr(2):
            word = Uint32(0)
            for i in cutlass.range_constexpr(words_of(pairs)):
                if start // PAIRS == i:
                    word = Uint32(doubts.bits[h, i])
            for j in cutlass.range_constexpr(COLUMNS):
                for e in cutlass.range_constexpr(2):
                    wanted[e, h, j] = Int32(word >> Uint32((start + j) % PAIRS * 2 + e)) & 1
        sound = multiply_group(sums, doubts.rows, first, mA, mB, ends)
        for place in places:
            if wanted[place] != 0 and not cute.math.absf(sums[place]) < INFINITY:
                sound = Boolean(False)
        if cute.arch.vote_ballot_sync(not sound) != 0:
            add_up_group(sums, doubts.rows, first, mA, mB, ends)
        for e, h, j in places:
            if wanted[e, h, j] != 0:
                mC[doubts.rows[h], first + (8 * j + e)] += alpha * sums[e, h, j]


@cute.jit
def multiply_group(
    sums: cute.Tensor, rows: list, first: Int32, mA: cute.Tensor, mB: cute.Tensor, ends: tuple
) -> Boolean:
    """Sums of a group of columns by tensor cores. Returns whether no element was too small.

    In the fragments of m16n8k8, lane 4·g + t has of A the rows g and k t and t + 4, of B the
    column g and the same k, and of the sums the rows g and columns 2·t and 2·t + 1.
    """
    (m, _), (_, n) = mA.shape, mB.shape
    g, t = cute.arch.lane_idx() // 4, cute.arch.lane_idx() % 4
    own = [cutlass.min(row, m - 1) for row in rows]
    columns = [cutlass.min(first - 2 * t + (8 * j + g), n - 1) for j in range(COLUMNS)]
    chain = cute.make_rmem_tensor((2, 2, COLUMNS), Float32)
    least = cute.make_rmem_tensor(1, Float32)
    sums.fill(0.0)
    least.fill(INFINITY)
    for begin in cutlass.range(ends[0], ends[1], CHAIN, unroll=1):
        chain.fill(0.0)
        for k in cutlass.range(begin, cutlass.min(begin + CHAIN, ends[1]), STEP, unroll=2):
            at = [cutlass.min(k + t + 4 * i, ends[1] - 1) for i in range(2)]
            inside = [k + t + 4 * i < ends[1] for i in range(2)]
            a = [
                vectors.either(inside[i], mA[own[h], at[i]], Float32(0))
                for i in range(2)
                for h in range(2)
            ]
            high_a, low_a = split_elements(a, least)
            for j in cutlass.range_constexpr(COLUMNS):
                b = [vectors.either(inside[i], mB[at[i], columns[j]], Float32(0)) for i in range(2)]
                high_b, low_b = split_elements(b, least)
                found = [Float32(0) for _ in range(4)]
                for x, y in ((low_a, low_b), (low_a, high_b), (high_a, low_b), (high_a, high_b)):
                    found = multiply_step(x, y, found)
                for i in cutlass.range_constexpr(4):
                    chain[i % 2, i // 2, j] += found[i]
        sums.store(sums.load() + chain.load())
    return least[0] >= SMALLEST


def split_elements(elements: list, least: cute.Tensor) -> tuple:
    """The bits of high and low TF32 parts. least: the smallest magnitude so far, except 0."""
    high = [large_part(x) for x in elements]
    low = [large_part(x - y) for x, y in zip(elements, high, strict=True)]
    for x in elements:
        size = cute.math.absf(x)
        least[0] = cute.arch.fmin(least[0], vectors.either(size > 0, size, Float32(INFINITY)))
    return tuple([x.bitcast(Int32) for x in part] for part in (high, low))


def multiply_step(a: list, b: list, sums: list) -> list:
    """One m16n8k8: the sums and the products of TF32 parts."""
    text = (
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{$w0}, {$w1}, {$w2}, {$w3}}, "
        "{{$r0}, {$r1}, {$r2}, {$r3}}, {{$r4}, {$r5}}, {{$r6}, {$r7}, {$r8}, {$r9}};"
    )
    given = [*a, *b, *sums]
    found = cute.arch.inline_ptx(text, write_only_types=[Float32] * 4, read_only_args=given)
    return list(found)


@cute.jit
def add_up_group(
    sums: cute.Tensor, rows: list, first: Int32, mA: cute.Tensor, mB: cute.Tensor, ends: tuple
) -> None:
    """The same by multiply-adds in float32."""
    (m, _), (_, n) = mA.shape, mB.shape
    own = [cutlass.min(row, m - 1) for row in rows]
    columns = [[cutlass.min(first + (8 * j + e), n - 1) for e in range(2)] for j in range(COLUMNS)]
    chain = cute.make_rmem_tensor((2, 2, COLUMNS), Float32)
    sums.fill(0.0)
    for begin in cutlass.range(ends[0], ends[1], CHAIN, unroll=1):
        chain.fill(0.0)
        for k in cutlass.range(begin, cutlass.min(begin + CHAIN, ends[1]), unroll=4):
            a = [mA[row, k] for row in own]
            b = [[mB[k, column] for column in pair] for pair in columns]
            for j in cutlass.range_constexpr(COLUMNS):
                for e in cutlass.range_constexpr(2):
                    for h in cutlass.range_constexpr(2):
                        chain[e, h, j] += a[h] * b[j][e]
        sums.store(sums.load() + chain.load())
