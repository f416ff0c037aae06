"""A is transposed on its way into shared memory, so both fragments are rows there.

Change from `float4`: the tile of A is stored as (BK, BM). The eight elements of A for a step in k
are then consecutive, like those of B: two LDS.128 each. `float4` reads A for four steps at once.
The price: four scalar stores after one LDG.128, with two lanes of a warp in each bank. Global
traffic stays M·N·K·(1/BM + 1/BN) elements.

Two causes add wavefronts. Neighbouring threads read B 8 elements apart, so of the eight lanes that
an LDS.128 serves at a time, two meet in each bank. Stores to k and k + 4 are 4·BM words apart: the
same bank. `padded` skips four words after every 32 and after each row. `swizzled` stays dense and
permutes fours: bit 5 of x flips its bit 2, bit 2 of k flips bit 4 of x. Both separate every pair of
colliding lanes, and no excess wavefronts remain.

Limiter: wavefronts that no layout removes: a warp computes 16×128 of C and reads 16 + 128 elements
per step for it. `warp-tile` changes that shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.rung import Geometry, Rung

ARRANGEMENTS = ("plain", "padded", "swizzled")


@dataclass(frozen=True)
class Config:
    """Block of C, depth of the tiles, and elements of C per thread."""

    layout: str = "row"
    block_m: int = 128
    block_n: int = 128
    block_k: int = 8
    thread_m: int = 8
    thread_n: int = 8
    arrangement: str = "plain"

    @property
    def threads(self) -> int:
        return (self.block_m // self.thread_m) * (self.block_n // self.thread_n)

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        simt.check_tiles(self)
        simt.check_fours(self)
        rule = f"arrangement is {self.arrangement!r}, must be one of {', '.join(ARRANGEMENTS)}"
        common.require(self.arrangement in ARRANGEMENTS, rule)
        for name, extent in (("block_m", self.block_m), ("block_n", self.block_n)):
            common.require(extent % 64 == 0, f"{name} = {extent}, must be a multiple of 64")


def pitch(config: Config, width: int) -> int:
    """Elements from one k to the next in a tile `width` wide."""
    return width // 32 * 36 + 4 if config.arrangement == "padded" else width


def offset(config: Config, k: Int32, x: Int32, width: int) -> Int32:
    """The offset of element (k,x) in a tile. Aligned groups of four along x stay together."""
    if config.arrangement == "padded":
        x = x + x // 32 * 4
    if config.arrangement == "swizzled":
        x = x ^ (x // 32 % 2 * 4) ^ (k // 4 % 2 * 16)
    return k * pitch(config, width) + x


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
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    mA, mB, mC = simt.matrices(a, b, c, (m, n, k), (lda, ldb, ldc), config.layout)
    BM, BN, BK = config.block_m, config.block_n, config.block_k
    TM, TN = config.thread_m, config.thread_n

    sA = simt.shared_array(BK * pitch(config, BM))
    sB = simt.shared_array(BK * pitch(config, BN))
    rC = cute.make_rmem_tensor((TM, TN), Float32)
    rC.fill(0.0)

    # Each thread stages four consecutive elements, of A along k and of B along its unit stride.
    unit = simt.unit_axis(config)
    thread = ty * (BN // TN) + tx
    a_k, a_m = simt.four_of(thread, BK, BM, 0)
    b_k, b_n = simt.four_of(thread, BK, BN, unit)

    # Uniform across the block, so no warp diverges.
    inside = by * BM + BM <= m and bx * BN + BN <= n
    wide_loads = inside and simt.allows_quads(a, lda) and simt.allows_quads(b, ldb)
    wide_stores = inside and simt.allows_quads(c, ldc)

    for k0 in cutlass.range(0, k, BK):
        wide = wide_loads and k0 + BK <= k
        four_a = simt.load_four(mA, by * BM + a_m, k0 + a_k, 1, wide)
        four_b = simt.load_four(mB, k0 + b_k, bx * BN + b_n, unit, wide)
        for e in cutlass.range_constexpr(4):
            sA[offset(config, a_k, a_m, BM) + e * pitch(config, BM)] = four_a[e]
        if cutlass.const_expr(unit == 0):
            for e in cutlass.range_constexpr(4):
                sB[offset(config, b_k, b_n, BN) + e * pitch(config, BN)] = four_b[e]
        else:
            simt.write_four(sB, offset(config, b_k, b_n, BN), four_b)
        cute.arch.sync_threads()
        for kk in cutlass.range_constexpr(BK):
            rows = [ty * TM + i for i in range(0, TM, 4)]
            columns = [tx * TN + j for j in range(0, TN, 4)]
            rA = [x for i in rows for x in simt.read_four(sA, offset(config, kk, i, BM))]
            rB = [x for j in columns for x in simt.read_four(sB, offset(config, kk, j, BN))]
            for i in cutlass.range_constexpr(TM):
                for j in cutlass.range_constexpr(TN):
                    rC[i, j] += rA[i] * rB[j]
        cute.arch.sync_threads()

    row, col = by * BM + ty * TM, bx * BN + tx * TN
    simt.store_block(mC, row, col, rC, (4, 4), unit, wide_stores)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    block = (config.block_n // config.thread_n, config.block_m // config.thread_m, 1)
    return Geometry(simt.grid(config, shape), block)


rung = partial(
    Rung,
    problem="gemm",
    kernel=kernel,
    geometry=geometry,
    choices={
        **dict.fromkeys(("block_m", "block_n"), (64, 128, 256)),
        "block_k": (4, 8, 16),
        **dict.fromkeys(("thread_m", "thread_n"), (4, 8)),
    },
    requires=common.fits_grid(geometry),
)
RUNGS = (
    rung(name="float4-transposed-a", change="A transposed in shared memory", config=Config()),
    rung(
        name="padded", change="padding to avoid bank conflicts", config=Config(arrangement="padded")
    ),
    rung(
        name="swizzled",
        change="a swizzle instead of padding",
        config=Config(arrangement="swizzled"),
    ),
)
