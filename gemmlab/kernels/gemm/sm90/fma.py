"""Multiply float32 matrices with float32 multiply-adds, in one launch, whatever their alignment.

Tensor cores need operands split into parts, and fast copies need 16-byte alignment. Products that
are small, shallow or not aligned are limited by latency or by the traffic of C instead, so float32
multiply-adds are as fast. cuBLAS has the same arithmetic, but few tiles for such shapes.

A block computes a tile of C, a thread 4 or 8 of its rows and columns. Tiles of A and B lie in a
ring of stages, one row for each k, so a thread reads four adjacent elements at once. Each element
is copied on its own (a 4-byte cp.async) to its place in that order. So one kernel serves all
layouts: only the thread's first element and the strides to its next ones differ.

| operand is contiguous along … | lanes of a warp copy               | steps go along  |
|-------------------------------|------------------------------------|-----------------|
| k                             | 16 of k, of two vectors            | vectors         |
| its vectors                   | neighboring vectors at the same k  | k               |

k may be divided among the blocks of a cluster, which add up their sums in order. So every run has
the same bits. Sums go through shared memory, so that the lanes of a warp store adjacent elements of
C: a part of a sector would take as long as a whole one.

Limiter: memory if k is small, latency if C is; else issue slots. In the loop, 5 of 6 of these are
multiply-adds.
"""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.fma_config import DEPTH, PADDING, UNIT
from gemmlab.kernels.gemm.sm90.pdl import let_next_start, wait_for_previous
from gemmlab.kernels.gemm.sm90.shares import finish_four, matrices
from gemmlab.kernels.signature import signatures

POINTERS = {
    "a": ("float32", "input"),
    "b": ("float32", "input"),
    "c": ("float32", "output"),
    "d": ("float32", "input"),
}
# Rows and columns between a thread's groups of four: 4 × 8 lanes of a warp have one each.
SPANS = 16, 32


class Share(NamedTuple):
    """What a thread copies of each chunk of an operand."""

    address: Int64  # of its first element of the first chunk
    at: Int32  # where that element belongs in a stage, in words
    vector: Int32  # of its first element, in the tile
    k: Int32
    along_k: Boolean  # whether k is the same for all its elements, else the vector is
    step: Int32  # words to its next element in the stage
    pitch: Int64  # bytes to its next element
    advance: Int64  # bytes to the next chunk
    left: Int32  # vectors of the operand from the tile's first one on


@cute.jit
def share_of(
    start: cute.Pointer,
    strides: tuple,
    left: Int32,
    width: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> Share:
    """start: element (first vector of the tile, first k). strides: elements per vector and k."""
    thread, _, _ = cute.arch.thread_idx()
    THREADS, row = config.threads, width + PADDING
    along_k = strides[1] == 1
    vector, k = thread % width, thread // width
    step, pitch = Int32(THREADS // width * row), THREADS // width * strides[1]
    if along_k:
        k, vector = thread % DEPTH, thread // DEPTH
        step, pitch = Int32(THREADS // DEPTH), THREADS // DEPTH * strides[0]
    address = (start + (vector * strides[0] + k * strides[1])).toint()
    advance = 4 * DEPTH * strides[1]
    return Share(address, k * row + vector, vector, k, along_k, step, 4 * pitch, advance, left)


@cute.jit
def copy_share(
    own: Share,
    address: Int64,
    stage: cute.Pointer,
    left_k: Int32,
    width: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """Start to copy the thread's elements of a chunk. Outside the matrix they become zeros.

    left_k: the rest of k.
    """
    first = stage + own.at
    if left_k >= DEPTH and own.left >= width:
        copy_elements(own, address, first, None, width, config)
    else:
        # Only the first ones, if any, are inside.
        count = steps(own.left - own.vector, config.threads // DEPTH)
        inside = own.k < left_k
        if not own.along_k:
            count = steps(left_k - own.k, config.threads // width)
            inside = own.vector < own.left
        if not inside:
            count = Int32(0)
        copy_elements(own, address, first, count, width, config)


def steps(length: Int32, step: int) -> Int32:
    """length / step, rounded up; the length may be negative. step: a power of two."""
    return (length + (step - 1)) >> (step.bit_length() - 1)


@cute.jit
def copy_elements(
    own: Share,
    address: Int64,
    first: cute.Pointer,
    count: cutlass.Constexpr,
    width: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """count: how many of the elements are inside; None: all."""
    for i in cutlass.range_constexpr(width * DEPTH // config.threads):
        valid = None if count is None else i < count
        vectors.copy_bytes(address + i * own.pitch, first + i * own.step, 4, valid)


def serpentine(rows: int, cols: int) -> list[tuple[int, int]]:
    """The elements of a rectangle in serpentine order: each is adjacent to the previous one.

    Consecutive multiply-adds then share a factor, which the second one finds in the reuse cache. It
    reads two other registers, in one clock if they are in different banks.
    """
    if cols > 4:
        return [(i, j) for j in range(cols) for i in range(rows)[:: 1 - j % 2 * 2]]
    return [(i, j) for i in range(rows) for j in range(cols)[:: 1 - i % 2 * 2]]


@cute.jit
def multiply_rows(
    tiles: tuple,
    sums: cute.Tensor,
    first: Int32,
    place: tuple,
    count: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """sums (TM, TN) += the thread's products for `count` rows of the tiles, from row `first` on.

    place: the thread's first row and column in the tile of C. Its fours are `SPANS` apart.
    """
    TM, TN = config.thread_m, config.thread_n
    for kk in cutlass.range_constexpr(count):
        rows, columns = (
            [(first + kk, start + i * span) for i in range(size // 4)]
            for start, size, span in zip(place, (TM, TN), SPANS, strict=True)
        )
        rA = [x for at in rows for x in simt.read_four(tiles[0], at)]
        rB = [x for at in columns for x in simt.read_four(tiles[1], at)]
        for i, j in serpentine(TM, TN):
            sums[i, j] += rA[i] * rB[j]


@cute.jit
def multiply(
    sums: cute.Tensor,
    tiles: tuple,
    shares: tuple,
    depth: Int32,
    place: tuple,
    config: cutlass.Constexpr,
) -> None:
    """sums += the products of the block's tiles along `depth` of k."""
    AHEAD = config.stages - 1
    for stage in cutlass.range_constexpr(AHEAD):
        if stage * DEPTH < depth:
            copy_chunk(shares, tiles, Int32(stage), Int32(stage), depth, config)
        cute.arch.cp_async_commit_group()
    stage, target = Int32(0), Int32(AHEAD)
    for chunk in cutlass.range(cute.ceil_div(depth, DEPTH), unroll=1):
        cute.arch.cp_async_wait_group(config.stages - 2)
        cute.arch.sync_threads()
        if (chunk + AHEAD) * DEPTH < depth:
            copy_chunk(shares, tiles, chunk + AHEAD, target, depth, config)
        cute.arch.cp_async_commit_group()
        first, left = stage * DEPTH, depth - chunk * DEPTH
        if left >= DEPTH:
            multiply_rows(tiles, sums, first, place, DEPTH, config)
        else:
            for unit in cutlass.range(steps(left, UNIT), unroll=1):
                multiply_rows(tiles, sums, first + unit * UNIT, place, UNIT, config)
        stage += 1
        if stage == config.stages:
            stage = Int32(0)
        target += 1
        if target == config.stages:
            target = Int32(0)
    cute.arch.cp_async_wait_group(0)


@cute.jit
def copy_chunk(
    shares: tuple,
    tiles: tuple,
    chunk: Int32,
    stage: Int32,
    depth: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Start the thread's copies of a chunk of both operands."""
    for x in cutlass.range_constexpr(2):
        own, width = shares[x], (config.block_m, config.block_n)[x]
        start = tiles[x].iterator + stage * (DEPTH * config.pitches[x])
        address = own.address + chunk * own.advance
        copy_share(own, address, start, depth - chunk * DEPTH, width, config)


@cute.jit
def keep(
    sums: cute.Tensor,
    tile: cute.Tensor,
    place: tuple,
    alpha: Float32,
    config: cutlass.Constexpr,
) -> None:
    """Store alpha · the thread's sums to the tile of sums.

    Scaling here, not later, also lets the sums be in any registers: a 128-bit store needs four
    consecutive registers, and sums placed like that share banks with the elements of B beside them.
    Two registers of one bank cannot be read in the same clock.
    """
    for i in cutlass.range_constexpr(config.thread_m):
        row = place[0] + i // 4 * SPANS[0] + i % 4
        for j in cutlass.range_constexpr(0, config.thread_n, 4):
            four = [alpha * sums[i, j + e] for e in range(4)]
            target = simt.quad(tile, (row, place[1] + j // 4 * SPANS[1]))
            vectors.write(target.iterator, four)


@cute.jit
def store_lines(
    tile: cute.Tensor,
    mC: cute.Tensor,
    corner: tuple,
    width: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """C = the tile of sums. Lanes store adjacent groups of `width` elements."""
    thread, _, _ = cute.arch.thread_idx()
    per_line = config.block_n // width
    step = config.threads // per_line
    row, col = thread // per_line, thread % per_line * width
    count = steps(mC.shape[0] - corner[0] - row, step)
    if corner[1] + col >= mC.shape[1]:
        count = Int32(0)
    start = tile.iterator + cute.crd2idx((row, col), tile.layout)
    target = mC.iterator + cute.crd2idx((corner[0] + row, corner[1] + col), mC.layout)
    address, pitch = target.toint(), 4 * step * mC.stride[0]
    each, between = config.block_m // step, step * (config.block_n + PADDING)
    if count >= each:
        for i in cutlass.range_constexpr(each):
            move(start + i * between, address + i * pitch, width)
    else:
        for i in cutlass.range(count, unroll=2):
            move(start + i * between, address + i * pitch, width)


def move(source: cute.Pointer, address: Int64, width: int) -> None:
    """Copy `width` elements of shared memory to an address of device memory."""
    target = cute.make_ptr(Float32, address, cute.AddressSpace.gmem, assumed_align=4 * width)
    vectors.write(target, vectors.read(source, width))


@cute.jit
def store_fours(
    tile: cute.Tensor,
    targets: tuple,
    corner: tuple,
    beta: Float32,
    division: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Add the block's share of the tile over the blocks of the cluster, in order; store it to C.

    division: the block's rank, and the number of blocks.
    """
    thread, _, _ = cute.arch.thread_idx()
    rank, splits = division
    per_line, share = config.block_n // 4, config.block_m // splits
    for i in cutlass.range(thread, share * per_line, config.threads, unroll=1):
        row, col = rank * share + i // per_line, i % per_line * 4
        at = corner[0] + row, corner[1] + col
        if at[0] < targets[0].shape[0] and at[1] < targets[0].shape[1]:
            place = simt.quad(tile, (row, col))
            four = cute.make_rmem_tensor(4, Float32)
            four.fill(0.0)
            for block in cutlass.range(splits, unroll=4):
                given = vectors.read_remote(place.iterator, block)
                for e in cutlass.range_constexpr(4):
                    four[e] += given[e]
            finish_four(*targets, at, four, (1.0, beta))


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    d: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    row_a: Int64,
    column_a: Int64,
    row_b: Int64,
    column_b: Int64,
    batch_a: Int64,
    batch_b: Int64,
    row_c: Int64,
    batch_c: Int64,
    row_d: Int64,
    column_d: Int64,
    batch_d: Int64,
    alpha: Float32,
    beta: Float32,
    splits: Int32,
    each: Int32,
    config: cutlass.Constexpr,
):
    BM, BN = config.block_m, config.block_n
    thread, _, _ = cute.arch.thread_idx()
    bx, matrix, _ = cute.arch.block_idx()
    rank = bx % splits
    floats = cute.arch.get_dyn_smem(Float32, alignment=16)
    rows, pitches = config.stages * DEPTH, config.pitches
    tiles = (
        cute.make_tensor(floats, cute.make_layout((rows, BM), stride=(pitches[0], 1))),
        cute.make_tensor(
            floats + rows * pitches[0], cute.make_layout((rows, BN), stride=(pitches[1], 1))
        ),
    )
    down, item = cute.ceil_div(m, BM), bx // splits
    corner = item % down * BM, item // down * BN
    begin = cutlass.min(rank * each, k)
    depth = cutlass.min(k - begin, each)
    at_a = a + (matrix * batch_a + corner[0] * row_a + begin * column_a)
    at_b = b + (matrix * batch_b + corner[1] * column_b + begin * row_b)
    shares = (
        share_of(at_a, (row_a, column_a), m - corner[0], BM, config),
        share_of(at_b, (column_b, row_b), n - corner[1], BN, config),
    )
    own = simt.warp_place(thread, config)
    sums = cute.make_rmem_tensor((config.thread_m, config.thread_n), Float32)
    sums.fill(0.0)
    wait_for_previous()
    let_next_start()  # not before, as many blocks fit on a multiprocessor
    multiply(sums, tiles, shares, depth, own, config)
    cute.arch.sync_threads()
    tile = cute.make_tensor(floats, cute.make_layout((BM, BN), stride=(BN + PADDING, 1)))
    keep(sums, tile, own, alpha, config)
    starts = c + matrix * batch_c, d + matrix * batch_d
    targets = matrices(starts, (m, n), ((row_c, 1), (row_d, column_d)))
    cute.arch.sync_threads()
    if splits > 1:
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    if splits > 1 or beta != 0:
        store_fours(tile, targets, corner, beta, (rank, splits), config)
    elif simt.allows_quads(c, row_c) and n % 4 == 0 and batch_c % 4 == 0:
        store_lines(tile, targets[0], corner, 4, config)
    else:
        store_lines(tile, targets[0], corner, 1, config)
    if splits > 1:
        # A block must not exit while others of its cluster read its sums.
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()


SIGNATURES = signatures(POINTERS, kernel)
