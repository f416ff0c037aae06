"""Instructions in which the lanes of a warp see each other: shfl, vote, match, redux, activemask.

All lanes of the membermask are here when one runs: the machine lets a block that begins with a
collective wait for them. Registers have the shape (blocks, warps, 32), as in lanes.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gemmlab.emulator import isa
from gemmlab.emulator.ir import Instruction, Operand, Vector
from gemmlab.emulator.lanes import WARP, Value, three_axes

if TYPE_CHECKING:
    from gemmlab.emulator.translate import Translator

BOOL, U32 = np.dtype(bool), np.dtype("u4")
LANE = np.arange(WARP)
# The membermask's place among the operands of what waits for the lanes it names.
MEMBERS = {"shfl": -1, "vote": -1, "match": -1, "redux": -1, "elect": -1, "bar": 0, "barrier": 0}


def members_of(i: Instruction) -> Operand | None:
    """The operand that names the lanes an instruction waits for, if it waits."""
    if (
        i.root not in MEMBERS
        or not i.operands
        or i.root in ("bar", "barrier")
        and "warp" not in i.opcode
    ):
        return None
    return i.operands[MEMBERS[i.root]]


def bits_of(lanes: np.ndarray) -> np.ndarray:
    """(…, 32) bool to (…, 1) uint32, lane 0 in bit 0."""
    packed = np.packbits(lanes, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4")


# At run time


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


# Emitters


def _two(t: Translator, i: Instruction, first: np.dtype) -> None:
    """Assign the pair `c` to `d` or `d|p`."""
    target = i.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    for k, (item, dtype) in enumerate(zip(items, (first, BOOL), strict=False)):
        t.assign(i, item, f"c[{k}]", dtype)


def emit_shuffle(t: Translator, i: Instruction) -> None:
    """shfl.sync.mode.b32 d[|p], a, b, c, membermask"""
    if len(i.opcode) != 4 or i.opcode[2] not in ("up", "down", "bfly", "idx"):
        t.unsupported("no such shuffle")
    value, distance, segment = (t.value(o, U32) for o in i.operands[1:4])
    t.line(f"c = collectives.shuffle({i.opcode[2]!r}, {value}, {distance}, {segment})")
    _two(t, i, U32)


def emit_vote(t: Translator, i: Instruction) -> None:
    """vote.sync.mode.pred p, [!]a, membermask; vote.sync.ballot.b32 d, [!]a, membermask"""
    mode = i.opcode[2] if len(i.opcode) == 4 else ""
    predicate = t.value(i.operands[1], BOOL)
    if mode == "ballot":
        t.assign(i, i.operands[0], f"collectives.ballot(m.active(mask), {predicate})", U32)
    elif mode in ("all", "any", "uni"):
        result = f"collectives.vote({mode!r}, m.active(mask), {predicate})"
        t.assign(i, i.operands[0], result, BOOL)
    else:
        t.unsupported("no such vote")


def emit_match(t: Translator, i: Instruction) -> None:
    """match.any.sync.type d, a, membermask; match.all.sync.type d[|p], a, membermask"""
    value = t.value(i.operands[1], isa.DTYPES["b64" if i.opcode[-1] == "b64" else "b32"])
    if i.opcode[1] == "any":
        t.assign(i, i.operands[0], f"collectives.match_any(m.active(mask), {value})", U32)
    else:
        t.line(f"c = collectives.match_all(m.active(mask), {value})")
        _two(t, i, U32)


def emit_reduce(t: Translator, i: Instruction) -> None:
    """redux.sync.op.type d, a, membermask"""
    mode, type_ = i.opcode[-2], i.opcode[-1]
    if mode not in REDUCTIONS or type_ not in ("u32", "s32", "b32"):
        t.unsupported("no such reduction")
    dtype = isa.DTYPES[type_]
    value = t.value(i.operands[1], dtype)
    t.assign(i, i.operands[0], f"collectives.reduce({mode!r}, m.active(mask), {value})", dtype)


def emit_elect(t: Translator, i: Instruction) -> None:
    """elect.sync d|p, membermask"""
    t.line("c = collectives.elect(m.active(mask))")
    _two(t, i, U32)


def emit_active_mask(t: Translator, i: Instruction) -> None:
    """activemask.b32 d"""
    t.assign(i, i.operands[0], "collectives.bits_of(m.active(mask))", U32)
