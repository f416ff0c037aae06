"""Split float32 elements into two TF32 parts, for `direct`.

A warp that multiplies splits its 16 rows of A; their parts stay in the registers from which wgmma
reads them. Other warps split B, each one or two *jobs* of 512 elements: 16 columns × 32 of k, or 32
columns × 16 of k if B is MN-major. Parts of B go to shared memory; a thread that copies four
columns at a time (MN-major) transposes in its registers. Each warp also copies the elements that it
splits, four at a time if they are aligned.
"""

from typing import Any, NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint32, cute
from cutlass.cute.nvgpu import warpgroup

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK
from gemmlab.kernels.gemm.sm90.sizes import WARPGROUP
from gemmlab.kernels.gemm.sm90.tiles import swizzled

PARTS = 2
ROWS = 16  # of A per warp
WARPS = WARPGROUP // 32  # that split B
FAR = WARPS * 512  # words in the staged tile from a job to the warp's next one
# The low part of a smaller number may be subnormal, which tensor cores need not respect.
LEAST = 127 - 101  # exponent, biased


class Side(NamedTuple):
    """An operand as one tile sees it."""

    matrix: cute.Tensor  # (vectors, k), or (k, vectors) if MN-major
    major: str
    size: int  # vectors per tile
    origin: Int32  # the tile's first vector


class Share(NamedTuple):
    """What one thread copies of each chunk of an operand: 16 of the elements that its warp splits.

    Four times four adjacent elements if they are aligned. If not, 16 single elements, chosen so
    that the lanes' elements are adjacent: each copy of the warp reads whole sectors. See
    `line_of_copy`.
    """

    which: int  # of operand A (0) or B
    first: tuple  # the warp's first vector in the tile, and its first k in the chunk
    vectors: int  # from the warp's first one to its last
    advance: Int64  # bytes to the next chunk
    along: Int32  # from the warp's first vector to that of the thread's first four
    depth: Int32  # from the warp's first k to that of the thread's first four
    lines: int  # from its first four to the next
    step: Int64  # the same in bytes
    target: Int32  # words in the staged tile
    target_step: int
    line: Int32  # of the thread's first single element, from the warp's first line on
    element: Int32  # its place in the line
    pitch: Int64  # bytes from line to line
    spots: tuple  # words in the staged tile, of the lane's single elements; see `spot_of_copy`
    active: Boolean  # whether the thread copies anything


def kept(value: Int32) -> Int32:
    """The value, in a register: a shuffle of each lane with itself.

    The compiler would compute an address again in every iteration, starting from the thread's
    number. That took a tenth of a chunk's time.
    """
    return cute.arch.shuffle_sync_bfly(value, 0)


def kept_distance(value: Int64) -> Int64:
    """The same of 64 bits."""
    return Int64(Uint32(kept(Int32(value)))) | Int64(kept(Int32(value >> 32))) << 32


@cute.jit
def kept_pointer(pointer: cute.Pointer) -> cute.Pointer:
    """A pointer to shared memory, aligned to 1024 bytes."""
    address = kept(Int32(pointer.toint()))
    return cute.make_ptr(pointer.value_type, address, pointer.memspace, assumed_align=1024)


@cute.jit
def share_of_a(ld: Int64, warp: Int32, lane: Int32, config: cutlass.Constexpr) -> Share:
    """The share of this warp's rows. Lines are permuted so that `split_a` reads different banks."""
    line, element = divmod_lane(lane, 0, config)
    if cutlass.const_expr(config.a_major == "k"):
        row, k = lane // 8, lane % 8 * 4
        lines, advance = 4, Int64(4 * CHUNK)
        target, target_step = row * CHUNK + (k ^ (row & 1) * 16), 4 * CHUNK
        spot, flip, half = line * CHUNK + element, line * 16, 16
    else:
        row, k = lane % 4 * 4, lane // 4
        lines, advance = 8, 4 * CHUNK * ld
        target, target_step = k * ROWS + (row ^ (k & 2) * 4), 8 * ROWS
        spot, flip, half = line * ROWS + element, line // 2 * 8, 8
    first, start = warp * ROWS, warp * (ROWS * CHUNK)
    spots = start + spot + flip, start + spot + half - flip
    own, step = (row, k), kept_distance(4 * lines * ld)
    own = (*own, lines, step, kept(start + target), target_step)
    own = (*own, line, element, 4 * ld, spots)
    return Share(0, (first, Int32(0)), ROWS, advance, *own, Boolean(True))


@cute.jit
def share_of_b(ld: Int64, job: Int32, lane: Int32, config: cutlass.Constexpr) -> Share:
    """The share of job number `job`; inactive if there is no such job."""
    active = job < config.jobs
    line, element = divmod_lane(lane, 1, config)
    start, target_step = job * 512, 128
    if cutlass.const_expr(config.b_major == "k"):
        # Eight adjacent lanes copy a vector's chunk. Of each 16 values of k, group q of four goes
        # where the lane that splits these 16 reads it: see `load_b`.
        q, half, other = lane % 4, lane // 4 % 2, lane // 8
        along, depth = other % 2 * 16 + other // 2 * 4, lane % 8 * 4
        lines, vectors, advance = 1, 24, Int64(4 * CHUNK)
        target, target_step = q * 128 + ((half + other * 2) ^ q * 2) * 4, 32
        first = start + element // 4 * 128 + element % 4
        spots = [first + (line // 2 + b ^ element // 4 * 8) for b in (0, 16)]
    else:
        along, depth = place(lane, config.b_major)
        depth, lines = (depth, 4) if config.transposes_k else (depth * 4, 1)
        vectors, advance = 32, 4 * CHUNK * ld
        target = lane * 4
        spots = [start + line * (32 if config.transposes_k else 128) + element]
    own, step = (along, depth), kept_distance(4 * lines * ld)
    own = (*own, lines, step, kept(start + target), target_step)
    own = (*own, line, element, 4 * ld, tuple(spots))
    return Share(1, corner_of(job, config.b_major), vectors, advance, *own, active)


def is_k_major(which: int, config: Any) -> bool:
    """Whether operand A (`which` = 0) or B is."""
    return (config.a_major, config.b_major)[which] == "k"


def lanes_per_line(which: int, config: Any) -> int:
    """The number of lanes that copy adjacent elements of an unaligned line: half of its length."""
    return 16 if which or config.a_major == "k" else ROWS // 2


def divmod_lane(lane: Int32, which: int, config: Any) -> tuple:
    """A lane's line, from the warp's first one on, and its place there.

    Lines are vectors if the operand is K-major, else they are k. The lanes' lines are neighbors, or
    16 apart in a K-major B, whose jobs have two times eight vectors.
    """
    lanes = lanes_per_line(which, config)
    apart = 16 if which and is_k_major(which, config) else 1
    return lane // lanes * apart, lane % lanes


def line_of_copy(which: int, i: int, config: Any) -> int:
    """How many lines a thread's i-th line of eight comes after its first one."""
    if which and is_k_major(which, config):
        return i
    return i * (32 // lanes_per_line(which, config))


def spot_of_copy(which: int, i: int, half: int, config: Any) -> tuple:
    """Where an element of that line goes in the staged tile: which of `spots`, and how far on."""
    if which == 0:
        return half, 64 * i
    if is_k_major(which, config):
        return i // 4, 4 * half + i % 4 * 32
    distance = i // 2 * 128 + i % 2 * 64 if config.transposes_k else i % 2 * 256 + i // 2 * 32
    return 0, distance + 16 * half


def note(least: cute.Tensor, values: list) -> None:
    """least: (1), the smallest nonzero magnitude so far: its bits, doubled, minus 1."""
    # Zero, which loses nothing, becomes the largest unsigned number.
    sizes = [Uint32(value.bitcast(Int32)) * 2 - 1 for value in values]
    least[0] = cutlass.min(least[0], simt.pairwise(sizes, cutlass.min))


def large_part(value: Float32) -> Float32:
    """A number rounded to TF32's 11 bits."""
    bits = (Uint32(value.bitcast(Int32)) + 0x1000) & Uint32(0xFFFFE000)
    return bits.bitcast(Float32)


def divisible(value: Float32) -> Float32:
    """The number, or the next one away from zero if it is odd: two parts hold it."""
    # Adds one to the last place. Unlike integer arithmetic, it keeps infinities and NaNs.
    above = value + value * Float32(2.0**-24 + 2.0**-34)
    return (Uint32(above.bitcast(Int32)) & Uint32(0xFFFFFFFE)).bitcast(Float32)


@cute.jit
def spots_of_a(major: cutlass.Constexpr, warp: Int32, lane: Int32) -> tuple:
    """Where a thread's elements begin in the staged tile of A: per half of k (16), or of rows (8).

    It has two rows and four of every 16 values of k: k and k + 4 of one wgmma step, then of the
    next.
    """
    row, t, first = lane // 4, lane % 4, warp * (ROWS * CHUNK)
    if cutlass.const_expr(major == "k"):
        spots = [row * CHUNK + ((k + t * 4) ^ (row & 1) * 16) for k in (0, 16)]
    else:
        spots = [t * ROWS + (row + r ^ (t & 2) * 4) for r in (0, 8)]
    return kept(first + spots[0]), kept(first + spots[1])


def load_a(major: str, staged: cute.Pointer, spots: tuple) -> list:
    """This thread's elements of the staged tile of A, in fours along k.

    The first two fours are of two rows; the others are of the same rows, 16 of k further on.
    """
    places = [(j % 2, j // 2 * 16) for j in range(2 * CHUNK // 16)]
    at = [staged + spot for spot in spots]
    if major == "k":
        return [vectors.read(at[k // 16] + 8 * CHUNK * r, 4) for r, k in places]
    return [
        [vectors.read(at[r] + (k + e) * ROWS, 1)[0] for e in range(0, 16, 4)] for r, k in places
    ]


def split_a(least: cute.Tensor, fragments: list, elements: list) -> None:
    """Split this thread's elements of A into `fragments` by part. See `spots_of_a`."""
    high = cute.recast_tensor(fragments[0], Float32)
    low = cute.recast_tensor(fragments[1], Float32)
    for j, four in enumerate(elements):
        note(least, four)
        for e, element in enumerate(four):
            i = (j // 2 * 2 + e // 2) * 4 + e % 2 * 2 + j % 2
            large = large_part(element)
            high[i], low[i] = large, element - large


def far_share(share: Share) -> Share:
    """The share of the job WARPS further on, 64 columns from that of `share`."""
    first = share.first[0] + 64, share.first[1]
    spots = tuple(spot + FAR for spot in share.spots)
    return share._replace(first=first, target=share.target + FAR, spots=spots)


def place(lane: Int32, major: str) -> tuple:
    """The lane's first vector in a job, and its first k.

    Eight lanes in a row store their parts on lines whose numbers differ modulo 8, or on the halves
    of four such lines: in different banks.
    """
    if major == "k":
        return (lane >> 1 & 1) * 16 + (lane >> 2 & 1) * 4 + (lane >> 3), (lane & 1) * 16
    return (lane & 7) * 4, lane >> 3


def corner_of(job: Int32, major: str) -> tuple:
    """The first vector and k of a job in the tile."""
    if major == "k":
        return job // 2 * 32 + job % 2 * 8, Int32(0)
    return job // 2 * 32, job % 2 * 16


@cute.jit
def spot_of_b(job: Int32, lane: Int32, config: cutlass.Constexpr) -> Int32:
    """Where a thread's first four parts of B go: words from the start of a buffer.

    The parts have 128-byte lines, whose 16-byte pieces are permuted as wgmma expects.
    """
    vector, k = corner_of(job, config.b_major)
    along, depth = place(lane, config.b_major)
    line = line_of(vector + along, config.block_n)
    k += depth if cutlass.const_expr(config.b_major == "k") else depth * 4
    return kept(line * CHUNK + (k ^ (line & 7) * 4))


@cute.jit
def source_of_b(job: Int32, lane: Int32) -> Int32:
    """Where the elements of B that a thread splits begin in the staged tile."""
    return kept(job * 512 + lane * 4)


def load_b(staged: cute.Pointer, spot: Int32, config: Any) -> list:
    """The elements of the staged tile of B that this thread splits: four times four.

    spot: of the first ones; see `source_of_b`. The lanes' fours are adjacent, in an order in which
    copies of a K-major B access different banks, too.
    """
    flips = [8 * i if config.b_major == "k" else 0 for i in range(4)]
    return [vectors.read(staged + ((spot ^ flip) + i * 128), 4) for i, flip in enumerate(flips)]


def split_b(
    least: cute.Tensor, elements: list, parts: cute.Pointer, spot: Int32, config: Any
) -> None:
    """Split this thread's elements of B; store their parts (PARTS, size, CHUNK)."""
    is_along_k = config.b_major == "k" and not config.transposes_k
    for v in range(4):
        four = elements[v] if is_along_k else [each[v] for each in elements]
        # K-major: of 16 of k of one vector, those at positions 4v to 4v + 3.
        to = spot ^ 4 * v if config.b_major == "k" else spot + v * (config.block_n // 4 * CHUNK)
        store_parts(least, four, to, parts, config)


def store_parts(
    least: cute.Tensor, four: list, spot: Int32, parts: cute.Pointer, config: Any
) -> None:
    """Split four elements and store them."""
    note(least, four)
    if config.products > 3:
        four = [divisible(value) for value in four]
    high = [large_part(value) for value in four]
    low = [value - large for value, large in zip(four, high, strict=True)]
    for part, values in enumerate((high, low)):
        target = cute.recast_ptr(parts, dtype=Float32) + (spot + part * config.block_n * CHUNK)
        vectors.write(target, values)


def line_of(vector: Any, size: int) -> Any:
    """The line of B's parts that holds a vector of the tile; see `vector_of`."""
    u, q = vector >> 2, vector & 3
    return q * (size // 4) + (u & -8) + (u & 3) * 2 + (u >> 2 & 1)


def vector_of(line: Any, size: int) -> Any:
    """The vector of a line of B's parts.

    Lines are ordered so that a thread's sums are those of four neighbors in C, and those of the
    four threads that share a row are adjacent.
    """
    p, q = line % (size // 4), line // (size // 4)
    return (p & -8) * 4 + (p & 1) * 16 + (p >> 1 & 3) * 4 + q


@cute.jit
def parts_of(pointer: cute.Pointer, config: cutlass.Constexpr) -> cute.Tensor:
    """The parts of B (block_n, CHUNK, buffers × parts) as wgmma reads them."""
    kind = warpgroup.SmemLayoutAtomKind.K_SW128
    atom = warpgroup.make_smem_layout_atom(kind, cutlass.TFloat32)
    shape = (config.block_n, CHUNK, config.buffers * PARTS)
    return swizzled(pointer, cute.tile_to_shape(atom, shape, (0, 1, 2)))
