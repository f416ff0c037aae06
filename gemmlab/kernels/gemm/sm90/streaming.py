"""Copy and split the streamed operand of `streamed`.

A tile in shared memory is (block_m vectors, LINE of k) as TMA writes it: in lines of 128 bytes, 32
elements along the contiguous axis, swizzled: 16-byte piece j of line i is at place j ^ i % 8. Then
loads have no bank conflicts. If TMA cannot copy the operand, see `copy_tile`.

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
from gemmlab.kernels.gemm.sm90.streamed_config import CHAIN, COPIERS, FOUR

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
def spots_of(streamed: Streamed, warp: Int32, lane: Int32, config: cutlass.Constexpr) -> list:
    """Two numbers that say where a thread's elements are in a tile.

    If TMA has copied it, they are words where pairs begin: of a K-major one, the first, and that of
    an MN-major one for each k of two. Else the first word, and how far shifts are from the tile's:
    of the thread's vectors, or, in two bits each, of each k of two.
    """
    t, (first, _) = lane % 4, rows_of(lane, config)
    ld, vector = Int32(streamed.ld & 3), warp * 16 + first
    if cutlass.const_expr(config.streamed_major == "mn"):
        line = vector // LENGTH * LINE + 2 * t
        piece, rest = vector % LENGTH // 4, vector % 4
        spots = [(line + e) * LENGTH + (piece ^ 2 * t + e) * 4 + rest for e in range(2)]
        shifts = [(2 * t + e) * ld & 3 for e in range(2)]
        others = [2 * t * config.pitch + vector, shifts[0] + 4 * shifts[1]]
    else:
        spots = [vector * LENGTH + (t // 2 ^ first) * 4 + t % 2 * 2, Int32(0)]
        others = [vector * config.pitch + 2 * t, first * ld & 3]
    aligned = is_aligned(streamed)
    return [kept(cutlass.select_(aligned, x, y)) for x, y in zip(spots, others, strict=True)]


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
                line = staged + (spots[0] ^ 8 * i) + at
                found.append([vectors.read(line + 8 * h * LENGTH, 2) for h in range(2)])
    return found


def load_shifted(staged: cute.Pointer, shift: Int32, chain: int, spots: list, config: Any) -> list:
    """The same of a tile that TMA has not copied. shift: of its first line; see `copy_tile`."""
    first, own = spots
    if config.streamed_major == "mn":
        lines = [first + e * config.pitch + (shift + (own >> 2 * e) & 3) for e in range(2)]
        k_step, row_step = config.pitch, 1
    else:
        lines = [first + (shift + own & 3) + e for e in range(2)]
        k_step, row_step = 1, 8 * config.pitch
    found = []
    for step in range(chain * STEPS, (chain + 1) * STEPS):
        for eight in range(2):
            at = [staged + line + (step * MMA_K + 8 * eight) * k_step for line in lines]
            found.append([[vectors.read(x + h * row_step, 1)[0] for x in at] for h in range(2)])
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
def shift_of(line: cute.Pointer) -> Int32:
    """How many elements a line in device memory begins after a multiple of 16 bytes."""
    return Int32(line.toint() >> 2) & 3


@cute.jit
def copy_tile(
    streamed: Streamed,
    staged: cute.Pointer,
    item: Int32,
    origin: tuple,
    thread: Int32,
    config: cutlass.Constexpr,
) -> Int32:
    """Start the copies of one of COPIERS threads of a tile of an operand that is not aligned.

    Only from multiples of 16 bytes can 16 be copied at once. So of each line, all pieces of 16
    bytes are copied that have elements of the tile, without a swizzle. What they have before the
    tile remains unread; beyond the matrix are zeros. origin: the first vector and k. Returns the
    `shift_of` the tile's first line; tiles begin at multiples of four vectors and k.
    """
    length, along, across = LINE, 1, 0  # of the tile, if it is K-major
    if cutlass.const_expr(config.streamed_major == "mn"):
        length, along, across = config.block_m, 0, 1
    extents = streamed.vectors, streamed.k
    left = extents[along] - origin[along], extents[across] - origin[across]
    base = streamed.start + item * streamed.step + origin[across] * streamed.ld + origin[along]
    pieces, lines = length // FOUR, config.lines
    step = COPIERS // pieces  # lines at a time; a multiple of four, so their shifts are equal
    first, piece = thread // pieces, thread % pieces
    source, size = piece_of(base + first * streamed.ld, piece, left[0])
    target = staged + first * config.pitch + piece * FOUR
    jump, beyond = step * streamed.ld * 4, left[1] - first
    for eight in cutlass.range(lines // (8 * step), unroll=1):
        for j in cutlass.range_constexpr(8):
            own = cutlass.select_((8 * eight + j) * step < beyond, size, Int32(0))
            vectors.copy_part(source, target + j * step * config.pitch, own)
            source += jump
        target += 8 * step * config.pitch
    if thread < lines:  # the last piece of a line
        source, size = piece_of(base + thread * streamed.ld, Int32(pieces), left[0])
        own = cutlass.select_(thread < left[1], size, Int32(0))
        vectors.copy_part(source, staged + thread * config.pitch + length, own)
    return shift_of(base)


@cute.jit
def piece_of(line: cute.Pointer, piece: Int32, left: Int32) -> tuple:
    """The address of a piece, and how many of its bytes are to be copied. left: of the line."""
    before = piece * FOUR - shift_of(line)
    size = 4 * cutlass.max(cutlass.min(left - before, Int32(FOUR)), Int32(0))
    return line.toint() + before * 4, size
