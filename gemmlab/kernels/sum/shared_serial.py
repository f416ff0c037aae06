"""Thread 0 of each block adds up the block's values, then adds once to global memory.

Change from `global-atomics`: the block writes its 1024 values to shared memory, waits, and one
thread adds them up. Global atomic additions, and contention with them, drop by the size of the
block, to n/1024.

The price: 1023 threads wait for one, 31 of them in its own warp. It reads shared memory one
word per wavefront, for 1024 dependent additions in sequence.

Limiter: that chain; its time grows with the number of threads in the block. The three trees compute
the same sum in log2(1024) = 10 steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int64, cute

from gemmlab.kernels import atomics, common
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
    tx, _, _ = cute.arch.thread_idx()
    T = config.threads

    sX = simt.shared_vector(T)  # (T)
    sX[tx] = simt.own_or_zero(x, n, T)
    cute.arch.sync_threads()
    if tx == 0:
        total = Float32(0)
        for i in cutlass.range(T, unroll=1):
            total += sX[i]
        atomics.add(out, total)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry((common.ceil_div(shape["n"], config.threads), 1, 1), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="shared-serial",
        problem="sum",
        change="one thread per block adds in shared memory",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"threads": (64, 128, 256, 512, 1024)},
        reproducible=False,
    ),
)
