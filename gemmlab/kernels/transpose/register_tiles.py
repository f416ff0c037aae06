"""Each thread transposes 4×4 elements in registers, so that every access is 128 bits wide.

Change from `ilp`: there an access moves one element per thread, in and out of shared memory. Here a
thread loads four elements of four rows of A, turns the 4×4 tile by naming its registers in another
order, and stores four columns to shared memory as rows of B. The way out is a plain copy: 128 bits
from shared memory to a row of B. A quarter of the requests move the same sectors.

Rows of the tile in shared memory are 64 words long, and lanes next to each other store four rows
apart: all in the same banks. So chunk x of row y is kept at x xor (y / 4); no word is left unused.
Blocks go down the columns of A, so that those that run at the same time write side by side.

128-bit accesses need 16-byte boundaries in all rows. Other matrices, and blocks at the edge, move
single elements, the same way. Limiter: memory bandwidth, 8·M·N bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import simt as accesses
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.kernels.transpose import simt


@dataclass(frozen=True)
class Config:
    """Rows and columns of the block of A, and threads; each has one or more tiles of 4×4."""

    block_m: int = 64
    block_n: int = 64
    threads: int = 256

    def __post_init__(self) -> None:
        for name in ("block_m", "block_n"):
            size = getattr(self, name)
            rule = f"{name} = {size}, must be a power of two from 32 to 256"
            common.require(size in (32, 64, 128, 256), rule)
        common.check_threads(self.threads)
        tiles = self.block_m * self.block_n // 16
        rule = f"{tiles} tiles of 4×4 are not a multiple of {self.threads} threads"
        common.require(tiles % self.threads == 0, rule)
        rule = f"{tiles // self.threads} tiles of 4×4 per thread, at most 8 are allowed"
        common.require(tiles // self.threads <= 8, rule)

    @property
    def turns(self) -> int:  # tiles of 4×4 per thread
        return self.block_m * self.block_n // (16 * self.threads)

    @property
    def smem(self) -> int:
        return 4 * self.block_m * self.block_n


@cute.jit
def fetch(mA: cute.Tensor, corner: tuple, wide: cutlass.Constexpr, config: cutlass.Constexpr):
    """The thread's tiles of the block of A at `corner`: (4 columns, 4 rows, turns)."""
    tx, _, _ = cute.arch.thread_idx()
    held = cute.make_rmem_tensor((4, 4, config.turns), Float32)
    for turn in cutlass.range_constexpr(config.turns):
        r, c = place(tx + turn * config.threads, config)
        for i in cutlass.range_constexpr(4):
            row, col = corner[0] + 4 * r + i, corner[1] + 4 * c
            held[None, i, turn].store(accesses.load_four(mA, row, col, 1, wide))
    return held


def place(tile: Int32, config: Config) -> tuple[Int32, Int32]:
    """Row and column of a tile of 4×4 in the block of A."""
    return tile // (config.block_n // 4), tile % (config.block_n // 4)


@cute.jit
def turn_round(held: cute.Tensor, sB: cute.Tensor, config: cutlass.Constexpr) -> None:
    """Store the thread's tiles to sB (block_n, block_m), which are columns of A by rows."""
    tx, _, _ = cute.arch.thread_idx()
    four = cute.make_rmem_tensor(4, Float32)
    for turn in cutlass.range_constexpr(config.turns):
        r, c = place(tx + turn * config.threads, config)
        for j in cutlass.range_constexpr(4):
            for i in cutlass.range_constexpr(4):
                four[i] = held[j, i, turn]
            accesses.quad(sB, (4 * c + j, swizzled(r, 4 * c + j, config))).store(four.load())


def swizzled(chunk: Int32, row: Int32, config: Config) -> Int32:
    """The column in sB at which four elements of a row of B are kept."""
    return (chunk ^ (row // 4 % (config.block_m // 4))) * 4


@cute.jit
def store(
    mB: cute.Tensor,
    corner: tuple,
    sB: cute.Tensor,
    wide: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """Store sB to the block of B at `corner`."""
    tx, _, _ = cute.arch.thread_idx()
    four = cute.make_rmem_tensor(4, Float32)
    for turn in cutlass.range_constexpr(4 * config.turns):
        at = tx + turn * config.threads
        row, chunk = at // (config.block_m // 4), at % (config.block_m // 4)
        four.store(accesses.quad(sB, (row, swizzled(chunk, row, config))).load())
        accesses.store_four(mB, corner[0] + row, corner[1] + 4 * chunk, four, 1, wide)


@cute.jit
def move(
    mA: cute.Tensor,
    mB: cute.Tensor,
    corner: tuple,
    sB: cute.Tensor,
    wide: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """Transpose the block of A at `corner` into B."""
    turn_round(fetch(mA, corner, wide, config), sB, config)
    cute.arch.sync_threads()
    store(mB, (corner[1], corner[0]), sB, wide, config)


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    m: Int32,
    n: Int32,
    lda: Int64,
    ldb: Int64,
    config: cutlass.Constexpr,
):
    block, _, _ = cute.arch.block_idx()
    rows = cute.ceil_div(m, config.block_m)
    mA, mB = simt.matrices(a, b, m, n, lda, ldb)
    row, col = block % rows * config.block_m, block // rows * config.block_n
    shape = cute.make_layout((config.block_n, config.block_m), stride=(config.block_m, 1))
    sB = cute.make_tensor(cute.arch.get_dyn_smem(Float32, alignment=16), shape)
    # Uniform across the block, so no warp diverges.
    inside = row + config.block_m <= m and col + config.block_n <= n
    if inside and accesses.allows_quads(a, lda) and accesses.allows_quads(b, ldb):
        move(mA, mB, (row, col), sB, True, config)
    else:
        move(mA, mB, (row, col), sB, False, config)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    columns = common.ceil_div(shape["n"], config.block_n)
    rows = common.ceil_div(shape["m"], config.block_m)
    return Geometry((columns * rows, 1, 1), (config.threads, 1, 1), config.smem)


RUNGS = (
    Rung(
        name="register-tiles",
        problem="transpose",
        change="4×4 tiles in registers, 128-bit accesses",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={
            "block_m": (32, 64, 128, 256),
            "block_n": (32, 64, 128, 256),
            "threads": (128, 256, 512, 1024),
        },
        requires=common.fits_grid(geometry),
    ),
)
