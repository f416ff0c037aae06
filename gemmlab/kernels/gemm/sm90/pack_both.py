"""Pack an MN-major and a K-major operand of a product in one launch; see `pack`."""

import cutlass
from cutlass import Int32, Int64, cute

from gemmlab.kernels.gemm.sm90 import pack
from gemmlab.kernels.gemm.sm90.pack_k_major import pack_lines
from gemmlab.kernels.gemm.sm90.pack_mn_major import pack_strip
from gemmlab.kernels.gemm.sm90.pdl import pdl_wait
from gemmlab.kernels.signature import signatures


@cute.kernel
def pack_both(
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
    block, _, _ = cute.arch.block_idx()
    # All blocks of a cluster take the same path.
    if block < split:
        pack_strip(first, block, depth, config.mn_major)
    else:
        pack_lines(second, block - split, depth, config.k_major)


SIGNATURES = signatures(pack.POINTERS, pack_both)
