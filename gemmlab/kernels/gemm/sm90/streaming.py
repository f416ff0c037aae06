"""Copy and split the streamed operand of `streamed`.

A tile in shared memory is (block_m vectors, LINE of k) as TMA writes it: in lines of 128 bytes, 32
elements along the contiguous axis, swizzled: 16-byte piece j of line i is at place j ^ i % 8. Then
loads have no bank conflicts.

In wgmma's fragment of A, a thread has two rows and, of each 16 values of k, four: 2·t, 2·t + 1, and
the same plus 8, where t is its lane modulo 4. Which vectors are the rows is free, so a load of 64
bits has two vectors of one k (MN-major), or two k of one vector (K-major). See `rows_of`.
"""

from typing import Any, NamedTuple

import cutlass
from cutlass import Boolean, Float16, Float32, Int32, Int64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import FP16X3, LINE
from gemmlab.kernels.gemm.sm90.sizes import MMA_K
from gemmlab.kernels.gemm.sm90.splitting import kept
from gemmlab.kernels.gemm.sm90.streamed_config import CHAIN, COPIERS

LENGTH = 32  # elements per line in shared memory
STEPS = CHAIN // MMA_K  # wgmma per chain and product of parts
LEAST = 2.0**FP16X3.floor  # smaller scaled elements are at risk
LEAST_BITS = (FP16X3.floor + 15) << 10  # … as float16
# The scale of a row is 2^(14 + 127 - e), where e is the biased exponent of its largest element in a
# chain. It and what undoes it are normal numbers, because e is raised to LEAST_EXPONENT.
SCALED, LEAST_EXPONENT = FP16X3.peak + 127, FP16X3.peak + 1


class Streamed(NamedTuple):
    """The streamed operand."""

    start: cute.Pointer
    ld: Int64
    step: Int64  # elements to the next matrix
    vectors: Int32
    k: Int32


class Splits(NamedTuple):
    """What a thread has of one chain of the streamed operand, split; see `split`."""

    fragments: tuple  # of the high and of the low part, ((2, 2, 2), 1, STEPS)
    undo: cute.Tensor  # (2) rows: what undoes their scales
    loss: cute.Tensor  # (2) rows: `undo` times the number of the thread's elements at risk


def rows_of(lane: Int32, config: Any) -> tuple:
    """The vector of a thread's first row, counted from the warp's first one; how far the second
    row's vector is from it."""
    q = lane // 4
    if config.streamed_major == "mn":
        return 2 * q, 1
    return q % 4 * 2 + q // 4, 8


@cute.jit
def spots_of(warp: Int32, lane: Int32, config: cutlass.Constexpr) -> list:
    """Where a thread's pairs begin in a tile: words, for each k of two, or each eight of 32."""
    t, (first, _) = lane % 4, rows_of(lane, config)
    if cutlass.const_expr(config.streamed_major == "mn"):
        vector = warp * 16 + first
        line = vector // LENGTH * LINE + 2 * t
        piece, rest = vector % LENGTH // 4, vector % 4
        return [kept((line + e) * LENGTH + (piece ^ 2 * t + e) * 4 + rest) for e in range(2)]
    line = (warp * 16 + first) * LENGTH
    return [kept(line + (2 * i + t // 2 ^ first) * 4 + t % 2 * 2) for i in range(4)]


def load(staged: cute.Pointer, chain: int, spots: list, config: Any) -> list:
    """A thread's elements of a chain of a tile: [step][k, k + 8][row][k, k + 1]."""
    found = []
    for step in range(chain * STEPS, (chain + 1) * STEPS):
        for eight in range(2):
            if config.streamed_major == "mn":
                at = (step * MMA_K + 8 * eight) * LENGTH
                pairs = [vectors.read(staged + spot + at, 2) for spot in spots]
                found.append([[pair[h] for pair in pairs] for h in range(2)])
            else:
                i, at = step % 2 * 2 + eight, step // 2 * (LENGTH * config.block_m)
                line = staged + spots[i] + at
                found.append([vectors.read(line + 8 * h * LENGTH, 2) for h in range(2)])
    return found


def keep(held: cute.Tensor, elements: list) -> None:
    """Store loaded elements to registers (2, 2, STEPS, 2 rows)."""
    for i, rows in enumerate(elements):
        for h, pair in enumerate(rows):
            for e in range(2):
                held[e, i % 2, i // 2, h] = pair[e]


@cute.jit
def split(held: cute.Tensor, splits: Splits) -> None:
    """Scale the elements of a chain, each row by a power of two, and split them into two parts.

    Four lanes share a row. Elements at risk are rare: they are counted only if there are any.
    """
    fragments, undo, loss = splits
    places = [(e, i, step) for e in (0, 1) for i in (0, 1) for step in range(STEPS)]
    sizes = [[cute.math.absf(held[*place, h]) for place in places] for h in range(2)]
    most = [simt.pairwise(row, cute.arch.fmax).bitcast(Int32) for row in sizes]
    for distance in (1, 2):
        others = [cute.arch.shuffle_sync_bfly(x, distance) for x in most]
        most = [cutlass.max(x, y) for x, y in zip(most, others, strict=True)]
    exponents = [cutlass.max(x >> 23, Int32(LEAST_EXPONENT)) for x in most]
    scales = [((SCALED + 127 - x) << 23).bitcast(Float32) for x in exponents]
    for h in cutlass.range_constexpr(2):
        undo[h] = ((exponents[h] - FP16X3.peak) << 23).bitcast(Float32)
        loss[h] = Float32(0)
        scaled = held[None, None, None, h].load() * scales[h]
        high = scaled.to(Float16)
        low = (scaled - high.to(Float32)).to(Float16)
        for part, values in enumerate((high, low)):
            fragments[part][(None, h, None), 0, None].store(values)
    words = cute.recast_tensor(fragments[0], Int32)
    least = simt.pairwise([magnitudes(words[i]) for i in range(cute.size(words))], smaller)
    if cutlass.min(least & 0xFFFF, least >> 16) < LEAST_BITS:
        for h in cutlass.range_constexpr(2):
            count = Int32(0)
            for size in sizes[h]:
                if size > 0 and size * scales[h] < LEAST:
                    count += 1
            loss[h] = Float32(count) * undo[h]


def magnitudes(word: Int32) -> Int32:
    """The magnitudes of two float16 numbers."""
    return _halves("abs.f16x2 {$w0}, {$r0};", word)


def smaller(a: Int32, b: Int32) -> Int32:
    """The smaller ones of two float16 numbers each."""
    return _halves("min.f16x2 {$w0}, {$r0}, {$r1};", a, b)


def _halves(text: str, *words: Int32) -> Int32:
    return cute.arch.inline_ptx(text, write_only_types=[Int32], read_only_args=list(words))


@cute.jit
def is_aligned(streamed: Streamed) -> Boolean:
    """Whether TMA can copy the operand: all lines begin at multiples of 16 bytes, in order."""
    steps = streamed.ld > 0 and streamed.step >= 0 and streamed.step % 4 == 0
    return simt.allows_quads(streamed.start, streamed.ld) and steps


@cute.jit
def copy_tile(
    streamed: Streamed,
    staged: cute.Pointer,
    item: Int32,
    origin: tuple,
    thread: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Start the copies of one of COPIERS threads of a tile of an operand that is not aligned.

    They are of single elements; neighboring threads copy neighbors. Outside the matrix are zeros.
    origin: the first vector and k.
    """
    lines, length, along, across = config.block_m, LINE, 1, 0  # of the tile, if it is K-major
    if cutlass.const_expr(config.streamed_major == "mn"):
        lines, length, along, across = LINE, config.block_m, 0, 1
    extents = streamed.vectors, streamed.k
    left = extents[along] - origin[along], extents[across] - origin[across]
    base = streamed.start + item * streamed.step + origin[across] * streamed.ld + origin[along]
    step = COPIERS // length  # lines at a time
    element, first = thread % length, thread // length
    source, target = base + (first * streamed.ld + element), staged + first * LENGTH + element % 4
    target += element // LENGTH * lines * LENGTH
    spot = target, element % LENGTH // 4 ^ first
    rounds, jump = lines // (8 * step), step * streamed.ld
    edge = base, element < left[0], left[1] - first
    if cutlass.const_expr(config.streamed_major == "mn"):
        copy_lines(source, spot, rounds, step, jump, edge)  # without these tests, it is slower
    elif left[0] >= length and left[1] >= lines:
        copy_lines(source, spot, rounds, step, jump, None)
    else:
        copy_lines(source, spot, rounds, step, jump, edge)


@cute.jit
def copy_lines(
    source: cute.Pointer,
    spot: tuple,
    rounds: cutlass.Constexpr,
    step: cutlass.Constexpr,
    jump: Int64,
    edge: tuple | None,
) -> None:
    """Start the copies of an element of every `step`-th line, eight per round.

    spot: where the first one goes: in a piece of 16 bytes, whose number follows. jump: from one
    element to the next. edge: an address that can be read, whether the column is inside the matrix,
    and how many lines are; None: all are inside.
    """
    target, piece = spot
    for eight in cutlass.range(rounds, unroll=1):
        for j in cutlass.range_constexpr(8):
            # first + step·j: both have bits of their own
            at = target + (j * step * LENGTH + (piece ^ j * step % 8) * 4)
            if cutlass.const_expr(edge is None):
                vectors.copy_bytes(source.toint(), at, 4)
            else:
                elsewhere, column, count = edge
                inside = column and (8 * eight + j) * step < count
                address = cutlass.select_(inside, source.toint(), elsewhere.toint())
                vectors.copy_bytes(address, at, 4, inside)
            source += jump
        target += 8 * step * LENGTH
