"""What a block of `direct` works on: tiles of C, one after the other, each over a range of k.

An *item* is a tile of C and a slice of k. A block computes the items `first`, `first + step`, …
While it multiplies the last chunks of one item, it copies and splits the first ones of the next: a
cursor says how far its copies have come.
"""

from typing import Any, NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK
from gemmlab.kernels.gemm.sm90.shares import matrices
from gemmlab.kernels.gemm.sm90.splitting import ROWS, Share, Side, single_line, single_spot


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
    last: cute.Tensor  # (2) of A and B, the last vector, from the warp's first one on
    in_fours: cute.Tensor  # (2) whether elements are copied in fours
    addresses: cute.Tensor  # (2) of the thread's first elements


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
    at, last, in_fours, addresses = cursor
    if at[0] < items.end:
        for i in cutlass.range_constexpr(2):
            own, side = shares[i], side_of(items, at[0], i)
            matrix, k_major = side.matrix, side.major == "k"
            vector, k = side.origin + own.first[0], own.first[1]
            vectors = matrix.shape[0] if cutlass.const_expr(k_major) else matrix.shape[1]
            last[i] = vectors - 1 - vector
            whole = last[i] + 1 >= own.vectors and simt.allows_quads(
                matrix.iterator, matrix.stride[0]
            )
            if cutlass.const_expr(k_major):
                whole = whole and items.k % 4 == 0
            in_fours[i] = Int32(whole)
            along, depth = own.along, own.depth
            if not whole:
                along, depth = Int32(0), own.lane
                if cutlass.const_expr(not k_major):
                    lanes = 32 if i else ROWS
                    along, depth = cutlass.min(own.lane % lanes, last[i]), own.lane // lanes
            line = vector + along, k + depth
            if cutlass.const_expr(not k_major):
                line = line[::-1]
            first = (matrix.iterator + cute.crd2idx(line, matrix.layout)).toint()
            addresses[i] = first + items.chunks[0] * own.advance
    at[1] = items.chunks[0]


@cute.jit
def cursor_of(items: Items, shares: tuple) -> Cursor:
    """At the block's first item; at the end if there are no chunks."""
    at, last, in_fours = (cute.make_rmem_tensor(2, Int32) for _ in range(3))
    cursor = Cursor(at, last, in_fours, cute.make_rmem_tensor(2, Int64))
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

    stage: the tile of A, then of B. Beyond the end of k it becomes zeros. Vectors beyond the last
    one become copies of it: they add nothing that is not finite, or small, to what there is.
    """
    at, last, in_fours, addresses = cursor
    if at[0] < items.end:
        whole = at[1] < items.k // CHUNK
        for i in cutlass.range_constexpr(2):
            own, target = shares[i], stage + i * config.block_m * CHUNK
            left = items.k - at[1] * CHUNK - own.first[1]  # of k, from the warp's first one on
            if own.active:
                if in_fours[i] == 0:
                    copy_singly(own, addresses[i], target, (last[i], left), i, config)
                elif whole:
                    for j in cutlass.range_constexpr(4):
                        place = own.target + j * own.target_step
                        copy(addresses[i] + j * own.step, target + place, 4)
                else:
                    for j in cutlass.range_constexpr(4):
                        k = own.depth
                        place = own.target + j * own.target_step
                        k += j * own.steps[1 if cutlass.const_expr(is_k_major(i, config)) else 0]
                        copy(addresses[i] + j * own.step, target + place, 4, k < left)
            addresses[i] += own.advance
        at[1] += 1
        if at[1] == items.chunks[1]:
            at[0] += items.step
            enter(cursor, items, shares)
    cute.arch.cp_async_commit_group()


def is_k_major(which: int, config: Any) -> bool:
    return (config.a_major, config.b_major)[which] == "k"


@cute.jit
def copy_singly(
    own: Share,
    address: Int64,
    target: cute.Pointer,
    ends: tuple,
    which: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """Start to copy 16 single elements. ends: the last vector, and what is left of k."""
    last, left = ends
    for i in cutlass.range_constexpr(16):
        line = single_line(which, i, config)
        spot, distance = single_spot(which, i, config)
        place, valid = target + (own.spots[spot] + distance), own.lane < left
        if cutlass.const_expr(is_k_major(which, config)):
            source = address + cutlass.min(Int32(line), last) * own.line
        else:
            lanes = 32 if which else ROWS
            source, valid = address + line * own.line, line + own.lane // lanes < left
        copy(source, place, 1, valid)


@cute.jit
def copy(
    address: Int64, target: cute.Pointer, count: cutlass.Constexpr, valid: Boolean = True
) -> None:
    """Start to copy one or four elements, or zeros if they are not `valid`."""
    source = cute.make_ptr(Float32, address, cute.AddressSpace.gmem, assumed_align=4 * count)
    target = cute.make_ptr(Float32, target.toint(), target.memspace, assumed_align=4 * count)
    layout = cute.make_layout(count)
    source, target = cute.make_tensor(source, layout), cute.make_tensor(target, layout)
    simt.copy_async(source, target, valid, valid is not True)
