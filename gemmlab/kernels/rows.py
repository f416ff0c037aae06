"""Shared by kernels that work row by row: a row-major matrix, and sums and maxima of a warp."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.rung import Geometry

WARP = 32
LOWEST = -3.4028234663852886e38  # float32


@dataclass(frozen=True)
class Config:
    """Threads per block."""

    threads: int = 256

    def __post_init__(self) -> None:
        common.check_threads(self.threads)


@cute.jit
def matrix(x: cute.Pointer, m: Int32, n: Int32) -> cute.Tensor:
    """A row-major (m, n) matrix."""
    return cute.make_tensor(x, cute.make_layout((m, n), stride=(Int64(n), 1)))


@cute.jit
def warp_sum(value: Float32) -> Float32:
    """The sum of the warp's 32 values, in every lane."""
    for level in cutlass.range_constexpr(5):
        value += cute.arch.shuffle_sync_bfly(value, 1 << level)
    return value


@cute.jit
def warp_max(value: Float32) -> Float32:
    """The largest of the warp's 32 values, in every lane."""
    for level in cutlass.range_constexpr(5):
        value = cute.arch.fmax(value, cute.arch.shuffle_sync_bfly(value, 1 << level))
    return value


def threads_per_row(lanes: int) -> Callable[[Config, Mapping[str, int]], Geometry]:
    """Return a geometry in which `lanes` threads of a block have one row."""

    def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
        blocks = common.ceil_div(shape["m"] * lanes, config.threads)
        return Geometry((blocks, 1, 1), (config.threads, 1, 1))

    return geometry


def block_per_row(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry((shape["m"], 1, 1), (config.threads, 1, 1))
