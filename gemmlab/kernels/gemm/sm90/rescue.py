"""Compute tiles of `direct` in float32 if TF32 parts cannot hold their elements."""

import cutlass
from cutlass import Float32, Int32, Uint8, Uint32, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.direct_config import MOST_ITEMS
from gemmlab.kernels.gemm.sm90.scheduling import synchronize_consumers
from gemmlab.kernels.gemm.sm90.splitting import LEAST, Side, vector_of

DEPTH = 16  # of the tiles of the float32 path
SMALLEST = Uint32((LEAST << 24) - 1)  # as `note` notes it


@cute.jit
def condemn(flags: cute.Tensor, ordinal: Int32, warp: Int32) -> None:
    """Mark a warp's share of the block's item number `ordinal` to be computed in float32."""
    flags[ordinal, warp] = Uint8(1)
    flags[MOST_ITEMS, 0] = Uint8(1)  # something is condemned


@cute.jit
def condemn_if_small(
    flags: cute.Tensor, least: cute.Tensor, ordinal: Int32, config: cutlass.Constexpr
) -> None:
    """Condemn an item if an element of it is too small."""
    if least[0] < SMALLEST:
        for warp in cutlass.range(config.warps, unroll=1):
            condemn(flags, ordinal, warp)


@cute.jit
def element_of(side: Side, vector: Int32, k: Int32) -> Float32:
    """An element of the tile of A or B; 0 outside the matrix."""
    vector += side.origin
    value = Float32(0)
    if cutlass.const_expr(side.major == "k"):
        value = simt.load_or_zero(side.matrix, vector, k)
    else:
        value = simt.load_or_zero(side.matrix, k, vector)
    return value


@cute.jit
def compute_tile(
    sums: cute.Tensor,
    coords: cute.Tensor,
    smem: cute.Pointer,
    sides: tuple,
    ends: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Compute all sums of the tile in float32, in chains of `DEPTH` terms."""
    thread, _, _ = cute.arch.thread_idx()
    BM, BN = config.block_m, config.block_n
    sA = cute.make_tensor(smem, cute.make_layout((BM, DEPTH), stride=(1, BM)))
    sB = cute.make_tensor(smem + BM * DEPTH, cute.make_layout((BN, DEPTH), stride=(1, BN)))
    chain = cute.make_rmem_tensor(sums.layout, Float32)
    sums.fill(0.0)
    for k0 in cutlass.range(ends[0], ends[1], DEPTH, unroll=1):
        for side, tile in ((sides[0], sA), (sides[1], sB)):
            for i in cutlass.range(thread, side.size * DEPTH, config.consumers, unroll=1):
                line, kk = i % side.size, i // side.size
                value = Float32(0)
                if k0 + kk < ends[1]:
                    vector = vector_of(line, BN) if cutlass.const_expr(tile is sB) else line
                    value = element_of(side, vector, k0 + kk)
                tile[line, kk] = value
        synchronize_consumers(config)
        chain.fill(0.0)
        for kk in cutlass.range(DEPTH, unroll=1):
            rA = cute.make_rmem_tensor(2, Float32)
            for r in cutlass.range_constexpr(2):
                rA[r] = sA[coords[(0, r, 0), 0, 0][0], kk]
            for j in cutlass.range_constexpr(BN // 8):
                for e in cutlass.range_constexpr(2):
                    value = sB[coords[(e, 0, j), 0, 0][1], kk]
                    for r in cutlass.range_constexpr(2):
                        chain[(e, r, j), 0, 0] += rA[r] * value
        sums.store(sums.load() + chain.load())
        synchronize_consumers(config)
