"""What a block of `direct` works on: tiles of C, one after the other, each over a range of k.

An *item* is a tile of C and a slice of k. A block computes the items `first`, `first + step`, …
While it multiplies the last chunks of one item, it copies and splits the first ones of the next: a
cursor says how far its copies have come.
"""

from typing import NamedTuple

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK
from gemmlab.kernels.gemm.sm90.shares import matrices
from gemmlab.kernels.gemm.sm90.splitting import Share, Side

GUARDED, INSIDE, ALIGNED = 0, 1, 2  # how a thread moves its elements of a tile


class Operand(NamedTuple):
    """A stack of matrices, and how tiles divide them."""

    start: cute.Pointer
    ld: Int64
    step: Int64  # elements to the next matrix; may be 0
    extent: Int32  # vectors
    major: str
    size: int  # vectors per tile


class Result(NamedTuple):
    """C = factors[0] · A·B + factors[1] · D. Pairs are of C and D."""

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
    slices: Int32
    first: Int32
    step: Int32
    end: Int32
    chunks: tuple  # first and last + 1
    k: Int32


class Cursor(NamedTuple):
    """How far a thread has come with its copies."""

    at: cute.Tensor  # (2) item, chunk
    modes: cute.Tensor  # (2) how elements of A and B are copied
    addresses: cute.Tensor  # (2) of the first ones


@cute.jit
def located(items: Items, item: Int32) -> tuple:
    """The matrix in the stack, the slice of k, the row and the column of tiles of an item."""
    count = items.tiles[0] * items.tiles[1]
    tile, other = item % count, item // count
    place = tile % items.tiles[0], tile // items.tiles[0]
    return other // items.slices, other % items.slices, *place


@cute.jit
def side_of(items: Items, item: Int32, which: cutlass.Constexpr) -> Side:
    """Operand A (`which` = 0) or B as an item sees it."""
    operand, place = items.operands[which], located(items, item)
    shape = (operand.extent, items.k) if operand.major == "k" else (items.k, operand.extent)
    layout = cute.make_layout(shape, stride=(operand.ld, 1))
    matrix = cute.make_tensor(operand.start + place[0] * operand.step, layout)
    return Side(matrix, operand.major, operand.size, place[2 + which] * operand.size)


@cute.jit
def target_of(items: Items, item: Int32, result: Result) -> tuple:
    """The first row and column of an item's tile, then C, or its slice, and D."""
    matrix, piece, row, column = located(items, item)
    c = result.starts[0] + (matrix * result.steps[0] + piece * result.slice_step)
    d = result.starts[1] + matrix * result.steps[1]
    corner = row * items.operands[0].size, column * items.operands[1].size
    return corner, *matrices((c, d), result.shape, result.strides)


@cute.jit
def enter(cursor: Cursor, items: Items, shares: tuple) -> None:
    """Move to the beginning of the cursor's item. shares: what the thread copies of A and B."""
    at, modes, addresses = cursor
    if at[0] < items.end:
        for i in cutlass.range_constexpr(2):
            own, side = shares[i], side_of(items, at[0], i)
            matrix, line = side.matrix, (side.origin + own.along, own.depth)
            vectors = matrix.shape[0]
            if cutlass.const_expr(side.major != "k"):
                line, vectors = line[::-1], matrix.shape[1]
            first = (matrix.iterator + cute.crd2idx(line, matrix.layout)).toint()
            addresses[i] = first + items.chunks[0] * own.advance
            modes[i] = Int32(GUARDED)
            if side.origin + own.span[0] + own.span[1] <= vectors:
                modes[i] = Int32(INSIDE)
                if simt.allows_quads(matrix.iterator, matrix.stride[0]):
                    modes[i] = Int32(ALIGNED)
    at[1] = items.chunks[0]


@cute.jit
def cursor_of(items: Items, shares: tuple) -> Cursor:
    """At the block's first item; at the end if there are no chunks."""
    at, modes = (cute.make_rmem_tensor(2, Int32) for _ in range(2))
    cursor = Cursor(at, modes, cute.make_rmem_tensor(2, Int64))
    for numbers in cursor:
        numbers.fill(0)
    at[0] = items.first if items.chunks[0] < items.chunks[1] else items.end
    enter(cursor, items, shares)
    return cursor


@cute.jit
def copy_next(
    cursor: Cursor, items: Items, shares: tuple, stage: cute.Pointer, config: cutlass.Constexpr
) -> None:
    """Start to copy what a thread copies of the next chunk, if there is one, as a group.

    stage: the tile of A, then of B.
    """
    at, modes, addresses = cursor
    if at[0] < items.end:
        whole = at[1] < items.k // CHUNK
        for i in cutlass.range_constexpr(2):
            own, target = shares[i], stage + shares[i].target
            target = target + i * config.block_m * CHUNK
            if own.active:
                if whole and modes[i] == ALIGNED:
                    for j in cutlass.range_constexpr(4):
                        copy(addresses[i] + j * own.step, target + j * own.target_step, 4)
                elif whole and modes[i] == INSIDE:
                    for j in cutlass.range_constexpr(16):
                        place = addresses[i] + j // 4 * own.step + j % 4 * 4
                        copy(place, target + (j // 4 * own.target_step + j % 4), 1)
                else:
                    copy_guarded(own, side_of(items, at[0], i), at[1], target)
            addresses[i] += own.advance
        at[1] += 1
        if at[1] == items.chunks[1]:
            at[0] += items.step
            enter(cursor, items, shares)
    cute.arch.cp_async_commit_group()


@cute.jit
def copy(address: Int64, target: cute.Pointer, count: cutlass.Constexpr) -> None:
    """Start to copy one or four elements."""
    source = cute.make_ptr(Float32, address, cute.AddressSpace.gmem, assumed_align=4 * count)
    target = cute.make_ptr(Float32, target.toint(), target.memspace, assumed_align=4 * count)
    layout = cute.make_layout(count)
    source, target = cute.make_tensor(source, layout), cute.make_tensor(target, layout)
    simt.copy_async(source, target, True, count == 1)


@cute.jit
def copy_guarded(own: Share, side: Side, chunk: Int32, target: cute.Pointer) -> None:
    """Start to copy a share element by element; zeros outside the matrix."""
    matrix, one = side.matrix, cute.make_layout(1)
    vector, k = side.origin + own.along, chunk * CHUNK + own.depth
    for i in cutlass.range_constexpr(4):
        line, along = (vector, k) if side.major == "k" else (k, vector)
        line, along = line + i * own.steps[0], along + i * own.steps[1]
        for e in cutlass.range_constexpr(4):
            valid = line < matrix.shape[0] and along + e < matrix.shape[1]
            source = matrix.iterator + cute.crd2idx((line, along + e), matrix.layout)
            spot = cute.make_tensor(target + (i * own.target_step + e), one)
            simt.copy_async(cute.make_tensor(source, one), spot, valid, True)
