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


# Rules of both tiers. The native tier calls them with values of its IR.


def source_lanes(mode: str, lane: Value, distance: Value, segment: Value) -> tuple[Value, Value]:
    """Each lane's source lane under `mode`, and whether it is inside the lane's segment (PTX ISA,
    shfl.sync). lane, distance, segment: signed integers."""
    distance = distance & 31
    fixed, clamp = segment >> 8 & 31, segment & 31
    low = fixed & lane
    high = low | (clamp & ~fixed)
    source = {
        "up": lane - distance,
        "down": lane + distance,
        "bfly": lane ^ distance,
        "idx": low | (distance & ~fixed),
    }[mode]
    return source, source >= high if mode == "up" else source <= high


def verdict(mode: str, yes: Value, everyone: Value) -> Value:
    """The result of a vote. yes: the members whose predicate is true. everyone: all members."""
    if mode == "any":
        return yes != 0
    agree = yes == everyone
    return agree if mode == "all" else agree | (yes == 0)


def agreement(same: Value, everyone: Value) -> tuple[Value, Value]:
    """The results of match.all. same: the members with this lane's value. everyone: all members."""
    agree = same == everyone
    return np.where(agree, everyone, np.uint32(0)), agree


def lowest(bits: Value) -> Value:
    """The number of the lowest lane in `bits`."""
    below = (bits & (~bits + np.uint32(1))) - np.uint32(1)
    return np.bitwise_count(below).astype(np.uint32)


def neutral(mode: str, dtype: np.dtype) -> np.generic:
    """The value that does not change a reduction."""
    info = np.iinfo(dtype)
    all_ones = -1 if dtype.kind == "i" else info.max
    extremes = {"min": info.max, "max": info.min, "and": all_ones}
    number: np.generic = dtype.type(extremes.get(mode, 0))
    return number


# The NumPy tier


def shuffle(mode: str, value: Value, distance: Value, segment: Value) -> tuple[Value, Value]:
    """The value of each lane's source lane, or its own value if the source lane is outside its
    segment; and whether the source lane is inside."""
    lanes = (three_axes(x).astype(np.int64) for x in (distance, segment))
    source, inside = source_lanes(mode, LANE, *lanes)
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
    return verdict(mode, yes, among(bits_of(active), members))


def match_any(active: np.ndarray, members: Value, value: Value) -> np.ndarray:
    """The active members whose value equals this lane's, as bits."""
    value = np.broadcast_to(three_axes(value), active.shape)
    same = (value[..., :, None] == value[..., None, :]) & active[..., None, :]
    return among(bits_of(same)[..., 0], members)


def match_all(active: np.ndarray, members: Value, value: Value) -> tuple[Value, Value]:
    """All active members as bits if their values are equal, else 0; and whether they are equal."""
    return agreement(match_any(active, members, value), among(bits_of(active), members))


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
    value = np.where(on, value[..., None, :], neutral(mode, value.dtype))
    result: np.ndarray = REDUCTIONS[mode].reduce(value, axis=3, dtype=value.dtype)
    return result


def elect(active: np.ndarray, members: Value) -> tuple[np.ndarray, np.ndarray]:
    """The lowest active member, and whether it is this lane."""
    leader = lowest(among(bits_of(active), members))
    return leader, leader == LANE
