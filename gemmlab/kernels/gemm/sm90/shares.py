"""C from the sums of a cluster's blocks: each adds up, scales and stores a share of the tile."""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.splitting import ROWS

PADDING = 16  # words after each line of the tile of sums: stores of 16 bytes access all banks


@cute.jit
def matrices(starts: tuple, shape: tuple, strides: tuple) -> tuple:
    """C and D as tensors."""
    return tuple(
        cute.make_tensor(start, cute.make_layout(shape, stride=stride))
        for start, stride in zip(starts, strides, strict=True)
    )


@cute.jit
def finish_four(
    mC: cute.Tensor, mD: cute.Tensor, at: tuple, sums: cute.Tensor, factors: tuple
) -> None:
    """C[at …] = alpha · four sums + beta · D. mC, mD: (lines, elements of each)."""
    row, col = at
    alpha, beta = factors
    inside = row < mC.shape[0]
    for e in cutlass.range_constexpr(4):
        sums[e] *= alpha
        if beta != 0 and inside and col + e < mC.shape[1]:
            sums[e] += beta * mD[row, col + e]
    wide = simt.allows_quads(mC.iterator, mC.stride[0]) and inside and col + 4 <= mC.shape[1]
    simt.store_four(mC, row, col, sums, 1, wide)


def four_of(sums: cute.Tensor, r: int, i: int, quarter: int) -> list:
    """Four adjacent sums in the thread's row `r` (0 or 1). quarter: a quarter of its pairs."""
    return [sums[place_of(r, i, q, quarter)] for q in range(4)]


def place_of(r: int, i: int, q: int, quarter: int) -> tuple:
    """The index of the thread's sum in column 16·i + q, counted from the thread's first column."""
    return (i % 2, r, i // 2 + q * quarter), 0, 0


@cute.jit
def scale_sums(
    sums: cute.Tensor, corner: tuple, shape: tuple, mD: cute.Tensor, factors: tuple
) -> None:
    """sums = alpha · sums + beta · D. shape: of C, outside of which D is not read."""
    alpha, beta = factors
    sums.store(sums.load() * alpha)
    if beta != 0:
        fours = cute.size(sums) // 8
        for r in cutlass.range_constexpr(2):
            start, left = row_of(mD, corner, r, shape)
            for i in cutlass.range_constexpr(fours):
                for q in cutlass.range_constexpr(4):
                    column = 16 * i + q
                    element = vectors.read_if(column < left, start + column * mD.stride[1])
                    sums[place_of(r, i, q, fours // 2)] += beta * element


@cute.jit
def row_of(matrix: cute.Tensor, corner: tuple, r: cutlass.Constexpr, shape: tuple) -> tuple:
    """Where a thread's row `r` begins, and how many columns follow."""
    row, col = corner[0] + 8 * r, corner[1]
    left = shape[1] - col
    if row >= shape[0]:
        left = Int32(0)
    return matrix.iterator + cute.crd2idx((row, col), matrix.layout), left


@cute.jit
def store_sums(
    sums: cute.Tensor,
    corner: tuple,
    mC: cute.Tensor,
    mD: cute.Tensor,
    factors: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Scale a thread's sums, in place, and store them to C.

    corner: the thread's first row and column. It has two rows, 8 apart, and four of each 16
    columns; see `splitting.vector_of`.
    """
    row, col = corner
    lane, fours = cute.arch.lane_idx(), config.block_n // 16
    end = row - lane // 4 + ROWS, col - lane % 4 * 4 + config.block_n  # of the warp's sums
    inside = end[0] <= mC.shape[0] and end[1] <= mC.shape[1]
    scale_sums(sums, corner, mC.shape, mD, factors)
    for r in cutlass.range_constexpr(2):
        values = [four_of(sums, r, i, fours // 2) for i in range(fours)]
        start, left = row_of(mC, corner, r, mC.shape)
        if mC.stride[1] != 1:
            for i in cutlass.range_constexpr(4 * fours):
                column, value = i // 4 * 16 + i % 4, values[i // 4][i % 4]
                vectors.write_if(column < left, start + column * mC.stride[1], value)
        elif inside and simt.allows_quads(mC.iterator, mC.stride[0]):
            for i in cutlass.range_constexpr(fours):
                vectors.write(start + 16 * i, values[i])
        else:
            store_shifted(values, start, left)


def rotated(four: list, shift: Int32) -> list:
    """The four elements, rotated so that element `shift`, 0 to 3, comes first."""
    for distance in (1, 2):
        moves = shift & distance != 0
        four = [vectors.either(moves, four[(e + distance) % 4], four[e]) for e in range(4)]
    return four


@cute.jit
def store_shifted(values: list, start: cute.Pointer, left: Int32) -> None:
    """Store a row of the thread's sums, which may start at any address and end outside C.

    Stores of single elements would each fill a part of a sector, for which L2 takes as long as for
    a whole one. So the four threads that share 16 columns shift their sums along the row, until a
    thread's four fill 16 aligned bytes: the last of these come from its neighbor. start: of the
    thread's first element. left: columns of C from there on.
    """
    lane = cute.arch.lane_idx()
    own = lane % 4
    neighbor = lane - own + (own + 1) % 4
    shift = Int32(-(start.toint() >> 2) & 3)  # elements up to the first 16 aligned bytes
    is_first = own == 0
    for e in cutlass.range_constexpr(3):
        begins = is_first and e < shift and e < left
        vectors.write_if(begins, start + e, values[0][e])
    turned = [rotated(four, shift) for four in values]
    start, left = start + shift, left - shift
    for i in cutlass.range_constexpr(len(values)):
        held, following = turned[i], turned[min(i + 1, len(values) - 1)]
        moved = held[:1]
        for e in cutlass.range_constexpr(1, 4):
            given = vectors.either(is_first, following[e], held[e])
            taken = cute.arch.shuffle_sync(given, neighbor)
            moved.append(vectors.either(e + shift >= 4, taken, held[e]))
        end = left
        if own == 3 and cutlass.const_expr(i == len(values) - 1):  # the tile ends
            end = cutlass.min(left, 16 * i + 4 - shift)
        if 16 * i + 4 <= end:
            vectors.write(start + 16 * i, moved)
        else:
            for e in cutlass.range_constexpr(4):
                vectors.write_if(16 * i + e < end, start + (16 * i + e), moved[e])


@cute.jit
def store_together(
    sums: cute.Tensor,
    tile: cute.Pointer,
    corner: tuple,
    mC: cute.Tensor,
    mD: cute.Tensor,
    place: tuple,
    factors: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Add the sums of the blocks of a cluster, which divide the tile and store a share each.

    tile: room for it in shared memory. place: the block's rank, and the number of blocks.
    """
    BM, BN, fours = config.block_m, config.block_n, config.block_n // 16
    along_n = mC.stride[1] == 1  # C is contiguous along n or along m, and so is the tile
    thread, _, _ = cute.arch.thread_idx()
    for r in cutlass.range_constexpr(2):
        row, col = thread // 32 * ROWS + thread % 32 // 4 + 8 * r, thread % 4 * 4
        if along_n:
            start = tile + (row * (BN + PADDING) + col)
            for i in cutlass.range_constexpr(fours):
                vectors.write(start + 16 * i, four_of(sums, r, i, fours // 2))
        else:
            start = tile + (col * (BM + PADDING) + row)
            for i in cutlass.range_constexpr(4 * fours):
                value, column = sums[place_of(r, i // 4, i % 4, fours // 2)], i // 4 * 16 + i % 4
                vectors.write(start + column * (BM + PADDING), [value])
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    rest = *place, factors, config
    if along_n:
        store_share(tile, BN + PADDING, (BM, BN), corner, mC, mD, *rest)
    else:
        flipped = (transposed(mC), transposed(mD))
        store_share(tile, BM + PADDING, (BN, BM), corner[::-1], *flipped, *rest)
    # A block must not exit while others of its cluster read its sums.
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()


@cute.jit
def transposed(matrix: cute.Tensor) -> cute.Tensor:
    layout = cute.make_layout(matrix.shape[::-1], stride=matrix.stride[::-1])
    return cute.make_tensor(matrix.iterator, layout)


@cute.jit
def store_share(
    tile: cute.Pointer,
    pitch: cutlass.Constexpr,
    widths: cutlass.Constexpr,
    corner: tuple,
    mC: cute.Tensor,
    mD: cute.Tensor,
    rank: Int32,
    splits: Int32,
    factors: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Add a share of the tile's lines over the blocks of the cluster, in order; store it to C.

    mC, mD (lines, elements of each). widths: lines of the tile, and elements of each.
    """
    thread, _, _ = cute.arch.thread_idx()
    LINES, FOURS = widths[0], widths[1] // 4
    share = LINES * FOURS // splits
    for i in cutlass.range(thread, share, config.consumers, unroll=2):
        line, at = (rank * share + i) // FOURS, (rank * share + i) % FOURS * 4
        place = tile + (line * pitch + at)
        total = cute.make_rmem_tensor(4, Float32)
        total.fill(0.0)
        for block in cutlass.range(splits, unroll=4):
            four = vectors.read_remote(place, block)
            for e in cutlass.range_constexpr(4):
                total[e] += four[e]
        finish_four(mC, mD, (corner[0] + line, corner[1] + at), total, factors)
