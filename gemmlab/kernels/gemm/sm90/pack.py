"""Represent a float32 matrix as a sum of 16-bit matrices, the operands of `fp16x3` and `bf16x6`.

A *vector* is a row of A or a column of B, `depth` elements long. A power of two scales it, without
rounding, so that its largest element has exponent `peak`: float16 ranges from 2^-24 to 2^16. Each
scaled value then becomes a sum of parts. The first part is the value rounded to 16 bits, the second
is the remainder rounded to 16 bits, and so on. How the `first` part is rounded determines the sign
of the remainder, and so the sign of the error of leaving out remainder times remainder.

An operand is K-major if the elements of a vector are contiguous (`pack_k_major`), and MN-major if
the elements of different vectors are. An MN-major operand is packed by clusters of blocks, which
exchange the largest magnitudes that they have found; `pack_deep` packs matrices too deep for the
registers of a cluster. The parts keep the order of the matrix in memory. Their pitch meets TMA's
rules whatever the matrix's pitch is.

| output    | per     | meaning                                                                   |
|-----------|---------|---------------------------------------------------------------------------|
| out       | element | parts (batch, part, line, pitch); lines are contiguous                    |
| unscale   | vector  | exponent of the power of two that undoes the scale                        |
| risk      | vector  | number of elements too small relative to the largest to keep all bits;    |
|           |         | -1 if the vector has an infinity or a NaN, and its parts are then 0; -2   |
|           |         | if all its elements are 0                                                 |
| shortfall | vector  | how far its elements lie below the largest on average, in powers of two   |
| status    | matrix  | [0] += elements at risk, and 2^40 per vector that is wide, as it has many |
|           |         | of them, or not finite; [1] += vectors with an infinity or a NaN; [2]: the |
|           |         | most elements at risk of a vector, or `FAR` if any scale is not near 1    |

Traffic: 8 bytes per element for two parts. Memory bandwidth is the limit, so each thread issues
`fours` 128-bit loads before it uses the first.
"""

from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels import atomics
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import (
    DEEPEST,
    EMPTY_RISK,
    FAR,
    LEAST_PEAK,
    NEAR,
    NO_SHORTFALL,
    NOT_FINITE_RISK,
    STRIP,
    VECTOR_PITCH,
    WIDE_COUNT,
    WIDE_EVERY,
    WIDE_LEAST,
    WIDE_SHORTFALL,
)
from gemmlab.kernels.gemm.sm90.pdl import pdl_begin, pdl_end
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS
from gemmlab.kernels.signature import signatures

POINTERS = {
    "x": ("float32", "input"),
    "out": ("uint16", "output"),
    "unscale": ("int32", "output"),
    "risk": ("int32", "output"),
    "shortfall": ("float32", "output"),
    "status": ("uint64", "accumulator"),
}

LANES = STRIP // 4  # lanes per line of a strip, four vectors each
INFINITY = 0x7F800000  # float32 bits
# Marks in place of the scale: of a vector with an infinity or a NaN, and of one that is all zeros.
NOT_FINITE, EMPTY = 1 << 14, (1 << 14) + 1
SIGN = -(1 << 31)  # sign bit of a float32
TAIL = (1 << 13) - 1  # significand bits that float32 has and float16 lacks
# float32 bits of 2^-20. A relative change by 2^-20 exceeds an ulp of float32 and is far below half
# an ulp of float16.
TIE_NUDGE = (127 - 20) << 23


@cute.jit
def magnitude(value: Float32) -> Int32:
    """The bits of |value|. As integers they sort like the magnitudes, with NaN last."""
    return value.bitcast(Int32) & 0x7FFFFFFF


@cute.jit
def power(e: Int32) -> Float32:
    """2^e for e from -126 to 127."""
    return ((e + 127) << 23).bitcast(Float32)


@cute.jit
def scale_of(peak: Int32, scheme: cutlass.Constexpr) -> Int32:
    """The exponent of a vector's scale, from the bits of its largest magnitude, or a mark."""
    exponent = (peak >> 23) - 127
    if peak < 1 << 23:
        # Subnormal: `peak` is a multiple of 2^-149. Its conversion to float32 has the exponent.
        exponent = (Float32(peak).bitcast(Int32) >> 23) - 127 - 149
    scale = scheme.peak - exponent
    if peak == 0:
        scale = Int32(EMPTY)
    if peak >= INFINITY:
        scale = Int32(NOT_FINITE)
    return scale


@cute.jit
def shortfall_of(peak: Int32, exponents: Int32, depth: Int32) -> Float32:
    """A vector's shortfall, from the bits of its largest magnitude and its exponents' sum."""
    shortfall = Float32(peak >> 23) - Float32(Uint32(exponents)) / Float32(depth)
    if peak < (127 + LEAST_PEAK) << 23 or depth > DEEPEST:
        shortfall = Float32(NO_SHORTFALL)
    return shortfall


@cute.jit
def load_inside(tensor: cute.Tensor, i: Int32, j: Int32, wide: cutlass.Boolean) -> cute.TensorSSA:
    """Elements (i,j) to (i,j+3), 0 outside the matrix; one 128-bit load if possible."""
    rows, columns = tensor.shape
    inside = i < rows and j + 4 <= columns
    return simt.load_four(tensor, i, j, 1, wide and inside)


@cute.jit
def record_scale(at: Int64, scale: Int32, unscale: Any, risk: Any, status: cute.Pointer) -> None:
    """Write how to undo a vector's scale, and mark the vector if it is empty or not finite."""
    simt.element(unscale, at)[0] = -scale
    if scale >= NOT_FINITE:
        simt.element(unscale, at)[0] = Int32(0)
        simt.element(risk, at)[0] = Int32(EMPTY_RISK)
    elif scale > NEAR or scale < -NEAR:
        atomics.raise_to(status + 2, Uint64(FAR))
    if scale == NOT_FINITE:
        simt.element(risk, at)[0] = Int32(NOT_FINITE_RISK)
        atomics.add(status, Uint64(WIDE_COUNT))
        atomics.add(status + 1, Uint64(1))


@cute.jit
def count_risk(
    before: Int32, count: Int32, shortfall: Float32, depth: Int32, status: cute.Pointer
) -> None:
    """Add `count` elements at risk to the matrix's counts; their vector had `before` of them.

    The call that makes a vector wide also counts it as wide.
    """
    most = WIDE_LEAST + depth // WIDE_EVERY
    added = Uint64(count)
    if before <= most and before + count > most and shortfall > WIDE_SHORTFALL:
        added += Uint64(WIDE_COUNT)
    if count > 0:
        atomics.add(status, added)
        atomics.raise_to(status + 2, Uint64(before + count))


@cute.jit
def add_risk(
    risk: cute.Pointer, count: Int32, shortfall: Float32, depth: Int32, status: cute.Pointer
) -> None:
    """Add one block's count of a vector's elements at risk."""
    before = cute.arch.atomic_add(risk, count, sem="relaxed", scope="gpu")
    count_risk(before, count, shortfall, depth, status)


@cute.jit
def away_from_zero(rest: Float32, value: Float32) -> Float32:
    """`rest` with a nudge that changes how ties round, and nothing else: |value| rounds up.

    Tensor cores truncate sums towards zero. Rounding ties away from zero compensates some of that,
    with errors no larger than those of ties to even.
    """
    opposite = (rest.bitcast(Int32) ^ value.bitcast(Int32)) & SIGN
    nudge = (opposite | TIE_NUDGE).bitcast(Float32)
    return rest + rest * nudge


@cute.jit
def first_part(value: Float32, way: cutlass.Constexpr) -> Float32:
    """A number that rounds to the first part of `value`.

    way: "nearest" returns `value`. If |value| lies between two float16 numbers, "down" returns the
    smaller, "up" the larger. Subnormals of float16 have fewer bits and may round either way.
    """
    bits = value.bitcast(Int32)
    if cutlass.const_expr(way == "up"):
        bits += TAIL
    if cutlass.const_expr(way != "nearest"):
        bits &= ~TAIL
    return bits.bitcast(Float32)


@cute.jit
def factors_of(scale: Int32) -> tuple:
    """Two powers of two, whose product is 2^`scale`, and a mask for the bits of scaled elements.

    2^`scale` itself may lie outside the range of float32. If `scale` is a mark, the mask clears all
    bits.
    """
    half, mask = scale >> 1, Int32(-1)
    if scale >= NOT_FINITE:
        mask = Int32(0)
    return power(half), power(scale - half), mask


@cute.jit
def split_four(
    four: cute.TensorSSA, factors: list, counts: cute.Tensor, config: cutlass.Constexpr
) -> list:
    """The parts of four elements, largest first; count those at risk. factors: see `factors_of`."""
    scheme = config.scheme
    rest = cute.make_rmem_tensor(4, Float32)
    for e in cutlass.range_constexpr(4):
        first, second, mask = factors[e]
        value = ((four[e] * first * second).bitcast(Int32) & mask).bitcast(Float32)
        size = magnitude(value)
        if size > 0 and size < (127 + scheme.floor) << 23:
            counts[e] += 1
        rest[e] = value
    values = cute.make_rmem_tensor(4, Float32)
    values.store(rest.load())
    parts = []
    for part in cutlass.range_constexpr(scheme.parts):
        if cutlass.const_expr(scheme.has_ties and part == scheme.parts - 1):
            for e in cutlass.range_constexpr(4):
                rest[e] = away_from_zero(rest[e], values[e])
        head = cute.make_rmem_tensor(4, Float32)
        for e in cutlass.range_constexpr(4):
            head[e] = first_part(rest[e], config.first if part == 0 else "nearest")
        rounded = head.load().to(ELEMENTS[scheme.dtype])
        rest.store(rest.load() - rounded.to(Float32))
        parts.append(rounded)
    return parts


@cute.jit
def store_parts(parts: list, target: cute.Pointer, step: Int64) -> None:
    """Write the parts of four elements to `target`, `target + step`, …"""
    for part in cutlass.range_constexpr(len(parts)):
        address, dtype = (target + part * step).toint(), parts[part].element_type
        aligned = cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=8)
        cute.make_tensor(aligned, cute.make_layout(4)).store(parts[part])


@cute.jit
def pack_four(
    four: cute.TensorSSA,
    factors: list,
    counts: cute.Tensor,
    target: cute.Pointer,
    step: Int64,
    config: cutlass.Constexpr,
) -> None:
    """Write the parts of four elements to `target`, `target + step`, …; count those at risk."""
    store_parts(split_four(four, factors, counts, config), target, step)


@cute.jit
def combine(a: Int32, b: Int32, op: cutlass.Constexpr) -> Int32:
    result = a + b
    if cutlass.const_expr(op == "max"):
        result = cutlass.max(a, b)
    return result


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
                value = combine(value, cute.arch.shuffle_sync_bfly(value, distance), ops[v])
            if thread % 32 < LANES:
                tensors[v][thread // 32, thread % LANES * 4 + e] = value
    cute.arch.sync_threads()
    if thread < STRIP:
        for v in cutlass.range_constexpr(len(ops)):
            sW = tensors[v]
            for w in cutlass.range_constexpr(1, warps):
                sW[0, thread] = combine(sW[0, thread], sW[w, thread], ops[v])


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
        sS[thread], short = scale_of(peak, config.scheme), shortfall_of(peak, exponents, depth)
        if inside and rank == 0:
            simt.element(shortfall, at)[0] = short
            record_scale(at, sS[thread], unscale, risk, status)
    cute.arch.cluster_arrive()
    cute.arch.sync_threads()
    return [sS[thread % LANES * 4 + e] for e in range(4)], short


@cute.kernel
def pack_mn_major(
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
    scheme, FOURS, CLUSTER = config.scheme, config.fours, config.cluster
    WARPS, ROWS = config.threads // 32, config.threads // LANES
    rank, column = bx % CLUSTER, bx // CLUSTER * STRIP + thread % LANES * 4
    mX = cute.make_tensor(x + item * batch_x, cute.make_layout((depth, vectors), stride=(ldx, 1)))
    wide = simt.allows_quads(mX.iterator, ldx)
    first = rank * ROWS + thread // LANES

    # The cluster's registers hold a strip of vectors, its lines dealt out to the threads in turn.
    held = cute.make_rmem_tensor((4, FOURS), Float32)
    for i in cutlass.range_constexpr(FOURS):
        four = load_inside(mX, first + i * CLUSTER * ROWS, column, wide)
        for e in cutlass.range_constexpr(4):
            held[e, i] = four[e]
    peaks, exponents = cute.make_rmem_tensor(4, Int32), cute.make_rmem_tensor(4, Int32)
    peaks.fill(0)
    exponents.fill(0)
    for i in cutlass.range_constexpr(FOURS):
        for e in cutlass.range_constexpr(4):
            peaks[e] = cutlass.max(peaks[e], magnitude(held[e, i]))
            exponents[e] += magnitude(held[e, i]) >> 23
    shape = cute.make_layout((WARPS, STRIP), stride=(STRIP, 1))
    sW = cute.make_tensor(cute.arch.alloc_smem(Int32, WARPS * STRIP, 16), shape)
    sE = cute.make_tensor(cute.arch.alloc_smem(Int32, WARPS * STRIP, 16), shape)
    reduce_strip((sW, sE), (peaks, exponents), ("max", "add"))

    # Thread i < STRIP of each block has vector i of the strip.
    at = Int64(item) * cute.round_up(vectors, VECTOR_PITCH) + bx // CLUSTER * STRIP + thread
    inside = thread < STRIP and bx // CLUSTER * STRIP + thread < vectors
    outputs = (unscale, risk, shortfall, status)
    scales, short = share_scales((sW, sE), outputs, inside, rank, at, depth, config)

    counts = cute.make_rmem_tensor(4, Int32)
    counts.fill(0)
    factors = [factors_of(scale) for scale in scales]
    target = out + (Int64(item) * scheme.parts * depth + first) * pitch + column
    between, step = Int64(CLUSTER * ROWS) * pitch, Int64(depth) * pitch
    for i in cutlass.range_constexpr(FOURS):
        if first + i * CLUSTER * ROWS < depth and column < vectors:
            pack_four(held[None, i].load(), factors, counts, target, step, config)
        target += between
    cute.arch.cluster_wait()  # no block still reads this block's peaks
    reduce_strip((sW,), (counts,), ("add",))
    if inside and sW[0, thread] > 0:
        add_risk(risk + at, sW[0, thread], short, depth, status)
    pdl_end(beside)


SIGNATURES = signatures(POINTERS, pack_mn_major)
