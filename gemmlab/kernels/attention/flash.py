"""Keys and values come in tiles through shared memory, and one pass suffices: online softmax.

Change from `direct`: a thread keeps the largest score so far; a larger one scales its sum and its
results down (Dao, Fu, Ermon, Rudra, Ré: "FlashAttention", 2022). So each score is computed once,
and a block loads each key and value once, for all of its queries: coalesced.

FLOPs: 5·64·t², and exp. Traffic: 2·64·t/threads loads per thread. Limiter: one load from shared
memory per FMA, a broadcast; two queries per thread would share it.
"""

import cutlass
from cutlass import Float32, Int32, cute

from gemmlab.kernels import rows
from gemmlab.kernels.attention.direct import DEPTH, geometry, score
from gemmlab.kernels.rung import Rung

TILE = 32  # keys


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
    tile = cute.make_layout((TILE, DEPTH), stride=(DEPTH, 1))
    sK = cute.make_tensor(cute.arch.alloc_smem(Float32, TILE * DEPTH, 16), tile)
    sV = cute.make_tensor(cute.arch.alloc_smem(Float32, TILE * DEPTH, 16), tile)

    query = bx * config.threads + tx
    rQ = cute.make_rmem_tensor(DEPTH, Float32)
    rO = cute.make_rmem_tensor(DEPTH, Float32)
    rQ.fill(0.0)
    rO.fill(0.0)
    if query < t:
        for d in cutlass.range_constexpr(DEPTH):
            rQ[d] = mQ[query, d]

    most, total = Float32(rows.LOWEST), Float32(0)
    for first in cutlass.range(0, t, TILE):
        for place in cutlass.range(tx, TILE * DEPTH, config.threads):
            key, d = place // DEPTH, place % DEPTH
            if first + key < t:
                sK[key, d] = mK[first + key, d]
                sV[key, d] = mV[first + key, d]
        cute.arch.sync_threads()
        for key in cutlass.range(cutlass.min(TILE, t - first)):
            found = score(rQ, sK, key)
            larger = cute.arch.fmax(most, found)
            scale, weight = cute.math.exp(most - larger), cute.math.exp(found - larger)
            total = total * scale + weight
            for d in cutlass.range_constexpr(DEPTH):
                rO[d] = rO[d] * scale + weight * sV[key, d]
            most = larger
        cute.arch.sync_threads()

    if query < t:
        for d in cutlass.range_constexpr(DEPTH):
            mO[query, d] = rO[d] / total


RUNGS = (
    Rung(
        name="flash",
        problem="attention",
        change="tiles in shared memory, online softmax, one pass",
        kernel=kernel,
        config=rows.Config(threads=64),
        geometry=geometry,
        choices={"threads": (32, 64, 128)},
    ),
)
