"""Pack both operands again, into bfloat16 parts, if their values are too wide for float16.

Only the GPU knows whether this is needed: `pack` has counted the elements at risk. If there are
few, every block ends at once; one launch for both operands keeps that short. The scales found by
`pack` are used again, so no vector needs a reduction, and each thread takes four elements of any
line.

The new parts may overwrite the float16 parts, which have no remaining readers.
"""

from typing import Any

import cutlass
from cutlass import Int32, Int64, Uint64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90 import pack
from gemmlab.kernels.gemm.sm90.config import VECTOR_PITCH
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.signature import signatures

THREADS = 256
OPERAND = {
    "x": ("float32", "input"),
    "out": ("uint16", "output"),
    "unscale": ("int32", "input"),
    "risk": ("int32", "input"),
    "status": ("uint64", "input"),
}
POINTERS = {f"{name}_{side}": what for name, what in OPERAND.items() for side in "ab"}


@cute.kernel
def kernel(
    x_a: cute.Pointer,
    out_a: cute.Pointer,
    unscale_a: cute.Pointer,
    risk_a: cute.Pointer,
    status_a: cute.Pointer,
    vectors_a: Int32,
    depth_a: Int32,
    ldx_a: Int64,
    batch_x_a: Int64,
    pitch_a: Int32,
    k_major_a: Int32,
    batch_a: Int32,
    x_b: cute.Pointer,
    out_b: cute.Pointer,
    unscale_b: cute.Pointer,
    risk_b: cute.Pointer,
    status_b: cute.Pointer,
    vectors_b: Int32,
    depth_b: Int32,
    ldx_b: Int64,
    batch_x_b: Int64,
    pitch_b: Int32,
    k_major_b: Int32,
    batch_b: Int32,
    least_risk: Uint64,
    config: cutlass.Constexpr,
):
    pdl_wait()
    _, item, side = cute.arch.block_idx()
    at_risk = simt.element(status_a, 0)[0] + simt.element(status_b, 0)[0]
    if at_risk >= least_risk:
        if side == 0 and item < batch_a:
            sizes = (vectors_a, depth_a, ldx_a, batch_x_a, pitch_a, k_major_a)
            repack_operand(x_a, out_a, unscale_a, risk_a, sizes, config)
        if side == 1 and item < batch_b:
            sizes = (vectors_b, depth_b, ldx_b, batch_x_b, pitch_b, k_major_b)
            repack_operand(x_b, out_b, unscale_b, risk_b, sizes, config)


@cute.jit
def repack_operand(
    x: cute.Pointer,
    out: cute.Pointer,
    unscale: cute.Pointer,
    risk: cute.Pointer,
    sizes: Any,
    config: cutlass.Constexpr,
) -> None:
    """Pack this block's lines of one operand."""
    vectors, depth, ldx, batch_x, pitch, k_major = sizes
    thread, _, _ = cute.arch.thread_idx()
    bx, item, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    lines, length = depth, vectors
    if k_major != 0:
        lines, length = vectors, depth
    mX = cute.make_tensor(x + item * batch_x, cute.make_layout((lines, length), stride=(ldx, 1)))
    wide = simt.allows_quads(mX.iterator, ldx)
    first = Int64(item) * cute.round_up(vectors, VECTOR_PITCH)
    counts, scales = cute.make_rmem_tensor(4, Int32), cute.make_rmem_tensor(4, Int32)
    counts.fill(0)
    for line in cutlass.range(bx, lines, blocks):
        target = out + (Int64(item) * config.scheme.parts * lines + line) * pitch
        for i in cutlass.range(thread * 4, length, 4 * THREADS):
            for e in cutlass.range_constexpr(4):
                at = first + i + e
                if k_major != 0:
                    at = first + line
                scales[e] = -simt.element(unscale, at)[0]
                if simt.element(risk, at)[0] < 0:
                    scales[e] = Int32(pack.NOT_FINITE)
            four = pack.load_inside(mX, line, i, wide)
            factors = [pack.factors_of(scales[e]) for e in range(4)]
            pack.pack_four(four, factors, counts, target + i, Int64(lines) * pitch, config)


SIGNATURES = signatures(POINTERS, kernel)
