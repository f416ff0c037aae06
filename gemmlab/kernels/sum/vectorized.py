"""Each thread adds many elements, loaded 128 bits at a time, before the block's tree begins.

Change from `warp-shuffle`: a fixed number of blocks walks through x in a grid-stride loop, and each
thread keeps four sums. One LDG.128 replaces four loads: a quarter of the requests, the same
sectors. The tree, the barrier and the atomic addition cost once per block, not once per 4 KB.

A 128-bit load needs a 16-byte boundary. If x does not start at one, and for the last n mod 4
elements, a second loop adds single elements. The four sums are independent, so their additions
overlap. Limiter: memory bandwidth, 4·n bytes: the end of this ladder.

`deterministic` is the same kernel with one block: one sum, formed in a fixed order, is added to 0,
so the bits are the same in every run and on every device. With more blocks, the scheduler
determines the order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.kernels.sum import simt


@dataclass(frozen=True)
class Config:
    """Threads per block, and the most blocks in the grid."""

    threads: int = 256
    blocks: int = 1024

    def __post_init__(self) -> None:
        common.check_threads(self.threads)
        common.require(self.blocks > 0, f"blocks = {self.blocks}, must be positive")


@cute.kernel
def kernel(x: cute.Pointer, out: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    mX = cute.make_tensor(x, cute.make_layout(n))
    first = Int64(bx) * config.threads + tx
    step = Int64(blocks) * config.threads

    quads = Int64(0)
    if x.toint() % 16 == 0:
        quads = n // 4
    rS = cute.make_rmem_tensor(4, Float32)
    rS.fill(0.0)
    i = first
    while i < quads:
        rS.store(rS.load() + simt.quad(x, 4 * i).load())
        i += step
    i = 4 * quads + first
    while i < n:
        rS[0] += mX[i]
        i += step

    simt.add_block_sum(out, (rS[0] + rS[1]) + (rS[2] + rS[3]), config.threads)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    wanted = common.ceil_div(shape["n"], 4 * config.threads)
    return Geometry((min(wanted, config.blocks), 1, 1), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="vectorized",
        problem="sum",
        change="many elements per thread, 128-bit loads",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"threads": (128, 256, 512, 1024)},
        reproducible=False,
    ),
    Rung(
        name="deterministic",
        problem="sum",
        change="one block: a fixed order, reproducible bits",
        kernel=kernel,
        config=Config(threads=1024, blocks=1),
        geometry=geometry,
        choices={"threads": (128, 256, 512, 1024)},
    ),
)
