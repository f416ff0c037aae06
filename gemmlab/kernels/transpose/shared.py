"""A tile goes through shared memory, so that global reads and writes both run along rows.

Against `naive`: a block copies a 64×64 tile of A into shared memory row by row, waits, and writes
it out again row by row of B, which means reading it column by column. Global loads and stores are
4 sectors per request each. The strided side has moved to where strides are cheap: shared memory.

Cheap, but not free: it has 32 banks of 4 bytes, and neighbouring elements of a column lie `stride`
words apart. With stride 64 (`shared`) a warp's 32 reads fall into one bank and take 32 wavefronts.
With stride 65 (`shared-padded`, one unused word per row) they fall into 32 banks and take one:
stride s gives gcd(s, 32) lanes per bank. The two rungs differ in that number only.

Each thread moves 16 elements one after the other, each waiting for the load before it to arrive.
Limited next by that waiting: `ilp` has four loads in flight.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.kernels.transpose import simt


@dataclass(frozen=True)
class Config:
    """The square tile, the words from one of its rows to the next, and rows moved at a time."""

    tile: int = 64
    stride: int = 64
    rows: int = 4

    def __post_init__(self) -> None:
        simt.check_tile(self)


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
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    mA, mB = simt.matrices(a, b, m, n, lda, ldb)
    TILE, ROWS = config.tile, config.rows

    sT = simt.shared_tile(TILE, config.stride)  # (TILE, TILE), rows of A
    row, col = by * TILE, bx * TILE

    for i in cutlass.range(0, TILE, ROWS, unroll=1):
        if row + i + ty < m and col + tx < n:
            sT[i + ty, tx] = mA[row + i + ty, col + tx]
    cute.arch.sync_threads()
    for i in cutlass.range(0, TILE, ROWS, unroll=1):
        if col + i + ty < n and row + tx < m:
            mB[col + i + ty, row + tx] = sT[tx, i + ty]


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    across = common.ceil_div(shape["n"], config.tile)
    down = common.ceil_div(shape["m"], config.tile)
    return Geometry((across, down, 1), (config.tile, config.rows, 1))


RUNGS = tuple(
    Rung(
        name=name,
        problem="transpose",
        change=change,
        kernel=kernel,
        config=config,
        geometry=geometry,
        requires=common.fits_grid(geometry),
    )
    for name, change, config in (
        ("shared", "a 64×64 tile in shared memory", Config()),
        ("shared-padded", "a padded tile: no bank conflicts", Config(stride=65)),
    )
)
