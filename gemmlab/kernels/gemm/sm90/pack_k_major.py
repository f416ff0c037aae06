"""Pack a K-major matrix: a warp or a block per vector; see `pack`.

Unless the matrix's pitch is a multiple of four, most vectors start at an address that 128-bit loads
cannot use. Lanes then load and split groups of four, starting at the last aligned address before
the vector, and shift the 16-bit parts to the left; the parts take half as many registers as the
loaded numbers.
"""

import cutlass
from cutlass import Boolean, Float32, Int32, Int64, Uint64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90 import pack
from gemmlab.kernels.gemm.sm90.config import PACK_WARPS, VECTOR_PITCH
from gemmlab.kernels.gemm.sm90.pdl import pdl_begin, pdl_end
from gemmlab.kernels.signature import signatures


@cute.jit
def reduce_threads(values: tuple, warps: cutlass.Constexpr, ops: cutlass.Constexpr) -> list:
    """Reduce each value by its op, "max" or "add", over a warp or all `warps` of the block.

    Every thread has the results.
    """
    thread, _, _ = cute.arch.thread_idx()
    results = []
    for value, op in zip(values, ops, strict=True):
        for level in cutlass.range_constexpr(5):
            value = pack.combine(value, cute.arch.shuffle_sync_bfly(value, 16 >> level), op)
        results.append(value)
    if cutlass.const_expr(warps > 1):
        shape = cute.make_layout((len(ops), warps), stride=(warps, 1))
        sW = cute.make_tensor(cute.arch.alloc_smem(Int32, len(ops) * warps, 16), shape)
        if thread % 32 == 0:
            for v in cutlass.range_constexpr(len(ops)):
                sW[v, thread // 32] = results[v]
        cute.arch.sync_threads()
        for v in cutlass.range_constexpr(len(ops)):
            value = sW[v, 0]
            for i in cutlass.range_constexpr(1, warps):
                value = pack.combine(value, sW[v, i], ops[v])
            results[v] = value
    return results


@cute.jit
def load_window(tensor: cute.Tensor, i: Int32, j: Int32) -> cute.TensorSSA:
    """Elements (i,j) to (i,j+3), 0 outside the row; their address is aligned to 16 bytes."""
    rows, columns = tensor.shape
    four = cute.make_rmem_tensor(4, Float32)
    if i < rows and j >= 0 and j + 4 <= columns:
        four.store(simt.quad(tensor, (i, j)).load())
    else:
        for e in cutlass.range_constexpr(4):
            four[e] = Float32(0)
            if j + e >= 0:
                four[e] = simt.load_or_zero(tensor, i, j + e)
    return four.load()


@cute.jit
def shifted(part: cute.TensorSSA, shift: Int32) -> cute.TensorSSA:
    """Four 16-bit elements, from element 1, 2 or 3 of this lane on to those of the next lane."""
    four = cute.make_rmem_tensor(4, part.element_type)
    four.store(part)
    own = cute.recast_tensor(four, Int32)
    following = cute.make_rmem_tensor(2, Int32)
    for i in cutlass.range_constexpr(2):
        following[i] = cute.arch.shuffle_sync_down(own[i], 1)
    low = cute.recast_tensor(own, Uint64)[0] >> Uint64(16 * shift)
    high = cute.recast_tensor(following, Uint64)[0] << Uint64(64 - 16 * shift)
    result = cute.make_rmem_tensor(4, part.element_type)
    cute.recast_tensor(result, Uint64)[0] = low | high
    return result.load()


@cute.jit
def pack_vector(
    mX: cute.Tensor,
    outputs: tuple,
    vector: Int32,
    shift: Int32,
    place: tuple,
    config: cutlass.Constexpr,
    aligned: cutlass.Constexpr,
) -> None:
    """Pack a K-major vector.

    It starts `shift` elements after an address that 128-bit loads can use. If `shift` is 1, 2 or 3
    (not `aligned`), lanes load and split groups of four from that address on, and shift the parts
    to the left. A lane shifts in parts of the next lane. The last lane of a warp has no next lane:
    it also loads the four elements that the first lane of the next warp or iteration loads.

    place: the batch item, and elements between the lines of `out`.
    """
    out, unscale, risk, shortfall, status = outputs
    item, pitch = place
    thread, _, _ = cute.arch.thread_idx()
    lane, LANES = thread % 32, 32 if aligned else 31
    vectors, depth = mX.shape
    scheme, FOURS, STRIDE = config.scheme, config.fours, 4 * LANES * config.warps
    first = thread % (32 * config.warps) // 32 * (4 * LANES) + 4 * lane - shift
    start = first if aligned else first - 4 * lane  # of the loop; shuffling lanes iterate together

    # Registers hold the front of the vector. The rest of a long vector is read twice.
    held = cute.make_rmem_tensor((4, FOURS), Float32)
    peak, exponents = Int32(0), Int32(0)
    for i in cutlass.range_constexpr(FOURS):
        four = load_vector(mX, vector, first + i * STRIDE, aligned)
        for e in cutlass.range_constexpr(4):
            held[e, i] = four[e]
    for i in cutlass.range_constexpr(4 * FOURS):
        peak = cutlass.max(peak, pack.magnitude(held[i]))
        exponents += pack.magnitude(held[i]) >> 23
    for k in cutlass.range(start + FOURS * STRIDE, depth, STRIDE, unroll=4):
        four = load_vector(mX, vector, k + first - start, aligned)
        for e in cutlass.range_constexpr(4):
            peak = cutlass.max(peak, pack.magnitude(four[e]))
            exponents += pack.magnitude(four[e]) >> 23
    if lane >= LANES:
        exponents = Int32(0)
    peak, exponents = reduce_threads((peak, exponents), config.warps, ("max", "add"))
    scale, short = pack.scale_of(peak, scheme), pack.shortfall_of(peak, exponents, depth)

    counts = cute.make_rmem_tensor(4, Int32)
    counts.fill(0)
    target = out + (Int64(item) * scheme.parts * vectors + vector) * pitch + shift
    step = Int64(vectors) * pitch
    if vector < vectors:
        for i in cutlass.range_constexpr(FOURS):
            if start + i * STRIDE < depth:
                k, four = first + i * STRIDE, held[None, i].load()
                parts = pack.split_four(four, [pack.factors_of(scale)] * 4, counts, config)
                store_vector(parts, target + k, step, shift, k + shift < depth, aligned)
        for at in cutlass.range(start + FOURS * STRIDE, depth, STRIDE, unroll=4):
            k = at + first - start
            four = load_vector(mX, vector, k, aligned)
            parts = pack.split_four(four, [pack.factors_of(scale)] * 4, counts, config)
            store_vector(parts, target + k, step, shift, k + shift < depth, aligned)
    count = counts[0] + counts[1] + counts[2] + counts[3]
    if lane >= LANES:
        count = Int32(0)
    count = reduce_threads((count,), config.warps, ("add",))[0]
    if vector < vectors and thread % (32 * config.warps) == 0:
        at = Int64(item) * cute.round_up(vectors, VECTOR_PITCH) + vector
        simt.element(risk, at)[0] = count
        simt.element(shortfall, at)[0] = short
        pack.count_risk(Int32(0), count, short, depth, status)
        pack.record_scale(at, scale, unscale, risk, status)


@cute.jit
def load_vector(
    mX: cute.Tensor, vector: Int32, k: Int32, aligned: cutlass.Constexpr
) -> cute.TensorSSA:
    """Four elements of a vector from an aligned address on."""
    if cutlass.const_expr(aligned):
        return pack.load_inside(mX, vector, k, Boolean(True))
    return load_window(mX, vector, k)


@cute.jit
def store_vector(
    parts: list,
    target: cute.Pointer,
    step: Int64,
    shift: Int32,
    inside: Boolean,
    aligned: cutlass.Constexpr,
) -> None:
    """Write the parts of four elements, shifted if they are not aligned."""
    if cutlass.const_expr(aligned):
        pack.store_parts(parts, target, step)
    else:
        lane = cute.arch.lane_idx()
        moved = [shifted(part, shift) for part in parts]
        if inside and lane < 31:
            pack.store_parts(moved, target, step)


@cute.kernel
def pack_k_major(
    x: cute.Pointer,
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
    beside: Int32,
    config: cutlass.Constexpr,
):
    pdl_begin(beside)
    thread, _, _ = cute.arch.thread_idx()
    bx, item, _ = cute.arch.block_idx()
    vector = bx * (PACK_WARPS // config.warps) + thread // (32 * config.warps)
    start = x + item * batch_x
    mX = cute.make_tensor(start, cute.make_layout((vectors, depth), stride=(ldx, 1)))
    shift = Int32((start + vector * ldx).toint() >> 2) & 3
    outputs = (out, unscale, risk, shortfall, status)
    if shift == 0:
        pack_vector(mX, outputs, vector, Int32(0), (item, pitch), config, True)
    else:
        pack_vector(mX, outputs, vector, shift, (item, pitch), config, False)
    pdl_end(beside)


SIGNATURES = signatures(pack.POINTERS, pack_k_major)
