"""Sixteen bytes per load, four loads in flight; blocks stay and count until no bytes are left.

Change from `shared-atomics`: a 128-bit load replaces sixteen loads of a byte, and shifts and masks
take it apart. Four loads are issued before the first byte is counted. The grid is as large as the
device, not as the data, so 256 counts per block are cleared and added up once, not every 8 KB.

Counting is unchanged: one atomic addition in shared memory per byte. A warp's request takes as many
wavefronts as different counters lie in its busiest bank: more than three for uniform bytes, one if
all bytes are equal. So the time depends on the data again, now that loads no longer hide it.

The last n mod 16 bytes are counted one by one, as are all bytes of data that do not start at a
16-byte boundary.
Limiter: bank conflicts among the lanes of a warp. `lane-counters` has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from gemmlab.kernels import atomics, common
from gemmlab.kernels.histogram.shared_atomics import BINS
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config:
    """Threads per block, 128-bit loads in flight per thread, and the most blocks in the grid."""

    threads: int = 512
    loads: int = 4
    blocks: int = 528

    def __post_init__(self) -> None:
        common.check_threads(self.threads)
        common.require(0 < self.loads <= 16, f"loads = {self.loads}, must be 1 to 16")
        common.require(self.blocks > 0, f"blocks = {self.blocks}, must be positive")


@cute.jit
def sixteen(data: cute.Pointer, i: Int64) -> cute.Tensor:
    """The 16 bytes at 16·i as four words, for one 128-bit access. The address must be aligned."""
    aligned = cute.make_ptr(Uint32, (data + 16 * i).toint(), data.memspace, assumed_align=16)
    return cute.make_tensor(aligned, cute.make_layout(4))


@cute.jit
def count_words(words: Any, counters: cute.Pointer, place: cutlass.Constexpr) -> None:
    """Count the bytes of a thread's words."""
    for w in cutlass.range_constexpr(cute.size(words)):
        for byte in cutlass.range_constexpr(4):
            value = Int32((words[w] >> (8 * byte)) & 0xFF)
            atomics.add(counters + place(value), Uint32(1), "cta")


@cute.jit
def count(
    data: cute.Pointer,
    n: Int64,
    counters: cute.Pointer,
    place: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """Count the block's share of the bytes: the counter of a value is at `place(value)`."""
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    first, step = Int64(bx) * config.threads + tx, Int64(blocks) * config.threads
    sixteens = Int64(0)
    if data.toint() % 16 == 0:
        sixteens = n // 16
    held = cute.make_rmem_tensor((4, config.loads), Uint32)
    i = first
    while i + (config.loads - 1) * step < sixteens:
        for r in cutlass.range_constexpr(config.loads):
            held[None, r].store(sixteen(data, i + r * step).load())
        count_words(held, counters, place)
        i += config.loads * step
    while i < sixteens:
        held[None, 0].store(sixteen(data, i).load())
        count_words(held[None, 0], counters, place)
        i += step
    i = 16 * sixteens + first
    while i < n:
        value = Int32(cute.make_tensor(data, cute.make_layout(n))[i]) & 0xFF
        atomics.add(counters + place(value), Uint32(1), "cta")
        i += step


@cute.jit
def cleared(size: cutlass.Constexpr, config: cutlass.Constexpr) -> cute.Pointer:
    """`size` counters in shared memory, all 0."""
    tx, _, _ = cute.arch.thread_idx()
    counters = cute.arch.alloc_smem(Uint32, size, 16)
    sC = cute.make_tensor(counters, cute.make_layout(size))
    for i in cutlass.range(tx, size, config.threads):
        sC[i] = Uint32(0)
    cute.arch.sync_threads()
    return counters


@cute.kernel
def kernel(data: cute.Pointer, counts: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    own = cleared(BINS, config)
    count(data, n, own, lambda value: value, config)
    cute.arch.sync_threads()
    sC = cute.make_tensor(own, cute.make_layout(BINS))
    for bin in cutlass.range(tx, BINS, config.threads):
        atomics.add(counts + bin, sC[bin])


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    """At least 16 bytes per thread; at most `blocks` blocks."""
    blocks = common.ceil_div(shape["n"], 16 * config.threads)
    return Geometry((min(blocks, config.blocks), 1, 1), (config.threads, 1, 1))


CHOICES: Mapping[str, tuple[int, ...]] = {
    "threads": (128, 256, 512, 1024),
    "loads": (2, 4, 8),
    "blocks": (132, 264, 528, 1056),
}
RUNGS = (
    Rung(
        name="wide-loads",
        problem="histogram",
        change="16 bytes per load, blocks that stay",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices=CHOICES,
    ),
)
