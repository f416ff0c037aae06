"""C from the sums of a cluster's blocks: each adds up, scales and stores a share of the tile."""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.splitting import vector_of

PADDING = 4  # words behind each line of the tile of sums: 16-byte accesses, few bank conflicts


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
def store_sums(
    sums: cute.Tensor,
    corner: tuple,
    mC: cute.Tensor,
    mD: cute.Tensor,
    factors: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Store a thread's sums to C. corner: its first row and column; see `splitting.vector_of`."""
    quarter = config.block_n // 32
    row, col = corner
    alpha, beta = factors
    wide = mC.stride[1] == 1 and simt.allows_quads(mC.iterator, mC.stride[0])
    wide = wide and row + 8 < mC.shape[0] and col + (config.block_n - 12) <= mC.shape[1]
    if wide:
        for i in cutlass.range_constexpr(4 * quarter):
            e, r, j = i % 2, i // 2 % 2, i // 4
            at, four = (row + 8 * r, col + (2 * j + e) * 16), cute.make_rmem_tensor(4, Float32)
            for q in cutlass.range_constexpr(4):
                four[q] = alpha * sums[(e, r, j + q * quarter), 0, 0]
            if beta != 0:
                for q in cutlass.range_constexpr(4):
                    four[q] += beta * mD[at[0], at[1] + q]
            simt.quad(mC, at).store(four.load())
    else:
        for i in cutlass.range_constexpr(cute.size(sums)):
            e, r, j, q = i % 2, i // 2 % 2, i // 4 % quarter, i // 4 // quarter
            at = row + 8 * r, col + (2 * j + e) * 16 + q
            if at[0] < mC.shape[0] and at[1] < mC.shape[1]:
                value = alpha * sums[i]
                if beta != 0:
                    value += beta * mD[at]
                mC[at] = value


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
