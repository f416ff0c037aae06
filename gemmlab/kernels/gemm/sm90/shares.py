"""C from the sums of a cluster's blocks: each adds up, scales and stores a share of the tile."""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.splitting import ROWS, vector_of

PADDING = 4  # padding words per line of the tile of sums: 16-byte accesses, few bank conflicts


@cute.jit
def matrices(starts: tuple, shape: tuple, strides: tuple) -> tuple:
    """C and D as tensors."""
    return tuple(
        cute.make_tensor(start, cute.make_layout(shape, stride=stride))
        for start, stride in zip(starts, strides, strict=True)
    )


@cute.jit
def load_remote_four(pointer: cute.Pointer, block: Int32) -> cute.Tensor:
    """Four floats at the same address in the shared memory of another block of the cluster."""
    address = cute.arch.map_dsmem_ptr(pointer, block).toint()
    text = "ld.shared::cluster.v4.f32 {{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}];"
    found = cute.arch.inline_ptx(text, write_only_types=[Float32] * 4, read_only_args=[address])
    four = cute.make_rmem_tensor(4, Float32)
    for e in cutlass.range_constexpr(4):
        four[e] = found[e]
    return four


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


@cute.jit
def four_of(sums: cute.Tensor, r: cutlass.Constexpr, i: cutlass.Constexpr) -> cute.Tensor:
    """Four adjacent sums in row `r`, 0 or 1, of the thread's; see `store_sums`."""
    quarter = sums.shape[0][2] // 4
    four = cute.make_rmem_tensor(4, Float32)
    for q in cutlass.range_constexpr(4):
        four[q] = sums[(i % 2, r, i // 2 + q * quarter), 0, 0]
    return four


@cute.jit
def scale_sums(
    sums: cute.Tensor, corner: tuple, shape: tuple, mD: cute.Tensor, factors: tuple
) -> None:
    """sums = alpha · sums + beta · D. shape: of C, outside of which D is not read."""
    row, col = corner
    alpha, beta = factors
    for i in cutlass.range_constexpr(cute.size(sums)):
        sums[i] *= alpha
    if beta != 0:
        quarter = sums.shape[0][2] // 4
        for i in cutlass.range_constexpr(cute.size(sums)):
            e, r, j, q = i % 2, i // 2 % 2, i // 4 % quarter, i // 4 // quarter
            at = row + 8 * r, col + (2 * j + e) * 16 + q
            if at[0] < shape[0] and at[1] < shape[1]:
                sums[i] += beta * mD[at]


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
        start = mC.iterator + cute.crd2idx((row + 8 * r, col), mC.layout)
        left = mC.shape[1] - col  # columns from the thread's first one on
        if row + 8 * r >= mC.shape[0]:
            left = Int32(0)
        if mC.stride[1] != 1:
            for i in cutlass.range_constexpr(fours):
                four = four_of(sums, r, i)
                for q in cutlass.range_constexpr(4):
                    if 16 * i + q < left:
                        simt.element(start, (16 * i + q) * mC.stride[1])[0] = four[q]
        elif inside and simt.allows_quads(mC.iterator, mC.stride[0]):
            for i in cutlass.range_constexpr(fours):
                store_aligned(four_of(sums, r, i), start + 16 * i)
        else:
            store_shifted(sums, r, start, left, fours)


@cute.jit
def store_aligned(four: cute.Tensor, target: cute.Pointer) -> None:
    """Store four elements at an address that is a multiple of 16."""
    aligned = cute.make_ptr(Float32, target.toint(), target.memspace, assumed_align=16)
    cute.make_tensor(aligned, cute.make_layout(4)).store(four.load())


@cute.jit
def rotated(four: cute.Tensor, shift: Int32) -> cute.Tensor:
    """The four elements, rotated so that element `shift`, 0 to 3, comes first."""
    for distance in (1, 2):
        turned = cute.make_rmem_tensor(4, Float32)
        for e in cutlass.range_constexpr(4):
            value = four[e]
            if shift & distance != 0:
                value = four[(e + distance) % 4]
            turned[e] = value
        four = turned
    return four


@cute.jit
def store_shifted(
    sums: cute.Tensor,
    r: cutlass.Constexpr,
    start: cute.Pointer,
    left: Int32,
    fours: cutlass.Constexpr,
) -> None:
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
    four = four_of(sums, r, 0)
    for e in cutlass.range_constexpr(3):
        if own == 0 and e < shift and e < left:
            simt.element(start, e)[0] = four[e]
    held, start, left = rotated(four, shift), start + shift, left - shift
    for i in cutlass.range_constexpr(fours):
        following = rotated(four_of(sums, r, min(i + 1, fours - 1)), shift)
        moved = cute.make_rmem_tensor(4, Float32)
        moved[0] = held[0]
        for e in cutlass.range_constexpr(1, 4):
            given = held[e]
            if own == 0:
                given = following[e]
            taken = cute.arch.shuffle_sync(given, neighbor)
            moved[e] = held[e]
            if e + shift >= 4:
                moved[e] = taken
        whole = 16 * i + 4 <= left
        if cutlass.const_expr(i == fours - 1):
            whole = whole and (own < 3 or shift == 0)
        if whole:
            store_aligned(moved, start + 16 * i)
        else:
            for e in cutlass.range_constexpr(4):
                last = 16 * i + e < left
                if cutlass.const_expr(i == fours - 1):  # the tile ends
                    last = last and (own < 3 or e + shift < 4)
                if last:
                    simt.element(start, 16 * i + e)[0] = moved[e]
        held = following


@cute.jit
def store_together(
    sums: cute.Tensor,
    coords: cute.Tensor,
    tile: cute.Pointer,
    corner: tuple,
    mC: cute.Tensor,
    mD: cute.Tensor,
    place: tuple,
    factors: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Add the sums of the blocks of a cluster, which divide the tile and store a share each.

    coords: of the sums in the tile. place: the block's rank, and the number of blocks.
    """
    BM, BN = config.block_m, config.block_n
    along_n = mC.stride[1] == 1  # C is contiguous along n or along m, and so is the tile
    strides = Int32(BN + PADDING), Int32(1)
    if not along_n:
        strides = Int32(1), Int32(BM + PADDING)
    tile_sums = cute.make_tensor(tile, cute.make_layout((BM, BN), stride=strides))
    for i in cutlass.range_constexpr(cute.size(sums)):
        row, col = coords[i]
        tile_sums[row, vector_of(col, BN)] = sums[i]
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
    for i in cutlass.range(thread, share, config.threads, unroll=2):
        line, at = (rank * share + i) // FOURS, (rank * share + i) % FOURS * 4
        address = (tile + (line * pitch + at)).toint()
        place = cute.make_ptr(Float32, address, tile.memspace, assumed_align=16)
        total = cute.make_rmem_tensor(4, Float32)
        total.store(cute.make_tensor(place, cute.make_layout(4)).load())
        if splits > 1:
            total.fill(0.0)
            for block in cutlass.range(splits, unroll=4):
                four = load_remote_four(place, block)
                for e in cutlass.range_constexpr(4):
                    total[e] += four[e]
        finish_four(mC, mD, (corner[0] + line, corner[1] + at), total, factors)
