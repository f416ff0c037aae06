"""Warp collectives: shfl, vote, match, redux, elect and activemask.

`active`: the lanes that execute the collective together. It includes all lanes of the membermask,
because a basic block that begins with a collective waits for them (warps.py). `members`: the
membermask of each lane as bits; it may differ between lanes, since tiles of a warp can execute
together. Registers have shape (blocks, warps, 32), see arithmetic/lanes.py.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Value, three_axes

ALL = 0xFFFFFFFF  # the membermask of the full warp
LANE = np.arange(WARP)
SHUFFLES = ("up", "down", "bfly", "idx")  # modes of shfl


def bits_of(lanes: np.ndarray) -> np.ndarray:
    """(…, 32) bool to (…, 1) uint32, lane 0 in bit 0."""
    packed = np.packbits(lanes, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4")


def source_lanes(mode: str, distance: Value, segment: Value) -> tuple[np.ndarray, np.ndarray]:
    """Each lane's source lane under `mode`, and whether it is inside the lane's segment (PTX ISA,
    shfl.sync)."""
    distance = three_axes(distance).astype(np.int64) & 31
    segment = three_axes(segment).astype(np.int64)
    fixed, clamp = segment >> 8 & 31, segment & 31
    low = LANE & fixed
    high = low | (clamp & ~fixed)
    source: np.ndarray = {
        "up": LANE - distance,
        "down": LANE + distance,
        "bfly": LANE ^ distance,
        "idx": low | (distance & ~fixed),
    }[mode]
    return source, source >= high if mode == "up" else source <= high


def shuffle(mode: str, value: Value, distance: Value, segment: Value) -> tuple[Value, Value]:
    """The value of each lane's source lane, or its own value if the source lane is outside its
    segment; and whether the source lane is inside."""
    source, inside = source_lanes(mode, distance, segment)
    value = three_axes(value)
    value = np.broadcast_to(value, (*np.broadcast_shapes(value.shape, inside.shape)[:2], WARP))
    source = np.broadcast_to(np.where(inside, source, LANE), value.shape)
    return np.take_along_axis(value, source, axis=2), inside


def lanes_of(bits: Value) -> np.ndarray:
    """The inverse of `bits_of`: (…, 1) uint32 to (…, 32) bool."""
    lanes: np.ndarray = (bits >> LANE.astype(np.uint32) & np.uint32(1)).astype(bool)
    return lanes


def among(bits: np.ndarray, members: Value) -> np.ndarray:
    """The lanes in `bits` that are members, as bits."""
    if np.ndim(members) == 0 and members == ALL:
        return bits
    some: np.ndarray = bits & three_axes(members)
    return some


def ballot(active: np.ndarray, members: Value, predicate: Value) -> np.ndarray:
    """The active members whose predicate is true, as bits."""
    return among(bits_of(active & three_axes(predicate)), members)


def vote(mode: str, active: np.ndarray, members: Value, predicate: Value) -> Value:
    yes = ballot(active, members, predicate)
    if mode == "any":
        return yes != 0
    everyone = yes == among(bits_of(active), members)
    return everyone if mode == "all" else everyone | (yes == 0)


def match_any(active: np.ndarray, members: Value, value: Value) -> np.ndarray:
    """The active members whose value equals this lane's, as bits."""
    value = np.broadcast_to(three_axes(value), active.shape)
    same = (value[..., :, None] == value[..., None, :]) & active[..., None, :]
    return among(bits_of(same)[..., 0], members)


def match_all(active: np.ndarray, members: Value, value: Value) -> tuple[np.ndarray, np.ndarray]:
    """All active members as bits if their values are equal, else 0; and whether they are equal."""
    everyone = among(bits_of(active), members)
    agree = match_any(active, members, value) == everyone
    return np.where(agree, everyone, np.uint32(0)), agree


REDUCTIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce(mode: str, active: np.ndarray, members: Value, value: Value) -> np.ndarray:
    """For each lane, the reduction over its active members."""
    value = np.broadcast_to(three_axes(value), active.shape)
    members = three_axes(members)
    if members.shape[2] == 1 or (members == members[..., :1]).all():  # one result per warp
        on = (active & lanes_of(members[..., :1]))[..., None, :]
    else:
        on = active[..., None, :] & lanes_of(members[..., None])
    if mode in ("min", "max", "and"):  # idempotent: any member's value is neutral
        first = np.take_along_axis(value[..., None, :], on.argmax(axis=3)[..., None], axis=3)
        value = np.where(on, value[..., None, :], first)
    else:
        value = np.where(on, value[..., None, :], value.dtype.type(0))
    result: np.ndarray = REDUCTIONS[mode].reduce(value, axis=3, dtype=value.dtype)
    return result


def elect(active: np.ndarray, members: Value) -> tuple[np.ndarray, np.ndarray]:
    """The lowest active member, and whether it is this lane."""
    on = among(bits_of(active), members)
    leader = np.bitwise_count((on & (~on + np.uint32(1))) - np.uint32(1)).astype(np.uint32)
    return leader, leader == LANE
