"""A float32 matrix as a sum of 16-bit matrices: what `fp16x3` and `bf16x6` multiply.

Each row of A and each column of B, here both a *vector* of `depth` elements, is scaled by a power
of two, so that its largest element has exponent `peak`, and split: the first part is the scaled
value rounded to 16 bits, the next the rest, rounded, and so on. The scaling is exact, and it makes
the parts fit: float16 ends at 2^16 above and at 2^-24 below. Which way the `first` part is rounded
decides the sign of the rest, and so which way a product is off that leaves out rest times rest.

Either the elements of a vector lie next to each other (`along`) or those of different vectors do
(`across`, by clusters of blocks that tell each other the largest elements they have seen; for
matrices too deep for their registers there is `split_deep`). The parts keep the matrix's order in
memory, with a pitch that suits TMA whatever the pitch of the matrix.

| written | per     | meaning                                                                    |
|---------|---------|----------------------------------------------------------------------------|
| out     | element | parts as (batch, part, line, pitch); a line is contiguous                  |
| unscale | vector  | exponent of the power of two that undoes the scale                         |
| risk    | vector  | how many elements are too small beside the largest to keep all their bits; |
|         |         | -1 where one is infinite or NaN: all parts of such a vector are 0          |
| status  | matrix  | elements at risk, and 2^40 for each wide vector, which has many of them;   |
|         |         | vectors that are not finite: both are added to                             |

Traffic: 8 bytes per element for two parts. Memory is the limit, so each thread asks for `fours`
times 16 bytes before it looks at the first.
"""

from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, Uint64, cute

from gemmlab.kernels import atomics
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import (
    PACK_WARPS,
    STRIP,
    VECTOR_PITCH,
    WIDE_COUNT,
    WIDE_EVERY,
    WIDE_LEAST,
)
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS
from gemmlab.kernels.signature import signatures

POINTERS = {
    "x": ("float32", "input"),
    "out": ("uint16", "output"),
    "unscale": ("int32", "output"),
    "risk": ("int32", "output"),
    "status": ("uint64", "accumulator"),
}

LANES = STRIP // 4  # next to each other in a strip of vectors
INFINITY = 0x7F800000  # bits of the float32
NOT_FINITE = 1 << 14  # in place of a vector's scale
SIGN = -(1 << 31)  # bit of a float32
TAIL = (1 << 13) - 1  # bits of a float32 that a float16 lacks
TIE_NUDGE = (127 - 20) << 23  # bits of 2^-20: far below half a bit of float16, above one of float32


@cute.jit
def magnitude(value: Float32) -> Int32:
    """The bits of |value|, ordered as the magnitudes are; NaN comes last."""
    return value.bitcast(Int32) & 0x7FFFFFFF


@cute.jit
def power(e: Int32) -> Float32:
    """2^e for e from -126 to 127."""
    return ((e + 127) << 23).bitcast(Float32)


@cute.jit
def cell(pointer: cute.Pointer, i: Int64) -> cute.Tensor:
    return cute.make_tensor(pointer + i, cute.make_layout(1))


@cute.jit
def scale_of(peak: Int32, scheme: cutlass.Constexpr) -> Int32:
    """The exponent of a vector's scale, from the bits of its largest magnitude; 0 for zeros."""
    exponent = (peak >> 23) - 127
    if peak < 1 << 23:
        # Subnormal: `peak` counts units of 2^-149. Made a float32, its leading bit is found.
        exponent = (Float32(peak).bitcast(Int32) >> 23) - 127 - 149
    scale = scheme.peak - exponent
    if peak == 0:
        scale = Int32(0)
    if peak >= INFINITY:
        scale = Int32(NOT_FINITE)
    return scale


@cute.jit
def load_inside(tensor: cute.Tensor, i: Int32, j: Int32, wide: cutlass.Boolean) -> cute.TensorSSA:
    """Elements (i,j) to (i,j+3), with 0 for those outside: one 128-bit load where that can be."""
    rows, columns = tensor.shape
    inside = i < rows and j + 4 <= columns
    return simt.load_four(tensor, i, j, 1, wide and inside)


@cute.jit
def note_scale(at: Int64, scale: Int32, unscale: Any, risk: Any, status: cute.Pointer) -> None:
    """Tell how to undo a vector's scale, and whether the vector is one to compute otherwise."""
    cell(unscale, at)[0] = -scale
    if scale == NOT_FINITE:
        cell(unscale, at)[0] = Int32(0)
        cell(risk, at)[0] = Int32(-1)
        atomics.add(status + 1, Uint64(1))


@cute.jit
def note_risk(before: Int32, count: Int32, depth: Int32, status: cute.Pointer) -> None:
    """Add elements at risk of a vector that had `before`; who crosses the limit calls it wide."""
    most = WIDE_LEAST + depth // WIDE_EVERY
    added = Uint64(count)
    if before <= most and before + count > most:
        added += Uint64(WIDE_COUNT)
    if count > 0:
        atomics.add(status, added)


@cute.jit
def add_risk(risk: cute.Pointer, count: Int32, depth: Int32, status: cute.Pointer) -> None:
    """Add a block's share of a vector's elements at risk."""
    before = cute.arch.atomic_add(risk, count, sem="relaxed", scope="gpu")
    note_risk(before, count, depth, status)


@cute.jit
def away_from_zero(rest: Float32, value: Float32) -> Float32:
    """`rest`, moved so little that rounding it differs for ties alone: they go where `value` grows.

    Tensor cores cut sums off, towards zero. Ties that go away from zero weigh against that, and
    their errors are no larger than those of ties to even.
    """
    opposite = (rest.bitcast(Int32) ^ value.bitcast(Int32)) & SIGN
    nudge = (opposite | TIE_NUDGE).bitcast(Float32)
    return rest + rest * nudge


@cute.jit
def first_part(value: Float32, way: cutlass.Constexpr) -> Float32:
    """`value`, or where its magnitude lies between two float16 numbers the lower ("down") or upper
    ("up") one. Below the normal numbers of float16 that is either, as those have fewer bits."""
    bits = value.bitcast(Int32)
    if cutlass.const_expr(way == "up"):
        bits += TAIL
    if cutlass.const_expr(way != "nearest"):
        bits &= ~TAIL
    return bits.bitcast(Float32)


@cute.jit
def split_four(
    four: cute.TensorSSA,
    scales: Any,
    counts: cute.Tensor,
    to: cute.Pointer,
    step: Int64,
    config: cutlass.Constexpr,
) -> None:
    """Write the parts of four elements to `to`, `to + step`, …, and count those at risk."""
    scheme = config.scheme
    rest = cute.make_rmem_tensor(4, Float32)
    for e in cutlass.range_constexpr(4):
        # In two steps, as the scale itself may be no float32 number.
        half = scales[e] >> 1
        value = four[e] * power(half) * power(scales[e] - half)
        if scales[e] == NOT_FINITE:
            value = Float32(0)
        size = magnitude(value)
        if size > 0 and size < (127 + scheme.floor) << 23:
            counts[e] += 1
        rest[e] = value
    element = ELEMENTS[scheme.dtype]
    values = cute.make_rmem_tensor(4, Float32)
    values.store(rest.load())
    for part in cutlass.range_constexpr(scheme.parts):
        if cutlass.const_expr(scheme.has_ties and part == scheme.parts - 1):
            for e in cutlass.range_constexpr(4):
                rest[e] = away_from_zero(rest[e], values[e])
        head = cute.make_rmem_tensor(4, Float32)
        for e in cutlass.range_constexpr(4):
            head[e] = first_part(rest[e], config.first if part == 0 else "nearest")
        rounded = head.load().to(element)
        rest.store(rest.load() - rounded.to(Float32))
        address = (to + part * step).toint()
        aligned = cute.make_ptr(element, address, cute.AddressSpace.gmem, assumed_align=8)
        cute.make_tensor(aligned, cute.make_layout(4)).store(rounded)


@cute.jit
def combine(a: Int32, b: Int32, op: cutlass.Constexpr) -> Int32:
    result = a + b
    if cutlass.const_expr(op == "max"):
        result = cutlass.max(a, b)
    return result


@cute.jit
def over_threads(value: Int32, warps: cutlass.Constexpr, op: cutlass.Constexpr) -> Int32:
    """The "max" or "add" of a warp's values, or of all `warps` of the block, in each thread."""
    thread, _, _ = cute.arch.thread_idx()
    for level in cutlass.range_constexpr(5):
        value = combine(value, cute.arch.shuffle_sync_bfly(value, 16 >> level), op)
    if cutlass.const_expr(warps > 1):
        sW = cute.make_tensor(cute.arch.alloc_smem(Int32, warps, 16), cute.make_layout(warps))
        if thread % 32 == 0:
            sW[thread // 32] = value
        cute.arch.sync_threads()
        value = sW[0]
        for i in cutlass.range_constexpr(1, warps):
            value = combine(value, sW[i], op)
    return value


@cute.jit
def over_strip(sW: cute.Tensor, values: cute.Tensor, op: cutlass.Constexpr) -> None:
    """The "max" or "add" over the block's threads for each vector of the strip, into sW[0, …].

    `values` are those of the thread's four vectors.
    """
    thread, _, _ = cute.arch.thread_idx()
    warps = sW.shape[0]
    for e in cutlass.range_constexpr(4):
        value = values[e]
        for distance in (LANES, 2 * LANES):
            value = combine(value, cute.arch.shuffle_sync_bfly(value, distance), op)
        if thread % 32 < LANES:
            sW[thread // 32, thread % LANES * 4 + e] = value
    cute.arch.sync_threads()
    if thread < STRIP:
        for w in cutlass.range_constexpr(1, warps):
            sW[0, thread] = combine(sW[0, thread], sW[w, thread], op)


@cute.kernel
def pack_k_major(
    x: cute.Pointer,
    out: cute.Pointer,
    unscale: cute.Pointer,
    risk: cute.Pointer,
    status: cute.Pointer,
    vectors: Int32,
    depth: Int32,
    ldx: Int64,
    batch_x: Int64,
    pitch: Int32,
    config: cutlass.Constexpr,
):
    pdl_wait()
    thread, _, _ = cute.arch.thread_idx()
    bx, item, _ = cute.arch.block_idx()
    scheme, FOURS, STRIDE = config.scheme, config.fours, 4 * 32 * config.warps
    vector = bx * (PACK_WARPS // config.warps) + thread // (32 * config.warps)
    first = thread % (32 * config.warps) * 4
    mX = cute.make_tensor(x + item * batch_x, cute.make_layout((vectors, depth), stride=(ldx, 1)))
    wide = simt.allows_quads(mX.iterator, ldx)

    # The front of a vector stays in registers; the rest of a long one is read twice.
    held = cute.make_rmem_tensor((4, FOURS), Float32)
    peak = Int32(0)
    for i in cutlass.range_constexpr(FOURS):
        four = load_inside(mX, vector, first + i * STRIDE, wide)
        for e in cutlass.range_constexpr(4):
            held[e, i] = four[e]
    for i in cutlass.range_constexpr(4 * FOURS):
        peak = cutlass.max(peak, magnitude(held[i]))
    for k in cutlass.range(first + FOURS * STRIDE, depth, STRIDE, unroll=4):
        four = load_inside(mX, vector, k, wide)
        for e in cutlass.range_constexpr(4):
            peak = cutlass.max(peak, magnitude(four[e]))
    scale = scale_of(over_threads(peak, config.warps, "max"), scheme)

    counts = cute.make_rmem_tensor(4, Int32)
    counts.fill(0)
    to = out + (Int64(item) * scheme.parts * vectors + vector) * pitch
    step = Int64(vectors) * pitch
    if vector < vectors:
        for i in cutlass.range_constexpr(FOURS):
            k = first + i * STRIDE
            if k < depth:
                four = held[None, i].load()
                split_four(four, [scale] * 4, counts, to + k, step, config)
        for k in cutlass.range(first + FOURS * STRIDE, depth, STRIDE, unroll=4):
            four = load_inside(mX, vector, k, wide)
            split_four(four, [scale] * 4, counts, to + k, step, config)
    count = over_threads(counts[0] + counts[1] + counts[2] + counts[3], config.warps, "add")
    if vector < vectors and first == 0:
        at = Int64(item) * cute.round_up(vectors, VECTOR_PITCH) + vector
        cell(risk, at)[0] = count
        note_risk(Int32(0), count, depth, status)
        note_scale(at, scale, unscale, risk, status)


@cute.jit
def load_from(pointer: cute.Pointer, block: Int32) -> Int32:
    """What another block of the cluster has at the same place of its shared memory."""
    address = cute.arch.map_dsmem_ptr(pointer, block).toint()
    text = "ld.shared::cluster.s32 {$w0}, [{$r0}];"
    return cute.arch.inline_ptx(text, write_only_types=[Int32], read_only_args=[address])


@cute.kernel
def pack_mn_major(
    x: cute.Pointer,
    out: cute.Pointer,
    unscale: cute.Pointer,
    risk: cute.Pointer,
    status: cute.Pointer,
    vectors: Int32,
    depth: Int32,
    ldx: Int64,
    batch_x: Int64,
    pitch: Int32,
    config: cutlass.Constexpr,
):
    pdl_wait()
    thread, _, _ = cute.arch.thread_idx()
    bx, item, _ = cute.arch.block_idx()
    scheme, FOURS, CLUSTER = config.scheme, config.fours, config.cluster
    WARPS, ROWS = config.threads // 32, config.threads // LANES
    rank, column = bx % CLUSTER, bx // CLUSTER * STRIP + thread % LANES * 4
    mX = cute.make_tensor(x + item * batch_x, cute.make_layout((depth, vectors), stride=(ldx, 1)))
    wide = simt.allows_quads(mX.iterator, ldx)
    first = rank * ROWS + thread // LANES

    # The cluster's registers hold a strip of the matrix; its lines go round all threads in turn.
    held = cute.make_rmem_tensor((4, FOURS), Float32)
    for i in cutlass.range_constexpr(FOURS):
        four = load_inside(mX, first + i * CLUSTER * ROWS, column, wide)
        for e in cutlass.range_constexpr(4):
            held[e, i] = four[e]
    peaks = cute.make_rmem_tensor(4, Int32)
    peaks.fill(0)
    for i in cutlass.range_constexpr(FOURS):
        for e in cutlass.range_constexpr(4):
            peaks[e] = cutlass.max(peaks[e], magnitude(held[e, i]))
    sW = cute.make_tensor(
        cute.arch.alloc_smem(Int32, WARPS * STRIP, 16),
        cute.make_layout((WARPS, STRIP), stride=(STRIP, 1)),
    )
    over_strip(sW, peaks, "max")

    # Warp 0 of each block looks at what the other blocks have found.
    at = Int64(item) * cute.round_up(vectors, VECTOR_PITCH) + bx // CLUSTER * STRIP + thread
    inside = thread < STRIP and bx // CLUSTER * STRIP + thread < vectors
    if inside and rank == 0:
        cell(risk, at)[0] = Int32(0)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    sS = cute.make_tensor(cute.arch.alloc_smem(Int32, STRIP, 16), cute.make_layout(STRIP))
    if thread < STRIP:
        peak = sW[0, thread]
        for block in cutlass.range_constexpr(CLUSTER):
            peak = cutlass.max(peak, load_from(sW.iterator + thread, block))
        sS[thread] = scale_of(peak, scheme)
        if inside and rank == 0:
            note_scale(at, sS[thread], unscale, risk, status)
    cute.arch.cluster_arrive()  # waited for below: others may still be looking at this block's sW
    cute.arch.sync_threads()
    scales = [sS[thread % LANES * 4 + e] for e in range(4)]

    counts = cute.make_rmem_tensor(4, Int32)
    counts.fill(0)
    to = out + Int64(item) * scheme.parts * depth * pitch + column
    for i in cutlass.range_constexpr(FOURS):
        line = first + i * CLUSTER * ROWS
        if line < depth and column < vectors:
            four, start = held[None, i].load(), to + Int64(line) * pitch
            split_four(four, scales, counts, start, Int64(depth) * pitch, config)
    cute.arch.cluster_wait()
    over_strip(sW, counts, "add")
    if inside and sW[0, thread] > 0:
        add_risk(risk + at, sW[0, thread], depth, status)


SIGNATURES = signatures(POINTERS, pack_k_major, pack_mn_major)
