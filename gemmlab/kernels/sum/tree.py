"""A block adds its values in pairs: 10 steps for 1024 values, in three orders.

Change from `shared-serial`: each step halves the number of values, and threads work in parallel.
`tree-interleaved`: thread t adds if t is a multiple of 2, 4, 8, …: a half, a quarter, an eighth of
the lanes of every warp. All warps stay active with fewer and fewer lanes: divergence.
`tree-strided`: threads 0, 1, 2, … add, so whole warps drop out. But neighbours access words 2, 4,
8, … apart, and stride s puts gcd(s, 32) lanes on a bank. As many wavefronts replace the requests
that are saved: no gain if shared memory is the limiter.
`tree-sequential`: thread t adds the value half a block further on, then a quarter, …. Whole warps
drop out and neighbours read neighbouring words. Only the last five steps diverge; no conflicts.

Divergence is counted in PTX; ptxas may predicate such short branches, which leaves lanes idle. On
its way a value is rounded 10 times, not up to 1023 as in the chain: trees are more accurate too.
Limiter: a barrier and a trip through shared memory per step. `warp-shuffle` needs neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int32, Int64, cute

from gemmlab.kernels import atomics, common
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.kernels.sum import simt

ORDERS = ("interleaved", "strided", "sequential")


@dataclass(frozen=True)
class Config:
    """Which threads add which pairs; threads per block, one element each."""

    order: str
    threads: int = 1024

    def __post_init__(self) -> None:
        common.check_threads(self.threads)
        rule = f"order is {self.order!r}, must be one of {', '.join(ORDERS)}"
        common.require(self.order in ORDERS, rule)


@cute.kernel
def kernel(x: cute.Pointer, out: cute.Pointer, n: Int64, config: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    T, LEVELS = config.threads, config.threads.bit_length() - 1

    sX = simt.shared_vector(T)  # (T)
    sX[tx] = simt.own_or_zero(x, n, T)
    cute.arch.sync_threads()
    for level in cutlass.range(LEVELS, unroll=1):
        if cutlass.const_expr(config.order == "interleaved"):
            step = Int32(1) << level
            at, works = tx, tx % (2 * step) == 0
        elif cutlass.const_expr(config.order == "strided"):
            step = Int32(1) << level
            at, works = 2 * step * tx, 2 * step * tx < T
        else:
            step = Int32(T // 2) >> level
            at, works = tx, tx < step
        if works:
            sX[at] += sX[at + step]
        cute.arch.sync_threads()

    if tx == 0:
        atomics.add(out, sX[0])


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry((common.ceil_div(shape["n"], config.threads), 1, 1), (config.threads, 1, 1))


RUNGS = tuple(
    Rung(
        name=f"tree-{order}",
        problem="sum",
        change=change,
        kernel=kernel,
        config=Config(order),
        geometry=geometry,
        choices={"threads": (64, 128, 256, 512, 1024)},
        reproducible=False,
    )
    for order, change in (
        ("interleaved", "a tree: pairs added by every other thread"),
        ("strided", "the first threads add: no divergence"),
        ("sequential", "neighbours read neighbours: no bank conflict"),
    )
)
