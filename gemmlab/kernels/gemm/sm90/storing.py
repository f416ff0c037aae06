"""Store the sums of a block of `direct`; compute again what TF32 parts cannot hold."""

from functools import partial
from typing import Any

import cutlass
from cutlass import Boolean, Float32, Int32, Uint8, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK, MOST_ITEMS
from gemmlab.kernels.gemm.sm90.items import Result, Work, place_of, side_of, target_of
from gemmlab.kernels.gemm.sm90.pack import INFINITY, magnitude
from gemmlab.kernels.gemm.sm90.rescue import compute_tile, condemn
from gemmlab.kernels.gemm.sm90.scheduling import synchronize_consumers
from gemmlab.kernels.gemm.sm90.shares import store_sums, store_together
from gemmlab.kernels.gemm.sm90.splitting import ROWS


@cute.jit
def is_sound(sums: cute.Tensor, work: Work, ordinal: Int32) -> Boolean:
    """Whether the warp's sums of an item are valid; condemns them if they are not finite."""
    flags, warp = work.flags, work.warp
    sizes = [cute.math.absf(sums[i]) for i in range(cute.size(sums))]
    most = simt.pairwise(sizes, partial(cute.arch.fmax, nan=True))
    if magnitude(most) >= INFINITY:
        condemn(flags, ordinal, warp)
    cute.arch.sync_warp()
    return flags[ordinal, warp] == 0


@cute.jit
def store_item(
    sums: cute.Tensor, work: Work, place: Any, result: Result, config: cutlass.Constexpr
) -> None:
    """Store this thread's sums of an item."""
    corner, mC, mD = target_of(work.items, place, result)
    row = work.warp * ROWS + work.lane // 4
    corner = corner[0] + row, corner[1] + work.lane % 4 * 4
    store_sums(sums, corner, mC, mD, result.factors, config)


@cute.jit
def store_if_sound(
    sums: cute.Tensor,
    work: Work,
    ordinal: Int32,
    place: cute.Tensor,
    result: Result,
    config: cutlass.Constexpr,
) -> None:
    if is_sound(sums, work, ordinal):
        store_item(sums, work, place, result, config)


@cute.jit
def store_last(
    sums: cute.Tensor,
    mma: cute.TiledMma,
    work: Work,
    result: Result,
    count: Int32,
    place: cute.Tensor,
    splits: Int32,
    slices: Int32,
    k: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Compute the condemned items in float32; store them and the last one, which is at `place`."""
    own, flags = work.items, work.flags
    thread, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    floats = cute.recast_ptr(work.ring.parts, dtype=Float32)
    last = count - 1
    is_sound(sums, work, last)
    synchronize_consumers(config)
    identity = cute.make_identity_tensor((config.block_m, config.block_n))
    coords = mma.get_slice(thread).partition_C(identity)
    ends = own.chunks[0] * CHUNK, cutlass.min(own.chunks[1] * CHUNK, k)
    rounds = count if flags[MOST_ITEMS, 0] != 0 else 1
    for i in cutlass.range(rounds, unroll=1):
        condemned = Uint8(0)
        for other in cutlass.range(config.warps, unroll=1):
            condemned = condemned | flags[last - i, other]
        if i > 0:
            item = own.first + (last - i) * own.step
            *found, _ = place_of(item, own.tiles, slices)
            for axis in cutlass.range_constexpr(3):
                place[axis] = found[axis]
        if condemned != 0:
            sides = side_of(own, place, 0), side_of(own, place, 1)
            compute_tile(sums, coords, floats, sides, ends, config)
        if splits == 1 and (i == 0 or flags[last - i, work.warp] != 0):
            store_item(sums, work, place, result, config)
    if splits > 1:
        corner, mC, mD = target_of(own, own.start, result)
        share = bx % splits, splits
        store_together(sums, floats, corner, mC, mD, share, result.factors, config)
