"""Registers as NumPy arrays: a register of a chunk of blocks has shape (blocks, warps, 32).

An axis along which all values are equal may have length 1, and a value that is the same for all
lanes may be a NumPy scalar; operations broadcast. A block index thus has shape (blocks, 1, 1) and a
lane index (1, 1, 32), and values computed from them stay small.
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
    """The number of blocks and warps of a chunk."""

    blocks: int
    warps: int  # per block

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.blocks, self.warps, WARP


def spread(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Broadcast an array. Most have the shape already, and NumPy would take microseconds."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


class Mask:
    """A set of lanes that execute together; never empty. None represents all lanes of a chunk.

    `array` is (blocks, warps, 32) bool. `lanes` and `warps` are the numbers of active lanes and of
    warps with an active lane.
    """

    __slots__ = ("array", "lanes", "warps")

    def __init__(self, array: np.ndarray, extent: Extent, lanes: int | None = None) -> None:
        self.array = spread(array, extent.shape)
        self.lanes = int(np.count_nonzero(self.array)) if lanes is None else lanes
        self.warps = int(np.count_nonzero(self.array.any(axis=2)))

    def shared_warps(self, other: Mask) -> int:
        """Number of warps with lanes in both masks."""
        return int(np.count_nonzero(self.array.any(axis=2) & other.array.any(axis=2)))


def collapse(array: np.ndarray) -> Value:
    """Reduce every constant axis to length 1. Returns a scalar if all values are equal."""
    for axis in range(array.ndim):
        first = array.take([0], axis)
        if array.shape[axis] > 1 and (array == first).all():
            array = first
    return array[(0,) * array.ndim] if array.size == 1 else array


def select(condition: Value, yes: Value, no: Value) -> Value:
    """`condition ? yes : no` for each lane."""
    if np.size(condition) == 1:
        return yes if condition.any() else no
    return np.where(condition, yes, no)


def three_axes(value: Value) -> np.ndarray:
    """The value as an array with three axes."""
    array = np.asarray(value)
    return array if array.ndim == 3 else array.reshape((1,) * (3 - array.ndim) + array.shape)


def expand(active: np.ndarray, mask: Mask) -> np.ndarray:
    """Scatter the values of the active lanes to (blocks, warps, 32); inactive lanes get 0."""
    full = np.zeros(mask.array.shape, active.dtype)
    full[mask.array] = active
    return full


def repeats(array: np.ndarray, extent: Extent) -> int:
    """Number of warps of the chunk that share one row (the last axis) of `array`."""
    return math.prod(extent.shape[:2]) // math.prod(array.shape[:2])
