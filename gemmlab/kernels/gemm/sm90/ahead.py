"""While tensor cores compute a chunk, a warpgroup of `direct` prepares the next ones."""

import operator
from typing import Any, NamedTuple

import cutlass
from cutlass import Int32, Uint32, cute
from cutlass.cute.nvgpu import warpgroup

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK
from gemmlab.kernels.gemm.sm90.items import Cursor, Items, copy_next
from gemmlab.kernels.gemm.sm90.rescue import condemn_if_small
from gemmlab.kernels.gemm.sm90.splitting import PARTS, load_a, load_b, split_a, split_b


class Work(NamedTuple):
    """What a thread works with."""

    items: Items
    shares: tuple  # how it copies both operands
    spots: tuple  # where its elements of A begin in the staged tile
    source: Int32  # where its elements of B begin in the staged tile
    spot: Int32  # where its parts of B begin in a buffer
    parts: cute.Pointer  # (buffers × PARTS, block_n, CHUNK) of B
    staged: cute.Pointer  # per stage the tile of A, then of B
    flags: cute.Tensor  # (MOST_ITEMS + 1, warps): see `condemn`
    warp: Int32
    lane: Int32


@cute.jit
def wrapped(index: Int32, size: cutlass.Constexpr) -> Int32:
    """The index, below 2·size, wrapped around a ring."""
    if index >= size:
        index -= size
    return index


@cute.jit
def split_chunk_of_b(
    work: Work,
    least: cute.Tensor,
    elements: list | None,
    stage: Int32,
    buffer: Int32,
    config: cutlass.Constexpr,
) -> None:
    """Split this warp's share of a chunk of B. elements: the thread's, if `loads_early`."""
    if work.shares[1].active:
        loaded = elements
        if cutlass.const_expr(not config.loads_early):
            loaded = load_b(tile_of_b(work, stage, config), work.source, config)
        parts = work.parts + buffer * (PARTS * config.block_n * CHUNK)
        split_b(least, loaded, parts, work.spot, config)


def tile_of_b(work: Work, stage: Int32, config: Any) -> cute.Pointer:
    """The staged tile of B."""
    return work.staged + (stage * config.stage_words + config.block_m * CHUNK)


def load_early(work: Work, stage: Int32, config: Any) -> list | None:
    """The thread's elements of B two chunks after `stage`, if `loads_early`.

    wgmma take most of shared memory's bandwidth: loads that begin before them take less time.
    """
    if not config.loads_early:
        return None
    wait_for_copies(config)
    tile = tile_of_b(work, wrapped(stage + 2, config.stages), config)
    return load_b(tile, work.source, config)


def wait_for_copies(config: Any) -> None:
    """Wait until the warp's copies of all but the last `stages` - 2 chunks have arrived."""
    cute.arch.cp_async_wait_group(config.stages - 2)
    cute.arch.sync_warp()


@cute.jit
def prepare_next(
    sums: cute.Tensor,
    chains: list,
    fragments: list,
    work: Work,
    cursor: Cursor,
    elements: list | None,
    left: Int32,
    following: tuple,
    places: tuple,
    begins: cutlass.Constexpr,
    config: cutlass.Constexpr,
) -> None:
    """Prepare the next chunks while tensor cores compute one, and add up that one.

    elements: of B, two chunks ahead, if `loads_early`. left: the number of remaining chunks.
    following: the next one, as in `condemn_if_small`. places: stage and buffer of the chunk that is
    computed. begins: whether it is an item's first.
    """
    stage, buffer = places
    if cutlass.const_expr(not config.loads_early):
        wait_for_copies(config)
    least = cute.make_rmem_tensor(1, Uint32)
    least.fill(0xFFFFFFFF)
    if left > 1:
        ahead = wrapped(stage + 2, config.stages), wrapped(buffer + 2, config.buffers)
        split_chunk_of_b(work, least, elements, *ahead, config)
    tile = work.staged + wrapped(stage + 1, config.stages) * config.stage_words
    if cutlass.const_expr(config.loads_early):
        own = load_a(config.a_major, tile, work.spots)
    warpgroup.wait_group(0)
    added = simt.pairwise([chain.load() for chain in chains], operator.add)
    sums.store(added if begins else sums.load() + added)
    if left > 0:
        if cutlass.const_expr(config.loads_early):
            split_a(least, fragments, own)
        else:
            split_a(least, fragments, load_a(config.a_major, tile, work.spots))
        condemn_if_small(work.flags, least, following, config)
    cute.arch.fence_view_async_shared()
    cute.arch.sync_warp()
    copy_next(cursor, work.items, work.shares, tile, config)
