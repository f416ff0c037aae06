"""Pack an MN-major matrix: a cluster of blocks per strip of vectors; see `pack`.

The registers of the cluster hold the strip. Its blocks exchange the largest magnitudes and the sums
of exponents that they have found.
"""

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90 import pack
from gemmlab.kernels.gemm.sm90.config import STRIP, VECTOR_PITCH
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.signature import signatures

LANES = STRIP // 4  # lanes per line of a strip, four vectors each


@cute.jit
def reduce_strip(tensors: tuple, values: tuple, ops: cutlass.Constexpr) -> None:
    """Reduce by "max" or "add" over the block for each vector of the strip, into sW[0, …].

    tensors: sW (warps, STRIP) for each op. values: one for each of the thread's four vectors.
    """
    thread, _, _ = cute.arch.thread_idx()
    warps = tensors[0].shape[0]
    for v in cutlass.range_constexpr(len(ops)):
        for e in cutlass.range_constexpr(4):
            value = values[v][e]
            for distance in (LANES, 2 * LANES):
                value = pack.combine(value, cute.arch.shuffle_sync_bfly(value, distance), ops[v])
            if thread % 32 < LANES:
                tensors[v][thread // 32, thread % LANES * 4 + e] = value
    cute.arch.sync_threads()
    if thread < STRIP:
        for v in cutlass.range_constexpr(len(ops)):
            sW = tensors[v]
            for w in cutlass.range_constexpr(1, warps):
                sW[0, thread] = pack.combine(sW[0, thread], sW[w, thread], ops[v])


@cute.jit
def load_remote(pointer: cute.Pointer, block: Int32) -> Int32:
    """The word at the same address in the shared memory of another block of the cluster."""
    address = cute.arch.map_dsmem_ptr(pointer, block).toint()
    text = "ld.shared::cluster.s32 {$w0}, [{$r0}];"
    return cute.arch.inline_ptx(text, write_only_types=[Int32], read_only_args=[address])


@cute.jit
def share_scales(
    tensors: tuple,
    outputs: tuple,
    inside: cutlass.Boolean,
    rank: Int32,
    at: Int64,
    depth: Int32,
    config: cutlass.Constexpr,
) -> tuple:
    """Find the scales of the strip from what all blocks of the cluster have found.

    tensors: (warps, STRIP), whose rows 0 have the block's peaks and sums of exponents. Returns the
    scales of the thread's four vectors, and the shortfall of the vector of thread i < STRIP. The
    caller must wait for the cluster before the tensors change: others may still read them.
    """
    sW, sE = tensors
    unscale, risk, shortfall, status = outputs
    thread, _, _ = cute.arch.thread_idx()
    if inside and rank == 0:
        simt.element(risk, at)[0] = Int32(0)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    sS = cute.make_tensor(cute.arch.alloc_smem(Int32, STRIP, 16), cute.make_layout(STRIP))
    short = Float32(0)
    if thread < STRIP:
        peak, exponents = sW[0, thread], Int32(0)
        for block in cutlass.range_constexpr(config.cluster):
            peak = cutlass.max(peak, load_remote(sW.iterator + thread, block))
            exponents += load_remote(sE.iterator + thread, block)
        sS[thread], short = (
            pack.scale_of(peak, config.scheme),
            pack.shortfall_of(peak, exponents, depth),
        )
        if inside and rank == 0:
            simt.element(shortfall, at)[0] = short
            pack.record_scale(at, sS[thread], unscale, risk, status)
    cute.arch.cluster_arrive()
    cute.arch.sync_threads()
    return [sS[thread % LANES * 4 + e] for e in range(4)], short


@cute.jit
def pack_strip(own: pack.Operand, block: Int32, depth: Int32, config: cutlass.Constexpr) -> None:
    """Pack a block's share of a strip of an MN-major matrix."""
    x, out, _, _, vectors, ldx, batch_x, pitch, bias = own
    outputs = pack.per_vector(own)
    _, risk, _, status = outputs
    thread, _, _ = cute.arch.thread_idx()
    _, item, _ = cute.arch.block_idx()
    scheme, FOURS, CLUSTER = config.scheme, config.fours, config.cluster
    WARPS, ROWS = config.threads // 32, config.threads // LANES
    rank, column = block % CLUSTER, block // CLUSTER * STRIP + thread % LANES * 4
    mX = cute.make_tensor(x + item * batch_x, cute.make_layout((depth, vectors), stride=(ldx, 1)))
    wide = simt.allows_quads(mX.iterator, ldx)
    first = rank * ROWS + thread // LANES

    # The cluster's registers hold a strip of vectors, its lines dealt out to the threads in turn.
    held = cute.make_rmem_tensor((4, FOURS), Float32)
    for i in cutlass.range_constexpr(FOURS):
        four = pack.load_inside(mX, first + i * CLUSTER * ROWS, column, wide)
        for e in cutlass.range_constexpr(4):
            held[e, i] = four[e]
    peaks, exponents = cute.make_rmem_tensor(4, Int32), cute.make_rmem_tensor(4, Int32)
    peaks.fill(0)
    exponents.fill(0)
    for i in cutlass.range_constexpr(FOURS):
        for e in cutlass.range_constexpr(4):
            peaks[e] = cutlass.max(peaks[e], pack.magnitude(held[e, i]))
            exponents[e] += pack.magnitude(held[e, i]) >> 23
    shape = cute.make_layout((WARPS, STRIP), stride=(STRIP, 1))
    sW = cute.make_tensor(cute.arch.alloc_smem(Int32, WARPS * STRIP, 16), shape)
    sE = cute.make_tensor(cute.arch.alloc_smem(Int32, WARPS * STRIP, 16), shape)
    reduce_strip((sW, sE), (peaks, exponents), ("max", "add"))

    # Thread i < STRIP of each block has vector i of the strip.
    at = Int64(item) * cute.round_up(vectors, VECTOR_PITCH) + block // CLUSTER * STRIP + thread
    inside = thread < STRIP and block // CLUSTER * STRIP + thread < vectors
    scales, short = share_scales((sW, sE), outputs, inside, rank, at, depth, config)

    counts = cute.make_rmem_tensor(4, Int32)
    counts.fill(0)
    target = out + Int64(item) * scheme.parts * depth * pitch + column
    for i in cutlass.range_constexpr(FOURS):
        line = first + i * CLUSTER * ROWS
        if line < depth and column < vectors:
            four, start = held[None, i].load(), target + Int64(line) * pitch
            pack.pack_four(four, scales, counts, start, Int64(depth) * pitch, bias, config)
    cute.arch.cluster_wait()  # no block still reads this block's peaks
    reduce_strip((sW,), (counts,), ("add",))
    if inside and sW[0, thread] > 0:
        pack.add_risk(risk + at, sW[0, thread], short, depth, status)


@cute.kernel
def pack_mn_major(
    x_1: cute.Pointer,
    out_1: cute.Pointer,
    unscale_1: cute.Pointer,
    status_1: cute.Pointer,
    vectors_1: Int32,
    ldx_1: Int64,
    batch_x_1: Int64,
    pitch_1: Int32,
    bias_1: Int32,
    x_2: cute.Pointer,
    out_2: cute.Pointer,
    unscale_2: cute.Pointer,
    status_2: cute.Pointer,
    vectors_2: Int32,
    ldx_2: Int64,
    batch_x_2: Int64,
    pitch_2: Int32,
    bias_2: Int32,
    depth: Int32,
    split: Int32,
    config: cutlass.Constexpr,
):
    pdl_wait()
    first = pack.Operand(
        x_1, out_1, unscale_1, status_1, vectors_1, ldx_1, batch_x_1, pitch_1, bias_1
    )
    second = pack.Operand(
        x_2, out_2, unscale_2, status_2, vectors_2, ldx_2, batch_x_2, pitch_2, bias_2
    )
    own, block = pack.chosen(first, second, split)
    pack_strip(own, block, depth, config)


SIGNATURES = signatures(pack.POINTERS, pack_mn_major)
