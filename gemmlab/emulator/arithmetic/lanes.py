"""Lanes in NumPy: a register of a chunk of blocks is one array of shape (blocks, warps, 32).

An axis along which all values agree may have length 1, and a value that all lanes share may be a
NumPy scalar: broadcasting does the rest. A thread block's index costs (blocks, 1, 1), a lane id
(1, 1, 32), and what is computed from them stays as small as it can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

WARP = 32
Value = Any  # an array of up to three axes, or a NumPy scalar


@dataclass(frozen=True)
class Extent:
    """The chunk's shape."""

    blocks: int
    warps: int  # per block

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.blocks, self.warps, WARP


class Mask:
    """Lanes that execute together: at least one, and not all of the chunk (that is None).

    `array` is a bool array of the chunk's shape; `lanes` and `warps` count what is on.
    """

    __slots__ = ("array", "lanes", "warps")

    def __init__(self, array: np.ndarray, extent: Extent, lanes: int | None = None) -> None:
        self.array = np.broadcast_to(array, extent.shape)
        self.lanes = int(np.count_nonzero(self.array)) if lanes is None else lanes
        self.warps = int(np.count_nonzero(self.array.any(axis=2)))

    def shared_warps(self, other: Mask) -> int:
        """Warps that have lanes in both masks."""
        return int(np.count_nonzero(self.array.any(axis=2) & other.array.any(axis=2)))


def collapse(array: np.ndarray) -> Value:
    """The same values with every constant axis cut to length 1; a scalar when all of them are."""
    for axis in range(array.ndim):
        first = array.take([0], axis)
        if array.shape[axis] > 1 and (array == first).all():
            array = first
    return array[(0,) * array.ndim] if array.size == 1 else array


def select(condition: Value, yes: Value, no: Value) -> Value:
    """`condition ? yes : no`, lane by lane."""
    if np.size(condition) == 1:
        return yes if condition.any() else no
    return np.where(condition, yes, no)


def three_axes(value: Value) -> np.ndarray:
    """The value as an array of three axes."""
    array = np.asarray(value)
    return array if array.ndim == 3 else array.reshape((1,) * (3 - array.ndim) + array.shape)


def expand(active: np.ndarray, mask: Mask) -> np.ndarray:
    """Values of the active lanes, at their places among zeros."""
    full = np.zeros(mask.array.shape, active.dtype)
    full[mask.array] = active
    return full


def repeats(array: np.ndarray, extent: Extent) -> int:
    """How many warps of the chunk one (32- or 1-lane) row of `array` stands for."""
    return math.prod(extent.shape[:2]) // math.prod(array.shape[:2])
