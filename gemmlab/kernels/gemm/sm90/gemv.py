"""Multiply a matrix and a vector in float32, in one launch that reads the matrix once.

Each element of the matrix takes part in a single multiply-add, so the time is that of reading it.
Reading at full speed takes many loads in flight: a thread issues several of 128 bits before it
uses the first one. So a tile in shared memory would only be a detour.

A warp reads one, two or four lines of the matrix at once: 8, 16 or 32 lanes share a line, with four
elements each.

| lines of the matrix run along … | a lane's four products are of | their sums are added up by   |
|---------------------------------|-------------------------------|------------------------------|
| k                               | one result                    | the lanes that share a line  |
| the result                      | four results                  | lanes with different lines   |

The warps of a block, and the blocks of a cluster, divide k where there are few results. They add up
their sums in order, so every run has the same bits. Lines that are not aligned to 16 bytes are read
in single elements; then adjacent lanes read adjacent elements, so a lane's four lie apart.

A thread adds up the products of the loads in flight, then these sums; where few chains of additions
divide k in a block, it first adds them in groups of `GROUP`. So each term passes through few
additions. In one chain per thread, a term of k = 16384 could pass through 2048 additions and lose
2048 u (u = 2^-24); the accuracy contract allows 2√k u, here 256 u.

Traffic: 4·k·n bytes. Limiter: memory.
"""

from typing import NamedTuple

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.gemv_config import GROUP, WARP
from gemmlab.kernels.gemm.sm90.pdl import let_next_start, wait_for_previous
from gemmlab.kernels.signature import signatures

POINTERS = {
    "matrix": ("float32", "input"),
    "x": ("float32", "input"),
    "c": ("float32", "output"),
    "d": ("float32", "input"),
}


class Share(NamedTuple):
    """What a lane multiplies: in each step four elements of a line, with four or one of x."""

    matrix: cute.Pointer  # the line's elements in the first step
    x: cute.Pointer
    steps: Int32  # of the lane
    advance: Int64  # elements of the matrix from one step to the next
    advance_x: Int64
    left: Int32  # elements of the line from the first step's on
    shrinks: Int32  # by how much fewer these are in each step


@cute.jit
def read_four(
    start: cute.Pointer,
    left: Int32,
    step: Int64,
    config: cutlass.Constexpr,
    wide: cutlass.Constexpr,
) -> cute.Tensor:
    """The lane's four of the elements `step` apart from `start` on, 0 beyond the first `left`."""
    lane = cute.arch.lane_idx() % config.lanes
    four = cute.make_rmem_tensor(4, Float32)
    four.fill(0.0)
    if cutlass.const_expr(wide):
        if 4 * lane < left:
            found = vectors.read(start + 4 * lane, 4)
            for e in cutlass.range_constexpr(4):
                four[e] = found[e]
    else:
        for e in cutlass.range_constexpr(4):
            at = lane + e * config.lanes
            four[e] = vectors.read_if(at < left, start + at * step)
    return four


@cute.jit
def add_products(
    sums: cute.Tensor,
    share: Share,
    steps: Int32,
    step_x: Int64,
    config: cutlass.Constexpr,
    wide: cutlass.Constexpr,
) -> None:
    """sums (4) += the lane's products in all steps. steps: the most of any lane of the warp."""
    group = cute.make_rmem_tensor(4, Float32)
    group.fill(0.0)
    for first in cutlass.range(0, steps, config.loads, unroll=1):
        matrix, x = share.matrix + first * share.advance, share.x + first * share.advance_x
        rest, left = share.steps - first, share.left - first * share.shrinks
        read = []
        for u in cutlass.range_constexpr(config.loads):
            if cutlass.const_expr(config.k_major):
                factors = read_four(x, left, step_x, config, wide)  # none after the last step
            else:
                one = vectors.read_if(u < rest, x)
                factors = [one] * 4
                left = cutlass.select_(u < rest, left, Int32(0))
            read.append((read_four(matrix, left, Int64(1), config, wide), factors))
            matrix, x, left = matrix + share.advance, x + share.advance_x, left - share.shrinks
        own = cute.make_rmem_tensor(4, Float32)
        own.fill(0.0)
        for four, factors in read:
            for e in cutlass.range_constexpr(4):
                own[e] += four[e] * factors[e]
        for e in cutlass.range_constexpr(4):
            group[e] += own[e]
        if cutlass.const_expr(config.groups):  # noqa: SIM102 (the second condition is dynamic)
            if first % (GROUP * config.loads) == 0:
                for e in cutlass.range_constexpr(4):
                    sums[e] += group[e]
                    group[e] = Float32(0)
    for e in cutlass.range_constexpr(4):
        sums[e] += group[e]


@cute.jit
def lanes_sum(value: Float32, first: cutlass.Constexpr, end: cutlass.Constexpr) -> Float32:
    """The sum over the lanes whose numbers differ in the bits of value `first` to `end` / 2."""
    step = first
    while cutlass.const_expr(step < end):
        value += cute.arch.shuffle_sync_bfly(value, step)
        step *= 2
    return value


@cute.kernel
def kernel(
    matrix: cute.Pointer,
    x: cute.Pointer,
    c: cute.Pointer,
    d: cute.Pointer,
    n: Int32,
    k: Int32,
    ld: Int64,
    step_x: Int64,
    step_c: Int64,
    step_d: Int64,
    batch_matrix: Int64,
    batch_x: Int64,
    batch_c: Int64,
    batch_d: Int64,
    alpha: Float32,
    beta: Float32,
    warps: Int32,
    splits: Int32,
    config: cutlass.Constexpr,
):
    """c (n) = alpha · matrix · x + beta · d. warps: of a block, which divide k."""
    LINES, WIDTH = config.lines, config.width
    bx, item, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    warp, lane = cute.arch.make_warp_uniform(thread // WARP), thread % WARP
    rank, group = bx % splits, bx // splits
    matrix, x = matrix + item * batch_matrix, x + item * batch_x
    part, parts = rank * warps + warp % warps, warps * splits
    if cutlass.const_expr(config.k_major):
        results, length = config.warps // warps * LINES, k  # of a block; of a line
        corner, own = group * results, warp // warps * LINES + lane // config.lanes
        line = cutlass.min(corner + own, n - 1)  # beyond the last line, that one again
        first, step = part * WIDTH, parts * WIDTH
        steps = cute.ceil_div(cutlass.max(k - first, 0), step)
        start, at_x = matrix + (line * ld + first), x + first * step_x
        share = Share(start, at_x, steps, Int64(step), step * step_x, k - first, step)
    else:
        results, length = WIDTH, n
        corner, own = group * results, Int32(0)
        first, step = part * LINES, parts * LINES
        steps = cute.ceil_div(cutlass.max(k - first, 0), step)
        first += lane // config.lanes
        of_lane = cute.ceil_div(cutlass.max(k - first, 0), step)
        start, at_x = matrix + (first * ld + corner), x + first * step_x
        share = Share(start, at_x, of_lane, step * ld, step * step_x, n - corner, Int32(0))
    # Four elements are inside the line, or none.
    wide = simt.allows_quads(matrix, ld) and length % 4 == 0
    if cutlass.const_expr(config.k_major):
        wide = wide and step_x == 1 and x.toint() % 16 == 0
    sums = cute.make_rmem_tensor(4, Float32)
    sums.fill(0.0)
    wait_for_previous()
    let_next_start()  # as late as this: `pdl` says why
    if wide:
        add_products(sums, share, steps, step_x, config, True)
    else:
        add_products(sums, share, steps, step_x, config, False)
    partial = cute.arch.get_dyn_smem(Float32, alignment=16)
    if cutlass.const_expr(config.k_major):
        total = lanes_sum((sums[0] + sums[1]) + (sums[2] + sums[3]), 1, config.lanes)
        if lane % config.lanes == 0:
            vectors.write(partial + (warp % warps * results + own), [total])
    else:
        for e in cutlass.range_constexpr(4):
            total = lanes_sum(sums[e], config.lanes, WARP)
            at = lane + e * config.lanes
            if wide:
                at = 4 * lane + e
            if lane < config.lanes:
                vectors.write(partial + (warp * WIDTH + at), [total])
    cute.arch.sync_threads()
    total = Float32(0)
    if thread < results:
        for i in cutlass.range(warps, unroll=4):
            total += vectors.read(partial + (i * results + thread), 1)[0]
    if splits > 1:
        if thread < results:
            vectors.write(partial + thread, [total])
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        if thread < results and rank == 0:
            total = Float32(0)
            for block in cutlass.range(splits, unroll=4):
                total += vectors.read(cute.arch.map_dsmem_ptr(partial + thread, block), 1)[0]
        # A block must not exit while others of its cluster read its sums.
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()
    at = corner + thread
    if thread < results and rank == 0 and at < n:
        total *= alpha
        if beta != 0:
            total += beta * vectors.read(d + (item * batch_d + at * step_d), 1)[0]
        vectors.write(c + (item * batch_c + at * step_c), [total])


SIGNATURES = signatures(POINTERS, kernel)
