"""Asynchronous copies fill a ring of stages while tensor cores multiply; a swizzle frees the banks.

Change from `tensor-core`: there a block alternates between loading a tile and multiplying it. Here
cp.async copies tiles from global to shared memory without using registers, and the next tile
arrives while the current one is multiplied. One barrier per tile remains. Tiles are 64 deep, so a
line of a tile spans 128 bytes, which is all banks, and reading a column of eight lines would take
eight wavefronts. Chunk x (16 bytes) of line y is therefore stored at x xor (y mod 8): ldmatrix then
reads the eight lines in one wavefront.

Shared memory: 32 KB for each part of a tile, two parts, two tiles. Global traffic is that of
`tensor-core`. C has the same bits, because products and additions occur in the same order.

Limiter: shared memory. Each warp that needs a fragment loads it into its own registers: 12 loads of
512 bytes for every 48 mma. `wgmma` reads its operands from shared memory directly.
"""

from dataclasses import dataclass

import cutlass
from cutlass import Constexpr, Float16, Int32, Int64, cute

from gemmlab.kernels.gemm import packed, simt, tensor_core
from gemmlab.kernels.gemm.packed import PARTS
from gemmlab.kernels.gemm.sm90.tiles import tiles_of


@dataclass(frozen=True)
class Config(packed.WarpTiles):
    """A ring of stages, each with one part of a tile of A and of B."""

    def __post_init__(self) -> None:
        super().__post_init__()
        packed.check_ring(self)


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    unscale_a: cute.Pointer,
    unscale_b: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    lda: Int64,
    ldb: Int64,
    ldc: Int64,
    config: Constexpr,
):
    bx, by = simt.walk(config.group)
    matrices = packed.operands(a, b, (m, n, k), (lda, ldb), config)
    BM, BN, BK, TILES = config.block_m, config.block_n, config.block_k, config.tiles
    ring_a = cute.arch.get_dyn_smem(Float16, alignment=1024)
    ring_b = ring_a + config.stages * BM * BK
    rings = ring_a, ring_b
    sA = tiles_of(ring_a, BM, "k", config.stages)  # (BM, BK, stages)
    sB = tiles_of(ring_b, BN, config.b_major, config.stages)  # (BN, BK, stages)
    row, col = packed.warp_tile(config)
    sA = cute.local_tile(sA, (config.warp_m, BK, config.stages), (row, 0, 0))
    sB = cute.local_tile(sB, (config.warp_n, BK, config.stages), (col, 0, 0))
    mma = tensor_core.warp_mma()
    sums = packed.no_sums(mma.partition_shape_C((config.warp_m, config.warp_n)))
    tiles = cute.ceil_div(k, BK)
    for t in cutlass.range_constexpr(TILES - 1):
        if t < tiles:
            packed.fetch_tiles(matrices, rings, (by, bx), t, config)
        cute.arch.cp_async_commit_group()
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.cp_async_wait_group(TILES - 2)
        cute.arch.sync_threads()
        if t + TILES - 1 < tiles:
            packed.fetch_tiles(matrices, rings, (by, bx), t + TILES - 1, config)
        cute.arch.cp_async_commit_group()
        first = t % TILES * PARTS
        tA = [sA[None, None, first + part] for part in range(PARTS)]
        tB = [sB[None, None, first + part] for part in range(PARTS)]
        tensor_core.multiply(mma, tA, tB, sums, config)
    mC = cute.make_tensor(c, cute.make_layout((m, n), stride=(ldc, 1)))
    packed.store_warp_tile(sums, (by * BM, bx * BN), mC, (unscale_a, unscale_b), config)
