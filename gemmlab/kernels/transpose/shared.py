"""A tile passes through shared memory, so global reads and writes both run along rows.

Change from `naive`: a block copies a 64×64 tile of A to shared memory row by row, waits, and writes
rows of B, for which it reads columns of the tile. Global loads and stores take 4 sectors per
request each. The strided side is now in shared memory, where strides are cheap.

Cheap, but not free: shared memory has 32 banks of 4 bytes, and neighbouring elements of a column
are `stride` words apart. With stride 64 (`shared`) the 32 reads of a warp fall into one bank and
take 32 wavefronts. With stride 65 (`shared-padded`, one unused word per row) they fall into 32
banks and take one: stride s puts gcd(s, 32) lanes on a bank. The two rungs differ only in s.

Each thread moves 16 elements in sequence and waits for every load. Limiter: that latency. `ilp` has
four loads in flight.
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
    """The square tile, words from row to row, and rows moved at a time."""

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
    columns = common.ceil_div(shape["n"], config.tile)
    rows = common.ceil_div(shape["m"], config.tile)
    return Geometry((columns, rows, 1), (config.tile, config.rows, 1))


RUNGS = tuple(
    Rung(
        name=name,
        problem="transpose",
        change=change,
        kernel=kernel,
        config=config,
        geometry=geometry,
        choices={"tile": (32, 64), "stride": (32, 33, 64, 65), "rows": (2, 4, 8)},
        requires=common.fits_grid(geometry),
    )
    for name, change, config in (
        ("shared", "a 64×64 tile in shared memory", Config()),
        ("shared-padded", "a padded tile: no bank conflicts", Config(stride=65)),
    )
)
