"""Instructions in which the lanes of a warp see each other: shfl, vote, match, redux, activemask.

All lanes of the membermask are here when one runs: the machine lets a block that begins with a
collective wait for them. Registers have the shape (blocks, warps, 32), as in arithmetic/lanes.py.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Value, three_axes

LANE = np.arange(WARP)


def bits_of(lanes: np.ndarray) -> np.ndarray:
    """(…, 32) bool to (…, 1) uint32, lane 0 in bit 0."""
    packed = np.packbits(lanes, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4")


def shuffle(mode: str, value: Value, distance: Value, segment: Value) -> tuple[Value, Value]:
    """Each lane's value from the lane that `mode` points to, and whether that lies in the segment
    (PTX ISA, shfl.sync)."""
    distance = three_axes(distance).astype(np.int64) & 31
    segment = three_axes(segment).astype(np.int64)
    fixed, clamp = segment >> 8 & 31, segment & 31
    low = LANE & fixed
    high = low | (clamp & ~fixed)
    source = {
        "up": LANE - distance,
        "down": LANE + distance,
        "bfly": LANE ^ distance,
        "idx": low | (distance & ~fixed),
    }[mode]
    inside = source >= high if mode == "up" else source <= high
    value = three_axes(value)
    value = np.broadcast_to(value, (*np.broadcast_shapes(value.shape, inside.shape)[:2], WARP))
    source = np.broadcast_to(np.where(inside, source, LANE), value.shape)
    return np.take_along_axis(value, source, axis=2), inside


def ballot(active: np.ndarray, predicate: Value) -> np.ndarray:
    """The active lanes of each warp whose predicate holds, as bits."""
    return bits_of(active & three_axes(predicate))


def vote(mode: str, active: np.ndarray, predicate: Value) -> Value:
    yes = ballot(active, predicate)
    if mode == "any":
        return yes != 0
    everyone = yes == bits_of(active)
    return everyone if mode == "all" else everyone | (yes == 0)


def match_any(active: np.ndarray, value: Value) -> np.ndarray:
    """The active lanes that hold what this lane holds, as bits."""
    value = np.broadcast_to(three_axes(value), active.shape)
    same = (value[..., :, None] == value[..., None, :]) & active[..., None, :]
    return bits_of(same)[..., 0]


def match_all(active: np.ndarray, value: Value) -> tuple[np.ndarray, np.ndarray]:
    """All active lanes where they hold the same value, else no lane; and whether they do."""
    everyone = bits_of(active)
    same = match_any(active, value) == everyone
    agree = (same | ~active).all(axis=2, keepdims=True)
    return np.where(agree, everyone, np.uint32(0)), agree


REDUCTIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce(mode: str, active: np.ndarray, value: Value) -> np.ndarray:
    """One result per warp over its active lanes."""
    value = np.broadcast_to(three_axes(value), active.shape)
    if mode in ("min", "max", "and"):  # their neutral elements: any active lane's own value
        first = np.take_along_axis(value, active.argmax(axis=2, keepdims=True), axis=2)
        value = np.where(active, value, first)
    else:
        value = np.where(active, value, value.dtype.type(0))
    result: np.ndarray = REDUCTIONS[mode].reduce(value, axis=2, keepdims=True, dtype=value.dtype)
    return result


def elect(active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest active lane of each warp, and whether that is this lane."""
    leader = active.argmax(axis=2, keepdims=True)
    return leader.astype(np.uint32), leader == LANE
