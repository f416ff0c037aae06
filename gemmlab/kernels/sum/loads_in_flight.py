"""Each thread has eight 128-bit loads in flight before it adds the first of them.

Change from `vectorized`: there a thread loads 16 bytes, adds them, and only then loads again, so
that memory is kept busy by occupancy alone. Here x is cut into chunks of threads × 8 × 16 bytes. A
thread issues its eight loads of a chunk back to back, then adds: by Little's law, bandwidth ×
latency bytes must be in flight, and here one block has 64 KB of them.

A block per chunk, with a tree and an atomic addition at its end, would pay for each chunk. So
blocks are few, take chunk after chunk, and number a multiple of the 132 multiprocessors of an H200:
with 1024 blocks, some multiprocessors have eight blocks to run and others seven.

Traffic: 4·n bytes, read once. Limiter: memory bandwidth.
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
    """Threads per block, 128-bit loads per thread and chunk, and the most blocks in the grid."""

    threads: int = 512
    loads: int = 8
    blocks: int = 264

    def __post_init__(self) -> None:
        common.check_threads(self.threads)
        common.require(0 < self.loads <= 32, f"loads = {self.loads}, must be 1 to 32")
        common.require(self.blocks > 0, f"blocks = {self.blocks}, must be positive")

    @property
    def chunk(self) -> int:  # elements
        return 4 * self.threads * self.loads


@cute.jit
def load_chunk(
    x: cute.Pointer, n: Int64, first: Int64, wide: cutlass.Constexpr, config: cutlass.Constexpr
) -> cute.Tensor:
    """The thread's elements (4, loads) of the chunk that begins at `first`; 0 past the end."""
    tx, _, _ = cute.arch.thread_idx()
    mX = cute.make_tensor(x, cute.make_layout(n))
    held = cute.make_rmem_tensor((4, config.loads), Float32)
    if cutlass.const_expr(not wide):
        held.fill(0.0)
    for r in cutlass.range_constexpr(config.loads):
        i = first + 4 * (r * config.threads + tx)
        if cutlass.const_expr(wide):
            held[None, r].store(simt.quad(x, i).load())
        else:
            for e in cutlass.range_constexpr(4):
                if i + e < n:
                    held[e, r] = mX[i + e]
    return held


@cute.jit
def chunk_sum(x: cute.Pointer, n: Int64, first: Int64, config: cutlass.Constexpr) -> Float32:
    """The sum of the thread's elements of the chunk at `first`, added in the order of loads."""
    rS = cute.make_rmem_tensor(4, Float32)
    if x.toint() % 16 == 0 and first + config.chunk <= n:
        add_loads(load_chunk(x, n, first, True, config), rS)
    else:
        add_loads(load_chunk(x, n, first, False, config), rS)
    return (rS[0] + rS[1]) + (rS[2] + rS[3])


@cute.jit
def add_loads(held: cute.Tensor, rS: cute.Tensor) -> None:
    """rS = the sums of what was loaded, of each of the four elements of a load."""
    rS.store(held[None, 0].load())
    for r in cutlass.range_constexpr(1, held.shape[1]):
        rS.store(rS.load() + held[None, r].load())


@cute.kernel
def kernel(x: cute.Pointer, out: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    total = Float32(0)
    first = Int64(bx) * config.chunk
    while first < n:
        total += chunk_sum(x, n, first, config)
        first += Int64(blocks) * config.chunk
    total = simt.block_sum(total, config.threads)
    if tx == 0:
        atomics.add(out, total)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    chunks = common.ceil_div(shape["n"], config.chunk)
    return Geometry((min(chunks, config.blocks), 1, 1), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="loads-in-flight",
        problem="sum",
        change="eight loads in flight per thread",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={
            "threads": (128, 256, 512, 1024),
            "loads": (2, 4, 8, 16),
            "blocks": (132, 264, 528, 1056),
        },
        reproducible=False,
    ),
)
