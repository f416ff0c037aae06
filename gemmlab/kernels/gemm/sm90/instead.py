"""Compute C as `direct` does in a kernel of another method, whose warps have ended their roles."""

from typing import Any

import cutlass
from cutlass import Int32, cute

from gemmlab.kernels.gemm.sm90.ahead import produce
from gemmlab.kernels.gemm.sm90.direct import allocate, initialize, items_of, multiply
from gemmlab.kernels.gemm.sm90.items import Ring

BLOCK = 6  # barrier of all threads of a block


@cute.jit
def items_for(part: tuple, k: Int32, block: tuple, config: Any) -> tuple:
    """The block's items of a part, the result, and the division."""
    (operands, result, batch), (bx, blocks) = part, block
    rows, columns = result.shape
    count = cute.ceil_div(rows, config.block_m) * cute.ceil_div(columns, config.block_n) * batch
    division = 1, 1, count
    own = cutlass.min(bx, count), cutlass.min(blocks, count)
    return items_of(operands, result, k, division, own, None, config), result, division


@cute.jit
def begin_part(ring: Ring, flags: cute.Tensor, config: cutlass.Constexpr) -> None:
    """Wait until shared memory is free, and initialize it. Run by all threads, in both roles."""
    cute.arch.barrier(barrier_id=BLOCK, number_of_threads=config.threads)
    initialize(ring, flags, config)
    cute.arch.barrier(barrier_id=BLOCK, number_of_threads=config.threads)


@cute.jit
def multiply_instead(
    parts: cutlass.Constexpr,
    numbers: tuple,
    k: Int32,
    block: tuple,
    config: cutlass.Constexpr,
) -> None:
    """Compute parts of C, one after the other.

    parts: a function that returns the operands of a part with a number, its result, and how many
    matrices are in its stack. numbers: the first one, the one after the last, and the step. block:
    this block's number, and how many blocks share a part.

    The loop over parts is within the branches for the roles: the compiler takes a change of
    registers in a loop for a limit to all of the kernel's wgmma, and serializes these.
    """
    (first, end, step), (thread, _, _) = numbers, cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(thread // 32)
    ring, _, flags = memory = allocate(config)
    if warp >= config.warps:
        cute.arch.setmaxregister_increase(config.registers[0])
        for number in cutlass.range(first, end, step, unroll=1):
            begin_part(ring, flags, config)
            own, _, _ = items_for(parts(number), k, block, config)
            if own.first < own.end:
                produce(own, ring, flags, warp - config.warps, thread % 32, config)
    else:
        cute.arch.setmaxregister_decrease(config.registers[1])
        for number in cutlass.range(first, end, step, unroll=1):
            begin_part(ring, flags, config)
            own, result, division = items_for(parts(number), k, block, config)
            if own.first < own.end:
                multiply(own, result, memory, division, config)
