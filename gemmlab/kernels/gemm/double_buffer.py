"""The next tile is loaded from global memory while the current one is multiplied.

Change from `warp-tile`: shared memory holds two tiles of each matrix. An iteration loads the next
tile into eight registers, waits at the barrier, multiplies the current tile, then stores the loaded
tile to the other buffer. One barrier per tile remains: the current tile is stored, and the buffer
written next has no remaining readers. The loads precede the barrier, which keeps the compiler from
moving them down to their use. Whole tiles have their own loop, without guards; the remainder in k
and blocks at an edge take the second. The launch bound (2 blocks, 128 registers) doubles the
resident warps. Only idle time shrinks: no counter changes.

Global traffic: M·N·K·(1/BM + 1/BN) elements from L2. DRAM traffic depends on which W blocks run
together: in one row they read W + 1 strips of A and B, in R rows W/R + R. `rasterized` walks bands
of R = 8 rows of blocks column by column. Limiter: issue slots.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Block of C, depth of the tiles, and elements of C per warp and per thread."""

    layout: str = "row"
    block_m: int = 128
    block_n: int = 128
    block_k: int = 8
    warp_m: int = 32
    warp_n: int = 64
    thread_m: int = 8
    thread_n: int = 8
    group: int = 1  # rows of blocks in a band that is walked column by column
    min_blocks: int = 2  # per multiprocessor: at most 128 registers

    @property
    def threads(self) -> int:
        return (self.block_m // self.thread_m) * (self.block_n // self.thread_n)

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        simt.check_tiles(self)
        simt.check_fours(self)
        simt.check_warps(self)
        common.require(
            self.block_k.bit_count() == 1, f"block_k = {self.block_k}, must be a power of two"
        )
        common.require(self.group > 0, f"group = {self.group}, must be positive")


@cute.jit
def product(mA, mB, corner, ks, wide: cutlass.Boolean, config: cutlass.Constexpr):
    """The thread's elements (TM, TN) of the block of A·B at `corner`, summed over k.

    ks: first and last + 1; the first is a multiple of 2·BK. wide: whether 128-bit loads are legal.
    """
    thread, _, _ = cute.arch.thread_idx()
    BM, BN, BK = config.block_m, config.block_n, config.block_k
    sA = simt.shared_tile(2 * BK, BM, padding=4)  # two tiles (BK, BM)
    sB = simt.shared_tile(2 * BK, BN, padding=4)  # two tiles (BK, BN)
    rC = cute.make_rmem_tensor((config.thread_m, config.thread_n), Float32)
    rC.fill(0.0)

    # Each thread stages four consecutive elements, of A along k and of B along its unit stride.
    unit, (first, last) = simt.unit_axis(config), ks
    a_k, a_m = simt.four_of(thread, BK, BM, 0)
    b_k, b_n = simt.four_of(thread, BK, BN, unit)
    row_a, col_b = corner[0] + a_m, corner[1] + b_n
    t_m, t_n = simt.warp_place(thread, config)

    whole = first  # end of the tiles with 128-bit loads
    if wide:
        whole = first + ((last - first) & -BK)
    if whole > first:
        simt.stage(sA, a_k, a_m, simt.quad(mA, (row_a, first + a_k)).load(), 0)
        simt.stage(sB, b_k, b_n, simt.quad(mB, (first + b_k, col_b)).load(), unit)
    for k0 in cutlass.range(first, whole, BK):
        now, ahead = k0 & BK, cutlass.min(k0 + BK, whole - BK)
        four_a = simt.quad(mA, (row_a, ahead + a_k)).load()
        four_b = simt.quad(mB, (ahead + b_k, col_b)).load()
        cute.arch.sync_threads()
        simt.multiply(sA, sB, rC, now, t_m, t_n, config)
        simt.stage(sA, (now ^ BK) + a_k, a_m, four_a, 0)
        simt.stage(sB, (now ^ BK) + b_k, b_n, four_b, unit)

    # The remainder in k; all of k for a block at an edge.
    for k0 in cutlass.range(whole, last, BK):
        cute.arch.sync_threads()
        four_a = simt.load_four(mA, row_a, k0 + a_k, 1, False)
        four_b = simt.load_four(mB, k0 + b_k, col_b, unit, False)
        simt.stage(sA, a_k, a_m, four_a, 0)
        simt.stage(sB, b_k, b_n, four_b, unit)
        cute.arch.sync_threads()
        simt.multiply(sA, sB, rC, 0, t_m, t_n, config)
    return rC


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    lda: Int64,
    ldb: Int64,
    ldc: Int64,
    config: cutlass.Constexpr,
):
    bx, by = simt.walk(config.group)
    mA, mB, mC = simt.matrices(a, b, c, (m, n, k), (lda, ldb, ldc), config.layout)
    row, col = by * config.block_m, bx * config.block_n

    # Uniform across the block, so no warp diverges.
    inside = row + config.block_m <= m and col + config.block_n <= n
    wide_loads = inside and simt.allows_quads(a, lda) and simt.allows_quads(b, ldb)
    wide_stores = inside and simt.allows_quads(c, ldc)

    rC = product(mA, mB, (row, col), (0, k), wide_loads, config)
    simt.store_warp_tiles(mC, row, col, rC, wide_stores, config)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry(simt.grid(config, shape), (config.threads, 1, 1))


rung = partial(
    Rung,
    problem="gemm",
    kernel=kernel,
    geometry=geometry,
    choices={**simt.WARP_TILES, "group": (1, 8), "min_blocks": (1, 2)},
    requires=common.fits_grid(geometry),
)
RUNGS = (
    rung(name="double-buffer", change="loads the next tile while computing", config=Config()),
    rung(name="rasterized", change="blocks in compact groups for L2 reuse", config=Config(group=8)),
)
