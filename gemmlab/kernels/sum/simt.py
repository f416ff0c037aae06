"""Shared by the sum kernels: a thread's element of x, and the sum of a block's values."""

import cutlass
from cutlass import Float32, Int64, cute

from gemmlab.kernels import atomics

WARP = 32


@cute.jit
def own_or_zero(x: cute.Pointer, n: Int64, threads: cutlass.Constexpr) -> Float32:
    """The element of x that belongs to this thread of the grid; 0 past the end."""
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    i = Int64(bx) * threads + tx
    value = Float32(0)
    if i < n:
        value = cute.make_tensor(x, cute.make_layout(n))[i]
    return value


@cute.jit
def shared_vector(length: cutlass.Constexpr) -> cute.Tensor:
    """`length` float32 elements in static shared memory."""
    return cute.make_tensor(cute.arch.alloc_smem(Float32, length, 16), cute.make_layout(length))


@cute.jit
def warp_sum(value: Float32) -> Float32:
    """The sum of the warp's 32 values, in lane 0, by five shuffles of halving distance."""
    for level in cutlass.range_constexpr(5):
        value += cute.arch.shuffle_sync_down(value, WARP >> (level + 1))
    return value


@cute.jit
def block_sum(value: Float32, threads: cutlass.Constexpr) -> Float32:
    """The sum of the block's values, in thread 0: reduce each warp, then the warps' sums."""
    tx, _, _ = cute.arch.thread_idx()
    sW = shared_vector(WARP)
    value = warp_sum(value)
    if tx % WARP == 0:
        sW[tx // WARP] = value
    cute.arch.sync_threads()
    part = Float32(0)
    if tx < WARP:
        if tx < threads // WARP:
            part = sW[tx]
        part = warp_sum(part)
    return part


@cute.jit
def add_block_sum(out: cute.Pointer, value: Float32, threads: cutlass.Constexpr) -> None:
    """Add the sum of the block's values to `out`.

    Not by `block_sum`: with the condition around the whole end, warps other than the first execute
    fewer instructions, and the hardware's readings are of this code.
    """
    tx, _, _ = cute.arch.thread_idx()
    sW = shared_vector(WARP)
    value = warp_sum(value)
    if tx % WARP == 0:
        sW[tx // WARP] = value
    cute.arch.sync_threads()
    if tx < WARP:
        part = Float32(0)
        if tx < threads // WARP:
            part = sW[tx]
        part = warp_sum(part)
        if tx == 0:
            atomics.add(out, part)


@cute.jit
def quad(x: cute.Pointer, i: Int64) -> cute.Tensor:
    """Four elements from i on, for one 128-bit access. The address must be aligned."""
    aligned = cute.make_ptr(Float32, (x + i).toint(), x.memspace, assumed_align=16)
    return cute.make_tensor(aligned, cute.make_layout(4))
