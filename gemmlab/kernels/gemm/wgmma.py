"""A warpgroup of four warps multiplies tiles in shared memory by wgmma, Hopper's instruction.

Change from `tensor-core-pipelined`: there ldmatrix copies fragments into the registers of every
warp that needs them. A wgmma of 64×128×16 is issued by the 128 threads of a warpgroup together, and
reads A and B from shared memory. Descriptors give it address, swizzle and row distance of each. It
runs asynchronously: `commit_group` closes a group of wgmma, `wait_group` waits for it. For a tile,
24 wgmma replace 1,536 mma, and no fragment takes a register.

Shared memory is accessed through two proxies: cp.async writes through the generic proxy, wgmma
reads through the asynchronous one. A fence before the barrier makes the writes visible to wgmma.

C has the same bits, because products and additions occur in the same order. Limiter: one warpgroup
both copies and multiplies, so no wgmma is issued while it computes addresses for cp.async.
"""

from dataclasses import dataclass

import cutlass
from cutlass import Constexpr, Float16, Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup

from gemmlab.kernels.common import require
from gemmlab.kernels.gemm import packed, simt
from gemmlab.kernels.gemm.packed import LINE, PARTS, PRODUCTS
from gemmlab.kernels.gemm.sm90.config import MAX_SUMS
from gemmlab.kernels.gemm.sm90.sizes import MMA_K, MMA_M, WARPGROUP
from gemmlab.kernels.gemm.sm90.tiles import tiles_of


@dataclass(frozen=True)
class Config(packed.Config):
    """A block is one warpgroup."""

    def __post_init__(self) -> None:
        super().__post_init__()
        packed.check_ring(self)
        packed.check_copies(self)
        check_sums(self, self.block_m)


def check_sums(config: packed.Config, rows: int) -> None:
    """Rules of a warpgroup that holds the sums of `rows` rows of the block of C."""
    sums = rows * config.block_n // WARPGROUP
    rule = (
        f"{rows} rows of block_n = {config.block_n} are {sums} sums per thread, at most {MAX_SUMS}"
    )
    require(sums <= MAX_SUMS, rule)
    for name in ("block_m", "block_n"):
        size = getattr(config, name)
        require(size <= 256, f"{name} = {size}, at most 256 are allowed")


def tiled_mma(config: packed.Config) -> cute.TiledMma:
    """wgmma of 64 × block_n × 16, both operands in shared memory."""
    modes = {"k": OperandMajorMode.K, "mn": OperandMajorMode.MN}
    shape, source = (MMA_M, config.block_n, MMA_K), warpgroup.OperandSource.SMEM
    majors = modes["k"], modes[config.b_major]
    op = warpgroup.MmaF16BF16Op(Float16, Float32, shape, source, *majors)
    mma = cute.make_tiled_mma(cute.make_mma_atom(op))
    mma.set(warpgroup.Field.ACCUMULATE, True)
    return mma


@cute.jit
def multiply(mma, sA, sB, sums, first: Int32):
    """Issue sums += A·B for the tile whose parts are in the stages from `first` on, as a group."""
    own = mma.get_slice(0)
    rA = mma.make_fragment_A(own.partition_A(sA))
    rB = mma.make_fragment_B(own.partition_B(sB))
    warpgroup.fence()
    for kk in cutlass.range_constexpr(LINE // MMA_K):
        for a, b in PRODUCTS:
            tA, tB = rA[None, None, kk, first + a], rB[None, None, kk, first + b]
            cute.gemm(mma, sums, tA, tB, sums)
    warpgroup.commit_group()


@cute.jit
def store(sums, corner, mC, scales, config: Constexpr):
    """Store a warpgroup's rows of C, which begin at `corner`: of 64 rows, each warp has 16."""
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4
    size = config.block_n // 2  # of a thread's sums in 64 rows
    for i in cutlass.range_constexpr(cute.size(sums) // size):
        layout = cute.make_layout((2, 2, config.block_n // 8), stride=(1, 2, 4))
        at = corner[0] + MMA_M * i + 16 * warp, corner[1]
        packed.store_rows(cute.make_tensor(sums.iterator + size * i, layout), at, mC, scales)


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
    mma = tiled_mma(config)
    sums = packed.no_sums(mma.partition_shape_C((BM, BN)))
    tiles = cute.ceil_div(k, BK)
    for t in cutlass.range_constexpr(TILES - 1):
        if t < tiles:
            packed.fetch_tiles(matrices, rings, (by, bx), t, config)
        cute.arch.cp_async_commit_group()
    for t in cutlass.range(tiles, unroll=1):
        cute.arch.cp_async_wait_group(TILES - 2)
        cute.arch.fence_view_async_shared()
        cute.arch.sync_threads()
        multiply(mma, sA, sB, sums, t % TILES * PARTS)
        if t + TILES - 1 < tiles:
            packed.fetch_tiles(matrices, rings, (by, bx), t + TILES - 1, config)
        cute.arch.cp_async_commit_group()
        warpgroup.wait_group(0)
    mC = cute.make_tensor(c, cute.make_layout((m, n), stride=(ldc, 1)))
    store(sums, (by * BM, bx * BN), mC, (unscale_a, unscale_b), config)
