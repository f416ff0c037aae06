"""The split once more, into bfloat16 parts, where float16 turned out to be too narrow.

Whether it is needed only the GPU knows: `split` has counted the elements at risk. With few of them
every block ends at once. The scales that `split` found serve again, so no vector has to be looked
at as a whole, and each thread takes four elements of a line wherever they lie.

The parts may lie where the float16 parts lay, which nobody reads any more.
"""

import cutlass
from cutlass import Int32, Int64, Uint64, cute

from gemmlab.kernels.gemm import parts, split
from gemmlab.kernels.gemm.schemes import VECTOR_PITCH
from gemmlab.problems.problem import Parameter

THREADS = 256
PARAMETERS = (
    split.X,
    Parameter("out", "uint16", "output"),
    Parameter("unscale", "int32", "input"),
    Parameter("risk", "int32", "input"),
    Parameter("status_a", "uint64", "input"),
    Parameter("status_b", "uint64", "input"),
    *split.SIZES,
    split.PITCH,
    Parameter("along", "int32", "scalar"),  # 1: the elements of a vector lie next to each other
    Parameter("least_risk", "uint64", "scalar"),
)


@cute.kernel
def kernel(
    x: cute.Pointer,
    out: cute.Pointer,
    unscale: cute.Pointer,
    risk: cute.Pointer,
    status_a: cute.Pointer,
    status_b: cute.Pointer,
    vectors: Int32,
    depth: Int32,
    ldx: Int64,
    batch_x: Int64,
    pitch: Int32,
    along: Int32,
    least_risk: Uint64,
    config: cutlass.Constexpr,
):
    parts.follow()
    thread, _, _ = cute.arch.thread_idx()
    bx, item, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    lines, length = depth, vectors
    if along != 0:
        lines, length = vectors, depth
    mX = cute.make_tensor(x + item * batch_x, cute.make_layout((lines, length), stride=(ldx, 1)))
    wide = parts.allows_quads(mX.iterator, ldx)
    first = Int64(item) * cute.round_up(vectors, VECTOR_PITCH)
    counts, scales = cute.make_rmem_tensor(4, Int32), cute.make_rmem_tensor(4, Int32)
    counts.fill(0)

    end = lines
    if split.cell(status_a, Int64(0))[0] + split.cell(status_b, Int64(0))[0] < least_risk:
        end = Int32(0)
    for line in cutlass.range(bx, end, blocks):
        to = out + (Int64(item) * config.scheme.parts * lines + line) * pitch
        for i in cutlass.range(thread * 4, length, 4 * THREADS):
            for e in cutlass.range_constexpr(4):
                at = first + i + e
                if along != 0:
                    at = first + line
                scales[e] = -split.cell(unscale, at)[0]
                if split.cell(risk, at)[0] < 0:
                    scales[e] = Int32(split.NOT_FINITE)
            four = split.load_inside(mX, line, i, wide)
            split.split_four(four, scales, counts, to + i, Int64(lines) * pitch, config.scheme)
