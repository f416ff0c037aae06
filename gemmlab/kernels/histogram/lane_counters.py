"""Each lane has its own column of counters, in its own bank: no conflict, whatever the data.

Change from `wide-loads`: there 256 counters of a block lie in 32 banks, and lanes that count
different bytes in one bank wait for each other. Here a block has 32 counters for each byte value,
one per lane, side by side: counter 32·value + lane is in bank `lane`. A request takes one wavefront
for uniform bytes, text and a single value alike, so the time no longer depends on the data. Warps
share the columns: atomic additions keep those of different warps apart.

The price: 32 KB per block to clear at the start, and to add up at the end. A thread adds the 32
counters of a value, beginning with that of its own lane, so that a warp reads 32 banks.

Private histograms of 8 bits for each thread would need no atomics, but overflow after 255 bytes.
Limiter: memory bandwidth, or the rate of conflict-free atomic additions in shared memory.
"""

from dataclasses import dataclass

import cutlass
from cutlass import Int64, Uint32, cute

from gemmlab.kernels import atomics
from gemmlab.kernels.histogram import wide_loads
from gemmlab.kernels.histogram.shared_atomics import BINS
from gemmlab.kernels.rung import Rung

LANES = 32


@dataclass(frozen=True)
class Config(wide_loads.Config):
    """Two blocks of 1024 threads per multiprocessor: fewer columns to clear and to add up."""

    threads: int = 1024
    loads: int = 2
    blocks: int = 264


@cute.kernel
def kernel(data: cute.Pointer, counts: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    lane = cute.arch.lane_idx()
    own = wide_loads.cleared(BINS * LANES, config)
    wide_loads.count(data, n, own, lambda value: value * LANES + lane, config)
    cute.arch.sync_threads()
    sC = cute.make_tensor(own, cute.make_layout((BINS, LANES), stride=(LANES, 1)))
    for bin in cutlass.range(tx, BINS, config.threads):
        total = Uint32(0)
        for i in cutlass.range_constexpr(LANES):
            total += sC[bin, (lane + i) % LANES]
        atomics.add(counts + bin, total)


RUNGS = (
    Rung(
        name="lane-counters",
        problem="histogram",
        change="a column of counters per lane",
        kernel=kernel,
        config=Config(),
        geometry=wide_loads.geometry,
        choices=wide_loads.CHOICES,
    ),
)
