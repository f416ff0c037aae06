"""Indices of threads, blocks and clusters in a grid, and the special registers that hold them.

A cluster is a box of neighbouring blocks that run concurrently and can access each other's shared
memory (PTX ISA, "Thread Hierarchy"). Without clusters, each block forms a cluster by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Extent, Value, collapse
from gemmlab.emulator.launch.launch import Dim3, Launch
from gemmlab.ptx import layout


def blocks_of_clusters(grid: Dim3, cluster: Dim3, numbers: Sequence[int]) -> np.ndarray:
    """Linear indices of the blocks of the given clusters, ordered by cluster, then by rank."""
    number = np.array(numbers)[:, None]
    rank = np.arange(math.prod(cluster))[None, :]
    linear, step = np.zeros(np.broadcast_shapes(number.shape, rank.shape), np.int64), 1
    for size, part in zip(grid, cluster, strict=True):
        num_parts = size // part
        linear += step * (number % num_parts * part + rank % part)
        number, rank, step = number // num_parts, rank // part, step * size
    return linear.reshape(-1)


def block_index(grid: Dim3, linear: int) -> Dim3:
    x, y, _ = grid
    return linear % x, linear // x % y, linear // (x * y)


# In a cooperative launch, the driver stores the address of the grid barrier's workspace in these
# registers. The workspace is zero-initialized; cooperative_groups::this_grid().sync() counts
# arrivals in it.
GRID_WORKSPACE = "grid_workspace"
GRID_WORKSPACE_BITS = {"%envreg1": 32, "%envreg2": 0}  # register -> its lowest bit in the address


# Special registers that are the same in all launches: one multiprocessor runs one grid.
CONSTANTS = {"%smid": 0, "%nsmid": 1, "%gridid": 0, "WARP_SZ": WARP}
CONSTANTS |= {f"{layout.RESERVED}{name}": at for name, at in layout.RESERVED_OFFSETS.items()}
_LANE = np.arange(WARP, dtype=np.uint32)
_BIT = np.uint32(1) << _LANE
# Register -> the lanes in its mask, as bits, for each lane.
LANE_MASKS = {
    "%lanemask_eq": _BIT,
    "%lanemask_lt": _BIT - np.uint32(1),
    "%lanemask_le": _BIT - np.uint32(1) | _BIT,
    "%lanemask_ge": ~(_BIT - np.uint32(1)),
    "%lanemask_gt": ~(_BIT - np.uint32(1) | _BIT),
}


def special_registers(
    launch: Launch, blocks: np.ndarray, extent: Extent
) -> Iterator[tuple[str, Value]]:
    """Names and values of the special registers that are constant during a launch.

    blocks: linear indices of the chunk's blocks.
    """
    u32 = np.uint32
    thread = np.arange(extent.warps * WARP).reshape(1, extent.warps, WARP)
    linear = blocks.reshape(-1, 1, 1)
    cluster_size = math.prod(launch.cluster)
    yield (
        "%cluster_ctarank",
        collapse((np.arange(len(blocks)) % cluster_size).astype(u32)[:, None, None]),
    )
    yield "%cluster_nctarank", u32(cluster_size)
    yield "%is_explicit_cluster", np.bool_(cluster_size > 1)
    step_t = step_b = 1
    for axis, name in enumerate("xyz"):
        grid, block, cluster = (d[axis] for d in (launch.grid, launch.block, launch.cluster))
        place = linear // step_b % grid
        yield f"%tid.{name}", collapse((thread // step_t % block).astype(u32))
        yield f"%ctaid.{name}", collapse(place.astype(u32))
        yield f"%clusterid.{name}", collapse((place // cluster).astype(u32))
        yield f"%cluster_ctaid.{name}", collapse((place % cluster).astype(u32))
        yield f"%ntid.{name}", u32(block)
        yield f"%nctaid.{name}", u32(grid)
        yield f"%nclusterid.{name}", u32(grid // cluster)
        yield f"%cluster_nctaid.{name}", u32(cluster)
        step_t, step_b = step_t * block, step_b * grid
    yield "%laneid", _LANE.reshape(1, 1, WARP)
    yield "%warpid", collapse((thread // WARP).astype(u32))
    for name, masks in LANE_MASKS.items():
        yield name, masks.reshape(1, 1, WARP)
    yield "%nwarpid", u32(extent.warps)
    for name, value in CONSTANTS.items():
        yield name, u32(value)
    for name, shift in GRID_WORKSPACE_BITS.items():
        yield name, u32(launch.variables.get(GRID_WORKSPACE, 0) >> shift & 0xFFFFFFFF)
    yield "%dynamic_smem_size", u32(launch.dynamic_bytes)
    reserved = layout.reserved_shared_bytes(launch.program.function)
    yield "%total_smem_size", u32(launch.shared_bytes - reserved)
    yield "%aggr_smem_size", u32(launch.shared_bytes)
