"""Split float32 elements into two TF32 parts, for `direct`.

A warp splits its 16 rows of A, and a *job* of 512 elements of B: 16 columns × 32 of k, or 32
columns × 16 of k if B is MN-major. It copies what it splits itself, each thread four elements at a
time. Parts of A stay in the registers that wgmma takes them from. Parts of B go to shared memory; a
thread that copies four columns at a time (MN-major) transposes in its registers.
"""

from typing import Any, NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint32, cute
from cutlass.cute.nvgpu import warpgroup

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK
from gemmlab.kernels.gemm.sm90.tiles import swizzled

PARTS = 2
ROWS = 16  # of A per warp
# The low part of a smaller number may be subnormal, which tensor cores need not respect.
LEAST = 127 - 101  # exponent, biased


class Side(NamedTuple):
    """An operand as one block sees it."""

    matrix: cute.Tensor  # (vectors, k), or (k, vectors) if MN-major
    major: str
    size: int  # vectors per tile
    origin: Int32  # the tile's first vector
    mixed: bool  # lines of its parts are in another order than its vectors; see `vector_of`


class Share(NamedTuple):
    """What one thread copies of an operand, four times four elements of each chunk.

    The address computations of a chunk are as few as can be: everything else is done once.
    """

    at: tuple  # line and element of its first four in the matrix, in the first chunk
    steps: tuple  # lines and elements to its next four
    first: Int64  # address of its first four
    step: Int64  # bytes
    advance: Int64  # bytes to the next chunk
    inside: Boolean  # its vectors are inside the matrix, and aligned for 128-bit copies
    target: Int32  # words in the staged tile
    target_step: int  # words
    active: Boolean  # whether the thread copies anything


def kept(value: Int32) -> Int32:
    """The value, in a register: a shuffle of each lane with itself.

    The compiler would compute an address again in every turn of the loop, from the thread's number
    on. That took a tenth of a chunk's time.
    """
    return cute.arch.shuffle_sync_bfly(value, 0)


@cute.jit
def kept_address(value: Int64) -> Int64:
    low, high = kept(Int32(value & 0xFFFFFFFF)), kept(Int32(value >> 32))
    return Int64(high) << 32 | Int64(Uint32(low))


@cute.jit
def share(
    side: Side,
    at: tuple,
    steps: tuple,
    span: tuple,
    target: Int32,
    target_step: cutlass.Constexpr,
    active: Boolean,
) -> Share:
    """span: the first of the warp's vectors, and their number."""
    matrix, k_major = side.matrix, side.major == "k"
    ld = matrix.stride[0]
    vectors = matrix.shape[0] if k_major else matrix.shape[1]
    inside = simt.allows_quads(matrix.iterator, ld) and span[0] + span[1] <= vectors
    first = kept_address((matrix.iterator + cute.crd2idx(at, matrix.layout)).toint())
    step = 4 * (steps[0] * ld + steps[1])
    advance = Int64(4 * CHUNK) if cutlass.const_expr(k_major) else 4 * CHUNK * ld
    return Share(at, steps, first, step, advance, inside, kept(target), target_step, active)


@cute.jit
def share_of_a(side: Side, warp: Int32, lane: Int32) -> Share:
    """Of this warp's rows. Lines are permuted so that `split_a` reads from different banks."""
    first = side.origin + warp * ROWS
    if cutlass.const_expr(side.major == "k"):
        row, k = lane // 8, lane % 8 * 4
        at, steps = (first + row, k), (4, 0)
        target, target_step = row * CHUNK + (k ^ (row & 1) * 16), 4 * CHUNK
    else:
        row, k = lane % 4 * 4, lane // 4
        at, steps = (k, first + row), (8, 0)
        target, target_step = k * ROWS + (row ^ (k & 2) * 4), 8 * ROWS
    target += warp * (ROWS * CHUNK)
    return share(side, at, steps, (first, ROWS), target, target_step, Boolean(True))


@cute.jit
def share_of_b(side: Side, warp: Int32, lane: Int32, config: cutlass.Constexpr) -> Share:
    """Of this warp's job, if it has one."""
    job, active = job_of(warp, config)
    vector, k = corner_of(job, side.major)
    along, depth = place(lane, side.major)
    if cutlass.const_expr(side.major == "k"):
        at, steps, vectors = (side.origin + vector + along, k + depth), (0, 4), 16
    else:
        first, step = (depth, 4) if config.transposes_k else (depth * 4, 1)
        at, steps, vectors = (k + first, side.origin + vector + along), (step, 0), 32
    target = (job * 128 + lane) * 4  # the lanes' fours lie side by side
    return share(side, at, steps, (side.origin + vector, vectors), target, 128, active)


@cute.jit
def copy_share(
    own: Share, side: Side, chunk: Int32, whole_chunks: Int32, staged: cute.Pointer
) -> None:
    """Start to copy a share of a chunk to the tile at `staged`; zeros outside the matrix."""
    target = staged + own.target
    if own.active and own.inside and chunk < whole_chunks:
        for i in cutlass.range_constexpr(4):
            address = own.first + chunk * own.advance + i * own.step
            source = cute.make_ptr(Float32, address, cute.AddressSpace.gmem, assumed_align=16)
            spot, four = aligned(target, i * own.target_step), cute.make_layout(4)
            source, spot = cute.make_tensor(source, four), cute.make_tensor(spot, four)
            simt.copy_async(source, spot, True, False)
    elif own.active:
        one, k0, matrix = cute.make_layout(1), chunk * CHUNK, side.matrix
        for i in cutlass.range_constexpr(4):
            line, along = own.at[0] + i * own.steps[0], own.at[1] + i * own.steps[1]
            if cutlass.const_expr(side.major == "k"):
                along += k0
            else:
                line += k0
            for e in cutlass.range_constexpr(4):
                valid = line < matrix.shape[0] and along + e < matrix.shape[1]
                source = matrix.iterator + cute.crd2idx((line, along + e), matrix.layout)
                source = cute.make_tensor(source, one)
                spot = cute.make_tensor(target + (i * own.target_step + e), one)
                simt.copy_async(source, spot, valid, True)


@cute.jit
def aligned(pointer: cute.Pointer, words: Any) -> cute.Pointer:
    address = (pointer + words).toint()
    return cute.make_ptr(Float32, address, pointer.memspace, assumed_align=16)


@cute.jit
def note(least: cute.Tensor, value: Float32) -> None:
    """least: (1), the smallest magnitude so far but 0: its bits, doubled, minus 1."""
    # Zero, which loses nothing, becomes the largest unsigned number.
    least[0] = cutlass.min(least[0], Uint32(value.bitcast(Int32)) * 2 - 1)


@cute.jit
def large_part(value: Float32) -> Float32:
    """A number rounded to TF32's 11 bits."""
    bits = (Uint32(value.bitcast(Int32)) + 0x1000) & Uint32(0xFFFFE000)
    return bits.bitcast(Float32)


@cute.jit
def spots_of_a(side: Side, warp: Int32, lane: Int32) -> tuple:
    """Where a thread's elements of the staged tile of A begin: in either 16 of k, or 8 of rows.

    Of two rows, it has four of each 16 of k: k and k + 4 of one step of wgmma, then of the next.
    """
    row, t, first = lane // 4, lane % 4, warp * (ROWS * CHUNK)
    if cutlass.const_expr(side.major == "k"):
        spots = [row * CHUNK + ((k + t * 4) ^ (row & 1) * 16) for k in (0, 16)]
    else:
        spots = [t * ROWS + (row + r ^ (t & 2) * 4) for r in (0, 8)]
    return kept(first + spots[0]), kept(first + spots[1])


@cute.jit
def split_a(
    least: cute.Tensor,
    fragments: list,
    side: Side,
    staged: cute.Pointer,
    spots: tuple,
) -> None:
    """Split this thread's elements of the tile of A into `fragments` by part. See `spots_of_a`."""
    high = cute.recast_tensor(fragments[0], Float32)
    low = cute.recast_tensor(fragments[1], Float32)
    for j in cutlass.range_constexpr(2 * CHUNK // 16):
        r, k = j % 2, j // 2 * 16
        four = cute.make_rmem_tensor(4, Float32)
        if cutlass.const_expr(side.major == "k"):
            spot = aligned(staged, spots[k // 16] + 8 * CHUNK * r)
            four.store(cute.make_tensor(spot, cute.make_layout(4)).load())
        else:
            for e in cutlass.range_constexpr(4):
                four[e] = simt.element(staged, spots[r] + (k + 4 * e) * ROWS)[0]
        for e in cutlass.range_constexpr(4):
            note(least, four[e])
            i = (j // 2 * 2 + e // 2) * 4 + e % 2 * 2 + r
            high[i] = large_part(four[e])
            low[i] = four[e] - high[i]


def job_of(warp: Int32, config: Any) -> tuple:
    """The warp's job, and whether it has one: all do, or half of each warpgroup."""
    if config.jobs == config.warps:
        return warp, Boolean(True)
    return warp // 2, (warp + warp // 4) % 2 == 0


def place(lane: Int32, major: str) -> tuple:
    """The lane's first vector in a job, and its first k."""
    return (lane >> 1, (lane & 1) * 16) if major == "k" else ((lane & 7) * 4, (lane >> 3))


def corner_of(job: Int32, major: str) -> tuple:
    """The first vector and k of a job in the tile."""
    return (job * 16, Int32(0)) if major == "k" else (job // 2 * 32, job % 2 * 16)


@cute.jit
def split_b(
    least: cute.Tensor,
    side: Side,
    staged: cute.Pointer,
    parts: cute.Pointer,
    own: Share,
    warp: Int32,
    lane: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Split this warp's job; store its parts of (PARTS, size, CHUNK)."""
    along, depth = place(lane, side.major)
    job, _ = job_of(warp, config)
    vector, k = corner_of(job, side.major)
    elements = cute.make_rmem_tensor((4, 4), Float32)
    for i in cutlass.range_constexpr(4):
        four = aligned(staged, own.target + i * own.target_step)
        elements[None, i].store(cute.make_tensor(four, cute.make_layout(4)).load())
    for v in cutlass.range_constexpr(4):
        if cutlass.const_expr(side.major == "k"):
            # Of 16 of k of one vector, those at positions 4v to 4v + 3.
            order = [(v, e) if config.transposes_k else (e, v) for e in range(4)]
            store_parts(least, elements, order, vector + along, depth + 4 * v, side, parts)
        else:
            order = [(v, e) for e in range(4)]
            line = v * (side.size // 4) + (vector + along >> 2)
            store_parts(least, elements, order, line, k + depth * 4, side, parts)


@cute.jit
def store_parts(
    least: cute.Tensor,
    elements: cute.Tensor,
    order: list,
    line: Int32,
    k: Int32,
    side: Side,
    parts: cute.Pointer,
) -> None:
    """Split four elements and store them on a line from position `k` on."""
    high = cute.make_rmem_tensor(4, Float32)
    low = cute.make_rmem_tensor(4, Float32)
    for e in cutlass.range_constexpr(4):
        value = elements[order[e]]
        note(least, value)
        high[e] = large_part(value)
        low[e] = value - high[e]
    # 128-byte lines, whose 16-byte pieces are permuted as wgmma expects.
    spot = line * CHUNK + (k ^ ((line & 7) * 4))
    for part in cutlass.range_constexpr(PARTS):
        target = aligned(cute.recast_ptr(parts, dtype=Float32), part * side.size * CHUNK + spot)
        four = low if cutlass.const_expr(part) else high
        cute.make_tensor(target, cute.make_layout(4)).store(four.load())


@cute.jit
def vector_of(line: Int32, side: Side) -> Int32:
    """The vector of a line of C. If B is MN-major, lanes hold every fourth column of its parts."""
    vector = line
    if cutlass.const_expr(side.mixed):
        vector = line % (side.size // 4) * 4 + line // (side.size // 4)
    return vector


@cute.jit
def parts_of(pointer: cute.Pointer, config: cutlass.Constexpr) -> cute.Tensor:
    """The parts of B (block_n, CHUNK, buffers × parts) as wgmma reads them."""
    kind = warpgroup.SmemLayoutAtomKind.K_SW128
    atom = warpgroup.make_smem_layout_atom(kind, cutlass.TFloat32)
    shape = (config.block_n, CHUNK, config.buffers * PARTS)
    return swizzled(pointer, cute.tile_to_shape(atom, shape, (0, 1, 2)))
