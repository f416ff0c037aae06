"""The machine code of `copy-warps`, its inner loop's FFMAs in another order.

The register file delivers two registers per cycle, and an FFMA reads three: a, b and the sum. A
third must come from the reuse cache, which keeps the operands of the instruction before that are
flagged `.reuse`. ptxas mixes the products of several k; one FFMA in fifteen finds nothing there.

Here the eight products of a row of sums follow each other, from left to right, in the next row from
right to left. So every FFMA finds its a there, or at the turn its b, and reads two registers. The
order along k stays, and with it every bit of the result.

The pass checks its own work: it executes the old and the new instructions symbolically, and gives
up unless all values are equal. `gemmlab show operand-reuse --sass --lint` counts what is left.
"""

from dataclasses import replace

from gemmlab.cubin import reorder
from gemmlab.kernels.gemm import copy_warps


def rewrite(cubin: bytes, entry: str) -> bytes:
    return reorder.reorder(cubin, entry)


RUNGS = (
    replace(
        copy_warps.RUNGS[0],
        name="operand-reuse",
        change="FFMAs ordered for the reuse cache",
        rewrite=rewrite,
    ),
)
