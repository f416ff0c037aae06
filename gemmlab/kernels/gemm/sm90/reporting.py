"""A product stores its counts for the host, and then clears those of its packed operands.

| word of the report | meaning                                            |
|--------------------|----------------------------------------------------|
| 0, 1               | elements at risk, and vectors that are not finite  |
| 2                  | blocks of the running launch that have begun       |
| 3                  | doubtful sums of all products so far               |
| 4                  | … of all products before the last one              |
| 5                  | doubtful sums for `finish`; some may find no room  |
| 6                  | blocks of `finish` that have begun                 |
"""

from typing import NamedTuple

import cutlass
from cutlass import Int32, Uint64, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import FIRST, LAST

BARRIER = 4  # of a block: its warps have read the counts of the operands
BEGUN, NUMBER, BEFORE, LISTED, FINISHING = range(2, 7)  # words of the report


class Reporting(NamedTuple):
    report: cute.Pointer
    statuses: tuple  # of packed operands; see `pack`
    clear: Int32  # bit i: those of operand i are cleared
    launch: Int32  # bits: see FIRST in `config`


@cute.jit
def count(counts: cute.Pointer, index: cutlass.Constexpr) -> Uint64:
    """One of the counts, which another block may change meanwhile."""
    return cute.arch.load(counts + index, Uint64, sem="relaxed", scope="gpu")


@cute.jit
def begin_block(what: Reporting) -> None:
    """Report and clear the counts if this block is the launch's last one to begin.

    Run by one thread, when all warps of the block have read the counts of the operands. So the
    report costs no time at the end of the product.
    """
    report, statuses, clear, launch = what
    blocks, _, _ = cute.arch.grid_dim()
    risk, bad = (sum([count(status, i) for status in statuses], Uint64(0)) for i in range(2))
    doubtful = count(report, NUMBER)
    cute.arch.fence_acq_rel_gpu()  # this block has finished reading the counts
    begun = cute.arch.atomic_add(report + BEGUN, Uint64(1), sem="relaxed", scope="gpu")
    cute.arch.fence_acq_rel_gpu()
    if begun == 0 and launch & FIRST != 0:  # no block has found a doubtful sum yet
        simt.element(report, BEFORE)[0] = doubtful
    if begun == blocks - 1:
        cute.arch.store(report + BEGUN, Uint64(0), sem="relaxed", scope="gpu")
        if launch & LAST != 0:
            simt.element(report, 0)[0] = risk
            simt.element(report, 1)[0] = bad
            for side in cutlass.range_constexpr(len(statuses)):
                if clear & (1 << side) != 0:
                    for i in cutlass.range_constexpr(3):
                        cute.arch.store(statuses[side] + i, Uint64(0), sem="relaxed", scope="gpu")
