"""Each thread computes one result from 25 elements of the image and 25 weights.

Neighbouring threads read neighbouring elements, so requests are coalesced, but not aligned: 5 or
4 sectors each. Every element is loaded 25 times, by 25 threads; L1 serves most of it. The weights
are at one address for all lanes: one sector per request.

Traffic: 50·h·w loads and h·w stores of elements. Limiter: L1, two loads per FMA.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels import common, rows
from gemmlab.kernels.rung import Geometry, Rung

SIDE = 5


@dataclass(frozen=True)
class Config:
    """The block of results, one per thread."""

    rows: int = 8
    columns: int = 32

    def __post_init__(self) -> None:
        threads = self.rows * self.columns
        common.require(0 < threads <= common.MAX_THREADS, f"{threads} threads per block")


@cute.kernel
def kernel(
    x: cute.Pointer,
    weights: cute.Pointer,
    y: cute.Pointer,
    h: Int32,
    w: Int32,
    config: cutlass.Constexpr,
):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    mX, mY = rows.matrix(x, h, w), rows.matrix(y, h, w)
    mW = cute.make_tensor(weights, cute.make_layout((SIDE, SIDE), stride=(SIDE, 1)))

    i, j = by * config.rows + ty, bx * config.columns + tx
    if i < h and j < w:
        acc = Float32(0)
        for r in cutlass.range_constexpr(SIDE):
            for s in cutlass.range_constexpr(SIDE):
                row, column = i + r - SIDE // 2, j + s - SIDE // 2
                if row >= 0 and row < h and column >= 0 and column < w:
                    acc += mX[row, column] * mW[r, s]
        mY[i, j] = acc


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    columns = common.ceil_div(shape["w"], config.columns)
    blocks = common.ceil_div(shape["h"], config.rows)
    return Geometry((columns, blocks, 1), (config.columns, config.rows, 1))


def requires(config: Config, shape: Mapping[str, int]) -> str | None:
    blocks = geometry(config, shape).grid[1]
    if blocks <= common.MAX_GRID_Y:
        return None
    return f"h = {shape['h']} needs {blocks} blocks in grid y, at most {common.MAX_GRID_Y}"


RUNGS = (
    Rung(
        name="direct",
        problem="conv2d",
        change="one result per thread, 25 loads of x",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        requires=requires,
        choices={"rows": (4, 8, 16), "columns": (32, 64)},
    ),
)
