"""Four loads in flight: a thread reads four elements before it stores the first.

Change from `shared-padded`: each iteration over rows issues four independent global loads into
registers, then four stores to shared memory. The way out is unrolled by four as well. Traffic,
coalescing and padding are unchanged, and so are requests, sectors and wavefronts. Fewer loop
instructions remain, and a warp waits for memory four times instead of sixteen.

By Little's law, bandwidth × latency bytes must be in flight to keep memory busy. With one load per
thread in flight, that takes occupancy alone. Unrolling without padding would lose to bank conflicts
what it gains. Limiter: memory bandwidth, 8·M·N bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.kernels.transpose import simt


@dataclass(frozen=True)
class Config:
    """The square tile, words from row to row, rows moved at a time, and loads in flight."""

    tile: int = 64
    stride: int = 65
    rows: int = 4
    loads: int = 4

    def __post_init__(self) -> None:
        simt.check_tile(self)
        step = self.rows * self.loads
        rule = f"tile = {self.tile} is not a multiple of rows × loads = {step}"
        common.require(self.loads > 0 and self.tile % step == 0, rule)


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
    TILE, ROWS, LOADS = config.tile, config.rows, config.loads

    sT = simt.shared_tile(TILE, config.stride)  # (TILE, TILE), rows of A
    row, col = by * TILE, bx * TILE

    rT = cute.make_rmem_tensor(LOADS, Float32)
    for i in cutlass.range(0, TILE, ROWS * LOADS, unroll=1):
        for j in cutlass.range_constexpr(LOADS):
            if row + i + j * ROWS + ty < m and col + tx < n:
                rT[j] = mA[row + i + j * ROWS + ty, col + tx]
        for j in cutlass.range_constexpr(LOADS):
            sT[i + j * ROWS + ty, tx] = rT[j]
    cute.arch.sync_threads()
    for i in cutlass.range(0, TILE, ROWS * LOADS, unroll=1):
        for j in cutlass.range_constexpr(LOADS):
            if col + i + j * ROWS + ty < n and row + tx < m:
                mB[col + i + j * ROWS + ty, row + tx] = sT[tx, i + j * ROWS + ty]


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    columns = common.ceil_div(shape["n"], config.tile)
    rows = common.ceil_div(shape["m"], config.tile)
    return Geometry((columns, rows, 1), (config.tile, config.rows, 1))


RUNGS = (
    Rung(
        name="ilp",
        problem="transpose",
        change="four loads in flight",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"tile": (32, 64), "stride": (33, 65), "rows": (2, 4, 8), "loads": (2, 4, 8)},
        requires=common.fits_grid(geometry),
    ),
)
