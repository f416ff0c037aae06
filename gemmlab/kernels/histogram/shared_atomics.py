"""Each block counts in shared memory and adds its 256 counts to global memory at the end.

Change from `global-atomics`: each block has private counters on its multiprocessor, shared only by
its own threads. A block counts 32 bytes per thread, 8,192 in all, then makes 256 additions to
global memory: 1/32 of those of `global-atomics`.

Clearing the counters and adding them up takes the same time whatever the data. The more bytes a
block counts, the less that matters, and the fewer blocks there are to keep the device busy.

Contention is harmless here: shared memory performs all additions of a warp to one counter in one
wavefront. Lanes that hit different counters in one bank are serialized, as in any shared access.
Uniform bytes cost about three wavefronts per request; text and a single value cost one. Limiter:
loading one byte at a time. Wider loads would come next.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from gemmlab.kernels import atomics, common
from gemmlab.kernels.rung import Geometry, Rung

BINS = 256


@dataclass(frozen=True)
class Config:
    """Threads per block, and bytes per thread."""

    threads: int = 256
    run: int = 32

    def __post_init__(self) -> None:
        common.check_threads(self.threads)
        common.require(self.run > 0, f"run = {self.run}, must be positive")


@cute.kernel
def kernel(data: cute.Pointer, counts: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mD = cute.make_tensor(data, cute.make_layout(n))
    T = config.threads

    own = cute.arch.alloc_smem(Uint32, BINS, 16)  # (BINS)
    sC = cute.make_tensor(own, cute.make_layout(BINS))
    for bin in cutlass.range(tx, BINS, T):
        sC[bin] = Uint32(0)
    cute.arch.sync_threads()

    # Strided by the block, so that neighbouring threads read neighbouring bytes.
    start = Int64(bx) * (T * config.run) + tx
    for j in cutlass.range(config.run):
        i = start + j * T
        if i < n:
            value = Int32(mD[i]) & 0xFF  # NOTE: the DSL sign-extends bytes.
            atomics.add(own + value, Uint32(1), "cta")
    cute.arch.sync_threads()

    for bin in cutlass.range(tx, BINS, T):
        atomics.add(counts + bin, sC[bin])


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    blocks = common.ceil_div(shape["n"], config.threads * config.run)
    return Geometry((blocks, 1, 1), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="shared-atomics",
        problem="histogram",
        change="a histogram per block in shared memory",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"threads": (128, 256, 512, 1024), "run": (16, 32, 64, 128)},
    ),
)
