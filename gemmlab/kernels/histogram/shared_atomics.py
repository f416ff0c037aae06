"""Each block counts in shared memory and adds its 256 counts to global memory at the end.

Against `global-atomics`: the counters are the block's own, in its multiprocessor, and meet only
the block's own threads. A block takes 32 bytes per thread, 8,192 in all, then makes 256 additions
to global memory: 1/32 of the additions that `global-atomics` makes there.

Zeroing the counters and adding them up is work that does not depend on the data; the more bytes a
block takes, the less it weighs, and the fewer blocks there are to keep the device busy.

Contention loses its teeth: shared memory adds the lanes of a warp that meet in one counter in one
go. Lanes that meet in one bank but not in one counter take turns, as in every shared access, so
uniform bytes cost about three wavefronts per request, and text and a single value one. Limited by
loading one byte at a time: next would be wider loads.
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
    """Threads per block, and bytes for each."""

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

    # In turn, so that neighbouring threads read neighbouring bytes.
    start = Int64(bx) * (T * config.run) + tx
    for j in cutlass.range(config.run):
        i = start + j * T
        if i < n:
            value = Int32(mD[i]) & 0xFF  # NOTE: the DSL widens a byte with its sign.
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
    ),
)
