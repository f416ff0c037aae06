"""c = a + b, one element per thread: the kernel of every rung of this ladder.

Neighbouring threads access neighbouring elements: 4 sectors per request, no shared memory, no
reuse. Each addition moves 12 bytes, or 1/12 FLOP per byte, so memory bandwidth is the limiter. The
rungs differ in how the vectors reach the device and return.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.rung import Geometry


@dataclass(frozen=True)
class Config:
    """Threads per block, one element each."""

    threads: int = 256

    def __post_init__(self) -> None:
        rule = f"{self.threads} threads per block, must be 1 to {common.MAX_THREADS}"
        common.require(1 <= self.threads <= common.MAX_THREADS, rule)


@cute.kernel
def kernel(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mA = cute.make_tensor(a, cute.make_layout(n))
    mB = cute.make_tensor(b, cute.make_layout(n))
    mC = cute.make_tensor(c, cute.make_layout(n))

    i = Int64(bx) * config.threads + tx
    if i < n:
        mC[i] = mA[i] + mB[i]


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry((common.ceil_div(shape["n"], config.threads), 1, 1), (config.threads, 1, 1))
