"""C from the sums of a cluster's blocks: each adds up, scales and stores a share of the tile."""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels.gemm import simt


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
