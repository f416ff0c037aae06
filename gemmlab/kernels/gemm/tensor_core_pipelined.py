"""Asynchronous copies fill a ring of stages while tensor cores multiply; a swizzle frees the banks.

Change from `tensor-core`: there a block loads a tile, waits, multiplies, waits. Here cp.async moves
tiles from global to shared memory past the registers, and a tile is multiplied while the next one
is on its way. One barrier per tile is left. Tiles are 64 deep, so their lines have 128 bytes, all
banks: eight lines of a column would take eight wavefronts. The chunk x of 16 bytes of line y is
therefore kept at x xor (y mod 8), and ldmatrix reads eight lines in one.

Shared memory: 32 KB for each part of a tile, two parts, two tiles. Global traffic is that of
`tensor-core`. Products and sums are the same, in the same order, and so are the bits of C.

Limiter: shared memory. ldmatrix moves every fragment through registers, to each warp that needs it:
12 loads of 512 bytes for 48 mma of a warp. `wgmma` reads its operands from shared memory itself.
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
