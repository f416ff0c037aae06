"""Every thread adds its element to one number in global memory.

The baseline: n atomic additions to one address. Loads are coalesced, 4 sectors per request, and
reading 4·n bytes is the minimum. But the L2 cache performs additions to one address one at a time,
however many threads issue them. The time is the number of additions times the time of one, and
parallelism does not help: this is contention.

It is also the least accurate order: one chain of n roundings in the order of arrival, so the last
bits differ from run to run. A chain of more than 2²⁴ equal terms stops growing.

Atomics: one request per warp, n additions. `shared-serial` makes one addition per block.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int64, cute

from gemmlab.kernels import atomics, common
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Threads per block, one element each."""

    threads: int = 256

    def __post_init__(self) -> None:
        common.check_threads(self.threads)


@cute.kernel
def kernel(x: cute.Pointer, out: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mX = cute.make_tensor(x, cute.make_layout(n))

    i = Int64(bx) * config.threads + tx
    if i < n:
        atomics.add(out, mX[i])


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry((common.ceil_div(shape["n"], config.threads), 1, 1), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="global-atomics",
        problem="sum",
        change="n atomic additions to one number",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"threads": (64, 128, 256, 512, 1024)},
        reproducible=False,
    ),
)
