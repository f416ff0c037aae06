"""Warps multiply on tensor cores: one mma.sync is a 16×8×16 product of float16 tiles.

Change from `async-copy`: each float32 number becomes the sum of two float16 numbers, hi + lo, and
A·B becomes lo·hi + hi·lo + hi·hi. Two launches split A and B; a last one repairs rows that contain
infinities or NaNs. `ldmatrix` loads 8×8 tiles from shared memory and distributes their elements to
the lanes as `mma.sync` requires. Per clock, a multiprocessor of an H200 does 128 multiply-adds on
its FP32 units and 2048 on its tensor cores, a third of which are useful here.

A warp computes 64×32 of C. For 16 of k it loads 12 fragments of four 8×8 tiles and issues 48 mma. A
product of two float16 numbers is exact, but a tensor core truncates its sums where float32 rounds.
These errors all have the same direction and grow with k: see the column "error u" of the climb.

Limiter: latency. Loading and multiplying alternate, and bank conflicts slow ldmatrix: four to eight
rows of an 8×8 tile lie in the same banks.
"""

from dataclasses import dataclass

import cutlass
from cutlass import Constexpr, Float16, Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import warp

from gemmlab.kernels.common import require
from gemmlab.kernels.gemm import packed, simt
from gemmlab.kernels.gemm.packed import EIGHT, PARTS, PRODUCTS


@dataclass(frozen=True)
class Config(packed.WarpTiles):
    """Room for one tile of A and of B, in two parts."""

    stages: int = PARTS
    block_k: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.stages == PARTS, f"stages = {self.stages}, must be {PARTS}: one tile")


@cute.jit
def fetch(matrix, tile, corner, config: Constexpr):
    """Copy all parts of a tile (lines, elements, part) at `corner`; zeros outside the matrix."""
    thread, _, _ = cute.arch.thread_idx()
    lines, width, _ = tile.shape
    turns = lines * width // (EIGHT * config.threads)
    held = cute.make_rmem_tensor((EIGHT, PARTS * turns), Float16)
    held.fill(0.0)
    for r in cutlass.range_constexpr(PARTS * turns):
        i = thread + r // PARTS * config.threads
        line, x = corner[0] + i // (width // EIGHT), corner[1] + i % (width // EIGHT) * EIGHT
        if line < matrix.shape[0] and x < matrix.shape[1]:
            offset = cute.crd2idx((line, x, r % PARTS), matrix.layout)
            held[None, r].store(packed.eight(matrix.iterator, offset).load())
    for r in cutlass.range_constexpr(PARTS * turns):
        i = thread + r // PARTS * config.threads
        at = i // (width // EIGHT), i % (width // EIGHT) * EIGHT, r % PARTS
        packed.eight(tile.iterator, cute.crd2idx(at, tile.layout)).store(held[None, r].load())


def warp_mma() -> cute.TiledMma:
    """mma.sync of 16×8×16, in pairs along n: one ldmatrix loads four 8×8 tiles, of B for both."""
    op = warp.MmaF16BF16Op(Float16, Float32, (16, 8, 16))
    return cute.make_tiled_mma(op, (1, 1, 1), permutation_mnk=(16, 16, 16))


def fragments(mma: cute.TiledMma, tile: cute.Tensor, operand: str, major: str) -> cute.Tensor:
    """Load the lane's elements of a warp's tile (rows of A or columns of B, 16 of k)."""
    lane = cute.arch.lane_idx()
    atom = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(major == "mn", 4), tile.element_type)
    own = mma.get_slice(lane)
    if operand == "a":
        copy = cute.make_tiled_copy_A(atom, mma).get_slice(lane)
        held = mma.make_fragment_A(own.partition_A(tile))
    else:
        copy = cute.make_tiled_copy_B(atom, mma).get_slice(lane)
        held = mma.make_fragment_B(own.partition_B(tile))
    cute.copy(copy, copy.partition_S(tile), copy.retile(held))
    return held


@cute.jit
def multiply(mma, tA, tB, sums, config: Constexpr):
    """sums += A·B, for lists of the parts of the warp's tiles (rows, k) and (columns, k)."""
    for kk in cutlass.range_constexpr(config.block_k // 16):
        at = (0, kk)
        rA = [fragments(mma, cute.local_tile(t, (t.shape[0], 16), at), "a", "k") for t in tA]
        rB = [
            fragments(mma, cute.local_tile(t, (t.shape[0], 16), at), "b", config.b_major)
            for t in tB
        ]
        for a, b in PRODUCTS:
            cute.gemm(mma, sums, rA[a], rB[b], sums)


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
    mA, mB = packed.operands(a, b, (m, n, k), (lda, ldb), config)
    BM, BN, BK = config.block_m, config.block_n, config.block_k
    smem = cute.arch.get_dyn_smem(Float16, alignment=128)
    sA = packed.tile(smem, BM, BK)
    sB = packed.tile(smem + cute.size(sA), *config.b_tile)
    row, col = packed.warp_tile(config)
    tA = [cute.local_tile(sA[None, None, p], (config.warp_m, BK), (row, 0)) for p in range(PARTS)]
    tB = [
        cute.local_tile(packed.columns(sB[None, None, p], config), (config.warp_n, BK), (col, 0))
        for p in range(PARTS)
    ]
    mma = warp_mma()
    sums = packed.no_sums(mma.partition_shape_C((config.warp_m, config.warp_n)))
    for k0 in cutlass.range(0, k, BK, unroll=1):
        fetch(mA, sA, (by * BM, k0), config)
        fetch(mB, sB, (k0, bx * BN) if config.b_major == "mn" else (bx * BN, k0), config)
        cute.arch.sync_threads()
        multiply(mma, tA, tB, sums, config)
        cute.arch.sync_threads()
    mC = cute.make_tensor(c, cute.make_layout((m, n), stride=(ldc, 1)))
    packed.store_warp_tile(sums, (by * BM, bx * BN), mC, (unscale_a, unscale_b), config)
