"""The machine code of `copy-warps`, its inner loop's FFMAs in another order.

The register file has two banks, even and odd registers; each delivers one register per cycle and
takes one result. An FFMA reads three: a, b and the sum. So a third must come from the reuse cache,
which keeps operands flagged `.reuse`, one per slot and bank. ptxas mixes the products of several k,
and one FFMA in five writes to the bank of the one before it.

Here the products of two rows and two columns follow each other. Their four factors, two of each
bank, stay in the cache, and an FFMA reads 1.6 registers. Results alternate between the banks, so
that a bank is free for the data of a load, which must be written too; loads are 16 FFMAs apart.
The order along k is unchanged, so the result is bit-identical.

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
        rewritten="copy-warps",
    ),
)
