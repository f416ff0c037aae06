"""The tree moves out of shared memory into registers: lanes hand values to each other.

Against `tree-sequential`: `shfl.sync` gives a lane the register of another lane of its warp. Five
shuffles add a warp's 32 values, with no barrier, no store, no load and no address. Each warp then
leaves one number in shared memory, and the first warp adds those the same way.

Barriers fall from eleven to one, shared requests of a block of 1024 from 141 to 33, and no lane is
parted from its warp in the tree: all lanes shuffle, the upper ones what nobody reads.

Traffic: n·4 bytes as before. Limited next by having one element per thread: for every 4 KB a block
is set up, a tree built, and an addition sent to an address where only one can happen at a time.
`vectorized` gives each thread many elements.
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
        change="the tree in registers: warp shuffles",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        reproducible=False,
    ),
)
