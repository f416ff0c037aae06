"""The tree moves from shared memory to registers: lanes exchange values directly.

Change from `tree-sequential`: `shfl.sync` gives a lane the register of another lane of its warp.
Five shuffles add a warp's 32 values without barrier, store, load or address. Each warp then writes
one number to shared memory, and the first warp adds those the same way.

Per block of 1024 threads, barriers drop from eleven to one and shared requests from 141 to 33. The
tree no longer diverges: all lanes shuffle, though the results of the upper ones go unused.

Traffic: 4·n bytes as before. Limiter: one element per thread. Every 4 KB cost the start of a block,
a tree, and an atomic addition to an address that takes one at a time. `vectorized` gives each
thread many elements.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.kernels.sum import simt


@dataclass(frozen=True)
class Config:
    """Threads per block, one element each."""

    threads: int = 1024

    def __post_init__(self) -> None:
        common.check_threads(self.threads)


@cute.kernel
def kernel(x: cute.Pointer, out: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    value = simt.own_or_zero(x, n, config.threads)
    simt.add_block_sum(out, value, config.threads)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry((common.ceil_div(shape["n"], config.threads), 1, 1), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="warp-shuffle",
        problem="sum",
        change="the tree in registers, by warp shuffles",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"threads": (64, 128, 256, 512, 1024)},
        reproducible=False,
    ),
)
