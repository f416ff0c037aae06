"""Compute doubtful sums of C again in float32, in the launch that has formed them.

A sum is doubtful if elements that lose bits may have spoiled it, or if its row of A or its column
of B has an infinity or a NaN: then its parts are zeros. The warp that holds it leaves it out, so
that C holds beta·D alone, and notes it in memory: for each tile a *note* says whether the warp has
any, and then each lane has bits for its own sums. When the warps of a block have stored all tiles,
and one of them has noted a sum, they go through all notes of the block together.

There are few doubtful sums, if any: a warp takes every eighth one of a note, say, and its lanes
share the terms. If there are more than `FEW` in a note, the warp takes every eighth group of
columns instead. Each lane computes all its sums there, and adds those that are doubtful.
"""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels import atomics
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import PAIRS

FEW = 48
SUMS = 8  # of products of two elements, per lane
COLUMNS = 2  # pairs of them, of a group
AHEAD = 4  # notes that a lane reads at once
MULTIPLYING = 5  # barrier of all threads that multiply
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


class Tiles(NamedTuple):
    """The tiles of a block: `first`, `first + step`, … below `count`."""

    first: Int32
    step: Int32
    count: Int32


class Share(NamedTuple):
    """Which doubtful sums a warp computes: every `warps`-th one from number `first` on."""

    first: Int32
    warps: cutlass.Constexpr


@cute.jit
def somewhere(found: Int32, threads: cutlass.Constexpr) -> Boolean:
    """Whether `found` is not 0 in one of the threads, which all wait for each other."""
    text = (
        "{ .reg .pred found; setp.ne.s32 found, {$r0}, 0; "
        f"barrier.cta.red.popc.aligned.u32 {{$w0}}, {MULTIPLYING}, {threads}, found; }}"
    )
    count = cute.arch.inline_ptx(text, write_only_types=[Int32], read_only_args=[found])
    return Int32(count) != 0


@cute.jit
def add_noted(notes: Notes, tiles: Tiles, each: cutlass.Constexpr, add: cutlass.Constexpr) -> None:
    """Call `add(tile, i)` if note `i` of a tile, of `each`, says that there are doubtful sums."""
    lane, count = cute.arch.lane_idx(), cute.ceil_div(tiles.count - tiles.first, tiles.step) * each
    for begin in cutlass.range(0, count, 32 * AHEAD, unroll=1):
        words = cute.make_rmem_tensor(AHEAD, Int32)
        for r in cutlass.range_constexpr(AHEAD):
            number, value = begin + (32 * r + lane), Uint32(0)
            if number < count:
                tile = tiles.first + number // each * tiles.step
                value = Uint32(simt.element(notes.start, tile * each + number % each)[0])
            words[r] = Int32(cute.arch.vote_ballot_sync(value != 0))
        for r in cutlass.range(AHEAD, unroll=1):
            left = Uint32(0)
            for i in cutlass.range_constexpr(AHEAD):
                if r == i:
                    left = Uint32(words[i])
            while left != 0:
                number = begin + 32 * r + lowest(left)
                left = left & (left - 1)
                add(tiles.first + number // each * tiles.step, number % each)


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
    share: Share,
    pairs: cutlass.Constexpr,
    factors: Factors,
    item: Int32,
    mC: cute.Tensor,
    alpha: Float32,
    number: cute.Pointer,
) -> None:
    """C += alpha·A·B where sums are doubtful, in the warp's share of them.

    number: where they are counted.
    """
    count = Int32(0)
    for i in cutlass.range_constexpr(cute.size(doubts.bits)):
        count += cute.arch.popc(doubts.bits[i])
    for level in cutlass.range_constexpr(5):
        count += cute.arch.shuffle_sync_bfly(count, 16 >> level)
    if share.first == 0 and cute.arch.lane_idx() == 0:
        atomics.add(number, Uint64(count))
    (a, b, ends), (m, n) = factors, mC.shape
    strides_a = (a.ld, Int64(1)) if a.major == "k" else (Int64(1), a.ld)
    strides_b = (Int64(1), b.ld) if b.major == "k" else (b.ld, Int64(1))
    mA = cute.make_tensor(a.start + item * a.step, cute.make_layout((m, ends[1]), stride=strides_a))
    mB = cute.make_tensor(b.start + item * b.step, cute.make_layout((ends[1], n), stride=strides_b))
    if count > FEW:
        add_groups(doubts, share, pairs, mA, mB, mC, ends, alpha)
    else:
        add_each(doubts, share, mA, mB, mC, ends, alpha)


@cute.jit
def add_each(
    doubts: Doubts,
    share: Share,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mC: cute.Tensor,
    ends: tuple,
    alpha: Float32,
) -> None:
    """Compute one sum after the other, together with the other lanes."""
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
                    add_element(mA, mB, mC, (at, first + i // 2 * 8 + i % 2), ends, alpha)
                    others = Int32(share.warps)
                others -= 1


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
    """Compute all sums of each thread in the warp's groups of columns; add those in doubt."""
    m, n = mC.shape
    rows = [cutlass.min(row, m - 1) for row in doubts.rows]
    sums = cute.make_rmem_tensor((2, 2, COLUMNS), Float32)
    chain = cute.make_rmem_tensor((2, 2, COLUMNS), Float32)
    places = [(e, h, j) for e in range(2) for h in range(2) for j in range(COLUMNS)]
    for group in cutlass.range(share.first, pairs // COLUMNS, share.warps, unroll=1):
        first = doubts.column + group * (8 * COLUMNS)
        columns = [[first + (8 * j + e) for e in range(2)] for j in range(COLUMNS)]
        inside = [[cutlass.min(column, n - 1) for column in pair] for pair in columns]
        sums.fill(0.0)
        for begin in cutlass.range(ends[0], ends[1], CHAIN, unroll=1):
            chain.fill(0.0)
            for kk in cutlass.range(begin, cutlass.min(begin + CHAIN, ends[1]), unroll=4):
                own = [mA[row, kk] for row in rows]
                others = [[mB[kk, column] for column in pair] for pair in inside]
                for e, h, j in places:
                    chain[e, h, j] += own[h] * others[j][e]
            sums.store(sums.load() + chain.load())
        start = group * COLUMNS
        for h in cutlass.range_constexpr(2):
            word = Uint32(0)
            for i in cutlass.range_constexpr(words_of(pairs)):
                if start // PAIRS == i:
                    word = Uint32(doubts.bits[h, i])
            for j in cutlass.range_constexpr(COLUMNS):
                for e in cutlass.range_constexpr(2):
                    bit = (start + j) % PAIRS * 2 + e
                    if (word >> Uint32(bit)) & Uint32(1) != 0:
                        at = doubts.rows[h], columns[j][e]
                        mC[at] += alpha * sums[e, h, j]
