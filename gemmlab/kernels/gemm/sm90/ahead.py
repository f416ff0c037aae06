"""The warpgroup of `direct` that copies and splits B, up to three chunks ahead of the others."""

from typing import Any

import cutlass
from cutlass import Int32, Uint32, cute

from gemmlab.kernels.gemm.sm90.direct_config import CHUNK
from gemmlab.kernels.gemm.sm90.items import Items, Ring, copy_next, cursor_of
from gemmlab.kernels.gemm.sm90.pdl import wait_for_previous
from gemmlab.kernels.gemm.sm90.rescue import condemn_if_small
from gemmlab.kernels.gemm.sm90.splitting import (
    FAR,
    PARTS,
    WARPS,
    far_share,
    load_b,
    share_of_b,
    source_of_b,
    split_b,
    spot_of_b,
)


@cute.jit
def wrapped(index: Int32, size: cutlass.Constexpr) -> Int32:
    """The index, below 2·size, wrapped around a ring."""
    if index >= size:
        index -= size
    return index


def wait_for_copies(config: Any) -> None:
    """Wait until the warp's oldest stage has arrived."""
    cute.arch.cp_async_wait_group(config.stages - 1)
    cute.arch.sync_warp()


@cute.jit
def produce(
    items: Items,
    ring: Ring,
    flags: cute.Tensor,
    warp: Int32,
    lane: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Copy and split B of all the block's chunks. Run by each warp of a warpgroup."""
    own = share_of_b(items.operands[1].ld, warp, lane, config)
    shares = (own, far_share(own)) if cutlass.const_expr(config.jobs > WARPS) else (own,)
    source, spot = source_of_b(warp, lane), spot_of_b(warp, lane, config)
    cursor = cursor_of(items, shares, config)
    size = config.block_n * CHUNK
    wait_for_previous()
    for i in cutlass.range(config.stages, unroll=1):
        copy_next(cursor, items, shares, ring.staged + i * size, config)
    each, count = items.chunks[1] - items.chunks[0], Int32(0)
    if own.active:
        count = cute.ceil_div(items.end - items.first, items.step)
    stage, buffer, phase = Int32(0), Int32(0), Int32(0)
    for ordinal in cutlass.range(count, unroll=1):
        for _ in cutlass.range(each, unroll=1):
            least = cute.make_rmem_tensor(1, Uint32)
            least.fill(0xFFFFFFFF)
            tile, parts = ring.staged + stage * size, ring.parts + buffer * (PARTS * size)
            wait_for_copies(config)
            cute.arch.mbarrier_wait(ring.empty + buffer, phase ^ 1)
            for i in cutlass.range_constexpr(len(shares)):
                elements = load_b(tile, source + i * FAR, config)
                split_b(least, elements, parts, spot + i * (FAR // 4), config)
            condemn_if_small(flags, least, ordinal, config)
            cute.arch.fence_view_async_shared()
            cute.arch.sync_warp()
            if lane == 0:
                cute.arch.mbarrier_arrive(ring.full + buffer)
            copy_next(cursor, items, shares, tile, config)
            stage, buffer = wrapped(stage + 1, config.stages), wrapped(buffer + 1, config.buffers)
            if buffer == 0:
                phase ^= 1
    cute.arch.cp_async_wait_group(0)
