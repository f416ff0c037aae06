"""Pack an MN-major matrix too deep for `pack`: one kernel finds the peaks, the next packs.

Traffic: 12 bytes per element for two parts, 4 more than if registers held a strip of the matrix.
"""

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90 import pack
from gemmlab.kernels.gemm.sm90.config import DEEP_STRIP, PACK_WARPS, VECTOR_PITCH
from gemmlab.kernels.gemm.sm90.pdl import pdl_begin, pdl_wait
from gemmlab.kernels.signature import signatures

FOURS = 8  # 128-bit loads in flight per thread
# Of each chunk of a vector: the bits of its largest magnitude, and the sum of its exponents.
FOUND = {"peaks": ("int32", "output"), "exponents": ("int32", "output")}
POINTERS = {**pack.POINTERS, **FOUND}


@cute.jit
def reduce_warps(values: cute.Tensor, op: cutlass.Constexpr) -> cute.Tensor:
    """Reduce by "max" or "add" over the block's warps for each vector of the strip.

    values: one for each of the thread's four vectors. The result is row 0 of a tensor in shared
    memory.
    """
    thread, _, _ = cute.arch.thread_idx()
    shape = cute.make_layout((PACK_WARPS, DEEP_STRIP), stride=(DEEP_STRIP, 1))
    sW = cute.make_tensor(cute.arch.alloc_smem(Int32, PACK_WARPS * DEEP_STRIP, 16), shape)
    for e in cutlass.range_constexpr(4):
        sW[thread // 32, thread % 32 * 4 + e] = values[e]
    cute.arch.sync_threads()
    if thread < DEEP_STRIP:
        for w in cutlass.range_constexpr(1, PACK_WARPS):
            sW[0, thread] = pack.combine(sW[0, thread], sW[w, thread], op)
    return sW


@cute.kernel
def find_peaks(
    x: cute.Pointer,
    peaks: cute.Pointer,
    exponents: cute.Pointer,
    risk: cute.Pointer,
    vectors: Int32,
    depth: Int32,
    ldx: Int64,
    batch_x: Int64,
    chunk: Int32,
    config: cutlass.Constexpr,
):
    pdl_wait()
    thread, _, _ = cute.arch.thread_idx()
    bx, by, item = cute.arch.block_idx()
    _, chunks, _ = cute.arch.grid_dim()
    mX = cute.make_tensor(x + item * batch_x, cute.make_layout((depth, vectors), stride=(ldx, 1)))
    wide = simt.allows_quads(mX.iterator, ldx)
    column = bx * DEEP_STRIP + thread % 32 * 4
    start, end = by * chunk + thread // 32, cutlass.min(by * chunk + chunk, depth)

    most, sums = cute.make_rmem_tensor(4, Int32), cute.make_rmem_tensor(4, Int32)
    most.fill(0)
    sums.fill(0)
    held = cute.make_rmem_tensor((4, FOURS), Float32)
    for line in cutlass.range(start, end, FOURS * PACK_WARPS):
        for i in cutlass.range_constexpr(FOURS):
            four = pack.load_inside(mX, line + i * PACK_WARPS, column, wide)
            for e in cutlass.range_constexpr(4):
                held[e, i] = four[e]
        for i in cutlass.range_constexpr(FOURS):
            for e in cutlass.range_constexpr(4):
                most[e] = cutlass.max(most[e], pack.magnitude(held[e, i]))
                sums[e] += pack.magnitude(held[e, i]) >> 23
    sW, sE = reduce_warps(most, "max"), reduce_warps(sums, "add")
    padded = cute.round_up(vectors, VECTOR_PITCH)
    vector = bx * DEEP_STRIP + thread
    if thread < DEEP_STRIP and vector < vectors:
        at = (Int64(item) * chunks + by) * padded + vector
        simt.element(peaks, at)[0] = sW[0, thread]
        simt.element(exponents, at)[0] = sE[0, thread]
        if by == 0:
            simt.element(risk, Int64(item) * padded + vector)[0] = Int32(0)


@cute.kernel
def pack_mn_major_deep(
    x: cute.Pointer,
    peaks: cute.Pointer,
    exponents: cute.Pointer,
    out: cute.Pointer,
    unscale: cute.Pointer,
    risk: cute.Pointer,
    shortfall: cute.Pointer,
    status: cute.Pointer,
    vectors: Int32,
    depth: Int32,
    ldx: Int64,
    batch_x: Int64,
    pitch: Int32,
    chunk: Int32,
    config: cutlass.Constexpr,
):
    pdl_begin(Int32(0))
    thread, _, _ = cute.arch.thread_idx()
    bx, by, item = cute.arch.block_idx()
    strips, chunks, _ = cute.arch.grid_dim()
    # Start at the end: L2 still holds some of what `find_peaks` has read last.
    bx, by = strips - 1 - bx, chunks - 1 - by
    mX = cute.make_tensor(x + item * batch_x, cute.make_layout((depth, vectors), stride=(ldx, 1)))
    wide = simt.allows_quads(mX.iterator, ldx)
    scheme, padded = config.scheme, cute.round_up(vectors, VECTOR_PITCH)
    vector = bx * DEEP_STRIP + thread
    inside = thread < DEEP_STRIP and vector < vectors
    at = Int64(item) * padded + vector

    sS = cute.make_tensor(cute.arch.alloc_smem(Int32, DEEP_STRIP, 16), cute.make_layout(DEEP_STRIP))
    short = Float32(0)
    if thread < DEEP_STRIP:
        peak, total = Int32(0), Int32(0)
        if vector < vectors:
            for i in cutlass.range(chunks, unroll=8):
                chunk_at = (Int64(item) * chunks + i) * padded + vector
                peak = cutlass.max(peak, simt.element(peaks, chunk_at)[0])
                total += simt.element(exponents, chunk_at)[0]
        sS[thread], short = pack.scale_of(peak, scheme), pack.shortfall_of(peak, total, depth)
        if inside and by == 0:
            simt.element(shortfall, at)[0] = short
            pack.record_scale(at, sS[thread], unscale, risk, status)
    cute.arch.sync_threads()
    factors = [pack.factors_of(sS[thread % 32 * 4 + e]) for e in range(4)]
    counts = cute.make_rmem_tensor(4, Int32)
    counts.fill(0)
    held = cute.make_rmem_tensor((4, FOURS), Float32)
    column = bx * DEEP_STRIP + thread % 32 * 4
    start, end = by * chunk + thread // 32, cutlass.min(by * chunk + chunk, depth)
    target = out + Int64(item) * scheme.parts * depth * pitch + column
    step = Int64(depth) * pitch
    for line in cutlass.range(start, end, FOURS * PACK_WARPS):
        for i in cutlass.range_constexpr(FOURS):
            four = pack.load_inside(mX, line + i * PACK_WARPS, column, wide)
            for e in cutlass.range_constexpr(4):
                held[e, i] = four[e]
        for i in cutlass.range_constexpr(FOURS):
            row = line + i * PACK_WARPS
            if row < end and column < vectors:
                four = held[None, i].load()
                pack.pack_four(four, factors, counts, target + Int64(row) * pitch, step, config)
    sW = reduce_warps(counts, "add")
    if inside and sW[0, thread] > 0:
        pack.add_risk(risk + at, sW[0, thread], short, depth, status)


SIGNATURES = signatures(POINTERS, find_peaks, pack_mn_major_deep)
