"""Distributed shared memory (PTX ISA, "Cluster of Cooperative Thread Arrays").

A .shared::cluster address holds the offset in the block's shared memory, and in bits 24 and up the
rank of the block plus 1. A zero there means the executing block, so every .shared::cta address is
also a valid .shared::cluster address.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.memory.addresses import RANK_SHIFT
from gemmlab.emulator.memory.spaces import SharedSpace
from gemmlab.emulator.program import Access
from gemmlab.errors import OutOfBoundsError


def map_address(address: Value, rank: Value) -> Value:
    """mapa: the same offset in the shared memory of the block with the given rank."""
    kind = address.dtype.type
    own = address & ~kind((0xFF << RANK_SHIFT) % (1 << 8 * address.dtype.itemsize))
    return own | (rank.astype(address.dtype) + kind(1)) << kind(RANK_SHIFT)


def rank_of(address: Value, own: Value) -> Value:
    """getctarank: the rank of the block that owns an address. own: the executing block's rank."""
    bits = three_axes(address) >> address.dtype.type(RANK_SHIFT)
    rank = bits.astype(np.uint32) & np.uint32(0xFF)
    return np.where(rank > 0, rank - np.uint32(1), own)


class ClusterSpace(SharedSpace):
    """The shared memory of all blocks of a cluster (.shared::cluster)."""

    cluster_size: int = 1

    def has_one_pattern(self, offsets: np.ndarray, mask: Mask | None) -> bool:
        return super().has_one_pattern(offsets, mask) and not (offsets >> RANK_SHIFT).any()

    def _locate(
        self, access: Access, offsets: np.ndarray, mask: Mask | None
    ) -> tuple[np.ndarray, np.ndarray]:
        block, index = super()._locate(access, offsets & ~(0xFF << RANK_SHIFT), mask)
        rank = self.chunk.spread(offsets >> RANK_SHIFT & 0xFF)
        bad = rank > self.cluster_size
        if (bad if mask is None else bad & mask.array).any():
            message = f"block rank past the end of a cluster of {self.cluster_size}"
            self.chunk.report(OutOfBoundsError, message, access, bad, offsets, mask)
        rank = rank if mask is None else rank[mask.array]
        first = block // self.cluster_size * self.cluster_size
        return np.where(rank > 0, first + rank - 1, block), index
