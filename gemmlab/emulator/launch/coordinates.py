"""Indices of threads, blocks and clusters in a grid, and the special registers that hold them.

A cluster is a box of neighbouring blocks that run concurrently and can access each other's shared
memory (PTX ISA, "Thread Hierarchy"). Without clusters, each block forms a cluster by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Extent, Value, collapse
from gemmlab.emulator.launch.launch import Dim3, Launch
from gemmlab.ptx import layout


def blocks_of_clusters(grid: Dim3, cluster: Dim3, numbers: Sequence[int]) -> np.ndarray:
    """Linear indices of the blocks of the given clusters, ordered by cluster, then by rank."""
    if cluster == (1, 1, 1):
        return np.array(numbers)
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


class SpecialRegisters(dict[str, Value]):
    """The special registers that are constant during a launch, by name; computed when first read.

    blocks: linear indices of the chunk's blocks.
    """

    def __init__(self, launch: Launch, blocks: np.ndarray, extent: Extent) -> None:
        self._launch, self._extent, self._blocks = launch, extent, blocks.reshape(-1, 1, 1)
        self._cluster_size = math.prod(launch.cluster)

    def __missing__(self, name: str) -> Value:
        register, _, axis = name.partition(".")
        value = self._along(register, "xyz".index(axis)) if axis else self._value(name)
        found: Value = np.uint32(value) if isinstance(value, int) else value
        self[name] = found
        return found

    def _along(self, register: str, axis: int) -> Value | int:
        """A register that has a value for each axis."""
        launch = self._launch
        grid, block, cluster = (d[axis] for d in (launch.grid, launch.block, launch.cluster))
        place = self._blocks // math.prod(launch.grid[:axis]) % grid
        match register:
            case "%tid":
                return _collapsed(self._threads // math.prod(launch.block[:axis]) % block)
            case "%ctaid":
                return _collapsed(place)
            case "%clusterid":
                return _collapsed(place // cluster)
            case "%cluster_ctaid":
                return _collapsed(place % cluster)
        return {
            "%ntid": block,
            "%nctaid": grid,
            "%nclusterid": grid // cluster,
            "%cluster_nctaid": cluster,
        }[register]

    def _value(self, name: str) -> Value | int:
        launch, cluster_size = self._launch, self._cluster_size
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in LANE_MASKS:
            return LANE_MASKS[name].reshape(1, 1, WARP)
        if name in GRID_WORKSPACE_BITS:
            workspace = launch.variables.get(GRID_WORKSPACE, 0)
            return workspace >> GRID_WORKSPACE_BITS[name] & 0xFFFFFFFF
        match name:
            case "%laneid":
                return _LANE.reshape(1, 1, WARP)
            case "%warpid":
                return _collapsed(self._threads // WARP)
            case "%cluster_ctarank":
                ranks = np.arange(self._blocks.size) % cluster_size
                return _collapsed(ranks[:, None, None])
            case "%is_explicit_cluster":
                return np.bool_(cluster_size > 1)
            case "%total_smem_size":
                return launch.shared_bytes - layout.reserved_shared_bytes(launch.program.function)
        return {
            "%cluster_nctarank": cluster_size,
            "%nwarpid": self._extent.warps,
            "%dynamic_smem_size": launch.dynamic_bytes,
            "%aggr_smem_size": launch.shared_bytes,
        }[name]

    @property
    def _threads(self) -> np.ndarray:
        return np.arange(self._extent.warps * WARP).reshape(1, self._extent.warps, WARP)


def _collapsed(array: np.ndarray) -> Value:
    return collapse(array.astype(np.uint32))
