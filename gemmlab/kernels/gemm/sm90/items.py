"""What a block of `direct` works on: tiles of C, one after the other, each over a range of k.

An *item* is a tile of C and a slice of k. A block computes the items `first`, `first + step`, …
While it multiplies the last chunks of one item, it copies and splits the first ones of the next: a
cursor says how far a warp's copies have come.
"""

from typing import Any, NamedTuple

import cutlass
from cutlass import Boolean, Int32, Int64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK
from gemmlab.kernels.gemm.sm90.shares import matrices
from gemmlab.kernels.gemm.sm90.splitting import (
    Share,
    Side,
    is_k_major,
    lanes_per_line,
    line_of_copy,
    spot_of_copy,
)

# How a thread copies its elements of a chunk: one or four at a time; some lie outside at an edge.
EDGE, INSIDE, FOURS_AT_EDGE, FOURS = range(4)


class Operand(NamedTuple):
    """A stack of matrices, and how tiles divide them."""

    start: cute.Pointer
    ld: Int64
    step: Int64  # elements to the next matrix; may be 0
    extent: Int32  # vectors
    major: str
    size: int  # vectors per tile


class Result(NamedTuple):
    """C = factors[0] · A·B + factors[1] · D. `starts`, `strides` and `steps` are of C and of D."""

    starts: tuple
    shape: tuple
    strides: tuple  # of rows and columns
    steps: tuple  # elements to the next matrix
    slice_step: Int64  # elements of C to the next slice of k
    factors: tuple


class Items(NamedTuple):
    """The items of a block. All have the same chunks of k."""

    operands: tuple
    tiles: tuple  # rows and columns of tiles
    piece: Int32  # the slice of k, the same for all items of a block
    first: Int32
    step: Int32
    end: Int32
    start: tuple  # where the first one is; see `place_of`
    by: tuple  # from there to the next one; rows and columns may be beyond the last
    chunks: tuple  # first and last + 1
    k: Int32


class Ring(NamedTuple):
    """Buffers for parts of B, and what they are made of."""

    parts: cute.Pointer  # (buffers × PARTS, block_n, CHUNK)
    staged: cute.Pointer  # (stages) tiles of B
    full: cute.Pointer  # (buffers) barriers: parts are stored
    empty: cute.Pointer  # (buffers) barriers: wgmma have read them


class Work(NamedTuple):
    """What a thread that multiplies works with."""

    items: Items
    share: Share  # how it copies A
    spots: tuple  # where its elements of A begin in the staged tile
    staged: cute.Pointer  # (stages) tiles of A
    ring: Ring
    flags: cute.Tensor  # (MOST_ITEMS + 1, warps): see `condemn`
    warp: Int32
    lane: Int32


class Cursor(NamedTuple):
    """How far a thread has come with its copies."""

    at: cute.Tensor  # (3) item, chunk, and the chunk at which to `aim` again
    place: cute.Tensor  # (3) of the item
    modes: cute.Tensor  # (shares) how elements are copied
    last: cute.Tensor  # (shares) the last vector, from the warp's first one on
    addresses: cute.Tensor  # (shares) of the thread's first elements


@cute.jit
def place_of(item: Int32, tiles: tuple, slices: Int32) -> tuple:
    """The matrix in the stack, the row and column of tiles, and the slice of k."""
    count = tiles[0] * tiles[1]
    tile, other = item % count, item // count
    return other // slices, tile % tiles[0], tile // tiles[0], other % slices


@cute.jit
def start_at(place: cute.Tensor, items: Items) -> None:
    """Set a place (3) to that of the block's first item."""
    for i in cutlass.range_constexpr(3):
        place[i] = items.start[i]


@cute.jit
def advance(place: cute.Tensor, items: Items) -> None:
    """Go to the block's next item. Divisions would take hundreds of cycles."""
    for i in cutlass.range_constexpr(3):
        place[i] += items.by[i]
    if place[1] >= items.tiles[0]:
        place[1] -= items.tiles[0]
        place[2] += 1
    if place[2] >= items.tiles[1]:
        place[2] -= items.tiles[1]
        place[0] += 1


@cute.jit
def side_of(items: Items, place: Any, which: cutlass.Constexpr) -> Side:
    """Operand A (`which` = 0) or B as an item sees it."""
    operand = items.operands[which]
    shape = (operand.extent, items.k) if operand.major == "k" else (items.k, operand.extent)
    layout = cute.make_layout(shape, stride=(operand.ld, 1))
    matrix = cute.make_tensor(operand.start + place[0] * operand.step, layout)
    return Side(matrix, operand.major, operand.size, place[1 + which] * operand.size)


@cute.jit
def target_of(items: Items, place: Any, result: Result) -> tuple:
    """The first row and column of an item's tile, then C, or its slice, and D."""
    c = result.starts[0] + (place[0] * result.steps[0] + items.piece * result.slice_step)
    d = result.starts[1] + place[0] * result.steps[1]
    corner = place[1] * items.operands[0].size, place[2] * items.operands[1].size
    return corner, *matrices((c, d), result.shape, result.strides)


@cute.jit
def aim(cursor: Cursor, items: Items, shares: tuple, config: cutlass.Constexpr) -> None:
    """Choose how chunks are copied, from the cursor's chunk up to a partial last one.

    shares: what the thread copies of A and B.
    """
    at, place, modes, last, addresses = cursor
    if at[0] < items.end:
        whole = at[1] < items.k // CHUNK
        at[2] = items.chunks[1]
        if whole:
            at[2] = cutlass.min(items.k // CHUNK, items.chunks[1])
        for i in cutlass.range_constexpr(len(shares)):
            own = shares[i]
            side, k_major = side_of(items, place, own.which), is_k_major(own.which, config)
            matrix = side.matrix
            vectors = matrix.shape[0 if k_major else 1]
            vector, k = side.origin + own.first[0], at[1] * CHUNK + own.first[1]
            last[i] = vectors - 1 - vector
            modes[i] = Int32(EDGE)
            line, element = own.line, own.element
            inside = last[i] + 1 >= own.vectors
            if whole:
                quads = simt.allows_quads(matrix.iterator, matrix.stride[0])
                if cutlass.const_expr(not k_major):
                    quads = quads and (inside or vectors % 4 == 0)
                if inside:
                    modes[i] = Int32(INSIDE)
                if quads:
                    modes[i] = Int32(FOURS_AT_EDGE)
                    if inside:
                        modes[i] = Int32(FOURS)
                    line, element = own.along, own.depth
                    if cutlass.const_expr(not k_major):
                        line, element = element, line
            if cutlass.const_expr(k_major):
                if modes[i] == EDGE:
                    line = Int32(0)  # `copy_singly` counts from the warp's first line on
                vector, k = vector + line, k + element
                at_first = vector, k
            else:
                at_first = k + line, vector + element
            addresses[i] = (matrix.iterator + cute.crd2idx(at_first, matrix.layout)).toint()


@cute.jit
def cursor_of(items: Items, shares: tuple, config: cutlass.Constexpr) -> Cursor:
    """A cursor at the block's first item, or at the end if there are no chunks."""
    sizes = 3, 3, len(shares), len(shares)
    at, place, modes, last = (cute.make_rmem_tensor(size, Int32) for size in sizes)
    cursor = Cursor(at, place, modes, last, cute.make_rmem_tensor(len(shares), Int64))
    for numbers in cursor:
        numbers.fill(0)
    at[0] = items.first if items.chunks[0] < items.chunks[1] else items.end
    at[1] = items.chunks[0]
    start_at(place, items)
    aim(cursor, items, shares, config)
    return cursor


@cute.jit
def copy_next(
    cursor: Cursor, items: Items, shares: tuple, stage: cute.Pointer, config: cutlass.Constexpr
) -> None:
    """Start a thread's copies of the next chunk, if there is one, as a group.

    stage: the tile of A or of B. Elements beyond the end of k become zeros. Vectors beyond the
    last one become zeros, or copies of it: they hold infinite, NaN or small elements only if it
    does.
    """
    at, place, modes, last, addresses = cursor
    if at[0] < items.end:
        for i in cutlass.range_constexpr(len(shares)):
            own = shares[i]
            if own.active:
                if modes[i] == FOURS:
                    copy_fours(own, addresses[i], stage, None, config)
                elif modes[i] == FOURS_AT_EDGE:
                    copy_fours(own, addresses[i], stage, last[i], config)
                else:
                    starts = [stage + spot for spot in own.spots]
                    if modes[i] == INSIDE:
                        copy_singly(own, addresses[i], starts, None, config)
                    else:
                        left = items.k - at[1] * CHUNK - own.first[1]
                        copy_singly(own, addresses[i], starts, (last[i], left), config)
            addresses[i] += own.advance
        at[1] += 1
        if at[1] == at[2]:
            if at[1] == items.chunks[1]:
                at[0] += items.step
                at[1] = items.chunks[0]
                advance(place, items)
            aim(cursor, items, shares, config)
    cute.arch.cp_async_commit_group()


def goes_around_l1(which: int, config: Any) -> bool:
    """Whether 16-byte copies bypass L1. Blocks of a multiprocessor share a K-major B in L1."""
    return which == 0 or not is_k_major(which, config)


@cute.jit
def copy_fours(
    own: Share, address: Int64, stage: cute.Pointer, last: Any, config: cutlass.Constexpr
) -> None:
    """Start to copy four times four elements. last: at an edge, the last vector, as in a cursor."""
    around_l1 = goes_around_l1(own.which, config)
    for j in cutlass.range_constexpr(4):
        valid = True
        if cutlass.const_expr(last is not None):
            k_major = is_k_major(own.which, config)
            valid = own.along + (j * own.lines if k_major else 0) <= last
        target = stage + own.target + j * own.target_step
        copy(address + j * own.step, target, 4, valid, around_l1)


@cute.jit
def copy_singly(
    own: Share,
    address: Int64,
    starts: list,
    ends: Any,
    config: cutlass.Constexpr,
) -> None:
    """Start to copy 16 single elements.

    starts: in the staged tile. ends: at an edge, the last vector, and how much is left of k, both
    from the warp's first one on.
    """
    which = own.which
    k_major, lanes = is_k_major(which, config), lanes_per_line(which, config)
    elements = [own.element + half * lanes for half in range(2)]
    for i in cutlass.range_constexpr(8):
        line, valid = line_of_copy(which, i, config), [True, True]
        source = address + line * own.pitch
        if cutlass.const_expr(ends is not None):
            last, left = ends
            line += own.line
            if cutlass.const_expr(k_major):
                source = address + cutlass.min(line, last) * own.pitch
                valid = [element < left for element in elements]
            else:
                valid = [element <= last and line < left for element in elements]
        for half in cutlass.range_constexpr(2):
            start, distance = spot_of_copy(which, i, half, config)
            copy(source + 4 * lanes * half, starts[start] + distance, 1, valid[half])


@cute.jit
def copy(
    address: Int64,
    target: cute.Pointer,
    count: cutlass.Constexpr,
    valid: Boolean = True,
    around_l1: cutlass.Constexpr = False,
) -> None:
    """Start to copy one or four elements, or zeros if they are not `valid`."""
    vectors.copy_bytes(address, target, 4 * count, None if valid is True else valid, around_l1)
