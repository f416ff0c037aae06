"""Every thread counts its byte in global memory.

The baseline: n atomic additions to 256 counters. Loads are coalesced: the 32 bytes of a warp are
one sector. The L2 cache performs the additions, those to the same counter one at a time.

The cost depends only on the data. Uniform bytes spread over all 256 counters, which occupy 32
sectors. In text about ten counters receive most additions. A single value sends all n additions to
one address. With `--family uniform`, `text` and `single`, requests are equal and times are not.

Atomics: one request per warp, n additions, all in global memory. Limiter: contention in L2.
`shared-atomics` moves it to the multiprocessors, which work in parallel.
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
        value = Int32(mD[i]) & 0xFF  # NOTE: the DSL sign-extends bytes.
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
        choices={"threads": (64, 128, 256, 512, 1024)},
    ),
)
