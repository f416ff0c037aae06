"""Each thread has a query and walks along all keys twice: for the maximum, then for the results.

A thread keeps its query and its 64 results in registers. All lanes of a warp read the same key and
value: one sector per request, a broadcast. The scores are computed twice, because the maximum must
be known before the first exp.

FLOPs: 6·64·t², half as many again as needed. Traffic: 3·64·t² loads and 64·t stores of elements.
Limiter: one load per FMA, and few threads: t of them.
"""

from collections.abc import Mapping

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels import common, rows
from gemmlab.kernels.rung import Geometry, Rung

DEPTH = 64
SCALE = 0.125  # 1 / sqrt(DEPTH)


@cute.jit
def score(rQ: cute.Tensor, mK: cute.Tensor, key: Int32) -> Float32:
    """The query's product with a key, scaled."""
    found = Float32(0)
    for d in cutlass.range_constexpr(DEPTH):
        found += rQ[d] * mK[key, d]
    return found * Float32(SCALE)


@cute.kernel
def kernel(
    q: cute.Pointer,
    k: cute.Pointer,
    v: cute.Pointer,
    out: cute.Pointer,
    t: Int32,
    config: cutlass.Constexpr,
):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    mQ, mK, mV, mO = (rows.matrix(pointer, t, Int32(DEPTH)) for pointer in (q, k, v, out))

    query = bx * config.threads + tx
    if query < t:
        rQ = cute.make_rmem_tensor(DEPTH, Float32)
        rO = cute.make_rmem_tensor(DEPTH, Float32)
        rO.fill(0.0)
        for d in cutlass.range_constexpr(DEPTH):
            rQ[d] = mQ[query, d]
        most = Float32(rows.LOWEST)
        for key in cutlass.range(t):
            most = cute.arch.fmax(most, score(rQ, mK, key))
        total = Float32(0)
        for key in cutlass.range(t):
            weight = cute.math.exp(score(rQ, mK, key) - most)
            total += weight
            for d in cutlass.range_constexpr(DEPTH):
                rO[d] += weight * mV[key, d]
        for d in cutlass.range_constexpr(DEPTH):
            mO[query, d] = rO[d] / total


def geometry(config: rows.Config, shape: Mapping[str, int]) -> Geometry:
    blocks = common.ceil_div(shape["t"], config.threads)
    return Geometry((blocks, 1, 1), (config.threads, 1, 1))


RUNGS = (
    Rung(
        name="direct",
        problem="attention",
        change="one query per thread, two passes",
        kernel=kernel,
        config=rows.Config(threads=64),
        geometry=geometry,
        choices={"threads": (32, 64, 128)},
    ),
)
