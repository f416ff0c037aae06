"""Compute doubtful sums in groups of columns by tensor cores, in TF32 as `direct` does."""

import cutlass
from cutlass import Boolean, Float32, Int32, Uint32, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm.sm90.config import INFINITY, PAIRS
from gemmlab.kernels.gemm.sm90.notes import Doubts, Share, words_of
from gemmlab.kernels.gemm.sm90.splitting import large_part

COLUMNS = 2  # pairs of them, of a group
SMALLEST = 2.0**-101  # of an element whose TF32 parts lose no bits but the last two
CHAIN = 32  # terms that are added to a sum of their own first
STEP = 8  # of them, which a tensor core's instruction adds


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
