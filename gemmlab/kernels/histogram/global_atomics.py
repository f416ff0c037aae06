"""Every thread counts its byte in global memory.

The starting point: n atomic additions to 256 counters. Loads are coalesced: a warp's 32 bytes are
one sector. The additions are done in the L2 cache, and those to one counter one after the other.

What that costs depends on the bytes alone. Uniform bytes spread over 256 counters, which lie in 32
sectors; in text some ten counters take most; a single value sends all n additions to one address.
Run it with `--family uniform`, `text` and `single`: requests stay the same, the time does not.

Atomics: one request per warp, n additions, in global memory all of them. Limited by contention in
L2: `shared-atomics` takes it to the multiprocessors, which work side by side.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from gemmlab.kernels import atomics, common
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Threads per block, one byte each."""

    threads: int = 256

    def __post_init__(self) -> None:
        common.check_threads(self.threads)


@cute.kernel
def kernel(data: cute.Pointer, counts: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mD = cute.make_tensor(data, cute.make_layout(n))

    i = Int64(bx) * config.threads + tx
    if i < n:
        value = Int32(mD[i]) & 0xFF  # NOTE: the DSL widens a byte with its sign.
        atomics.add(counts + value, Uint32(1))


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry((common.ceil_div(shape["n"], config.threads), 1, 1), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="global-atomics",
        problem="histogram",
        change="n atomic additions in global memory",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
    ),
)
