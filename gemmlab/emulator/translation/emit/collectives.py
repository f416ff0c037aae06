"""Python for instructions that exchange data between the lanes of a warp."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.translation import isa
from gemmlab.emulator.translation.emit.instructions import Emitters
from gemmlab.emulator.translation.translator import BOOL, U32, Translator
from gemmlab.ptx.ir import Imm, Instruction, Operand, Reg, Vector

# Position of the membermask among the operands of instructions that wait for its lanes.
MEMBERS = {"shfl": -1, "vote": -1, "match": -1, "redux": -1, "elect": -1, "bar.warp": 0}


def members_of(i: Instruction) -> Operand | None:
    """Return the membermask of an instruction that waits for lanes, or None."""
    return i.operands[MEMBERS[i.name]] if i.name in MEMBERS and i.operands else None


def _members(t: Translator, i: Instruction) -> str:
    """Return an expression for the membermask, 32 bits."""
    members = members_of(i)
    is_number = isinstance(members, Imm) and members.width == 0
    if not is_number and not isinstance(members, Reg):
        t.unsupported("a membermask must be a register or an integer")
    assert members is not None
    return t.value(members, U32)


def _two(t: Translator, i: Instruction, first: np.dtype) -> None:
    """Assign the pair `c` to `d` or `d|p`."""
    target = i.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    for k, (item, dtype) in enumerate(zip(items, (first, BOOL), strict=False)):
        t.assign(i, item, f"c[{k}]", dtype)


def shuffle(t: Translator, i: Instruction) -> None:
    """shfl.sync.mode.b32 d[|p], a, b, c, membermask"""
    _members(t, i)
    match i.modifiers:
        case "sync", ("up" | "down" | "bfly" | "idx") as mode, "b32":
            value, distance, segment = (t.value(o, U32) for o in i.operands[1:4])
            t.line(f"c = collectives.shuffle({mode!r}, m.given({value}), {distance}, {segment})")
            _two(t, i, U32)
        case _:
            t.unsupported()


def vote(t: Translator, i: Instruction) -> None:
    """vote.sync.mode.pred p, [!]a, membermask; vote.sync.ballot.b32 d, [!]a, membermask"""
    votes = f"m.together(mask), {_members(t, i)}, m.given({t.value(i.operands[1], BOOL)})"
    match i.modifiers:
        case "sync", "ballot", "b32":
            t.assign(i, i.operands[0], f"collectives.ballot({votes})", U32)
        case "sync", ("all" | "any" | "uni") as mode, "pred":
            t.assign(i, i.operands[0], f"collectives.vote({mode!r}, {votes})", BOOL)
        case _:
            t.unsupported()


def match(t: Translator, i: Instruction) -> None:
    """match.any.sync.type d, a, membermask; match.all.sync.type d[|p], a, membermask"""
    members = _members(t, i)
    match i.modifiers:
        case "any", "sync", ("b32" | "b64") as type_:
            value = f"m.given({t.value(i.operands[1], isa.DTYPES[type_])})"
            result = f"collectives.match_any(m.together(mask), {members}, {value})"
            t.assign(i, i.operands[0], result, U32)
        case "all", "sync", ("b32" | "b64") as type_:
            value = f"m.given({t.value(i.operands[1], isa.DTYPES[type_])})"
            t.line(f"c = collectives.match_all(m.together(mask), {members}, {value})")
            _two(t, i, U32)
        case _:
            t.unsupported()


def reduce(t: Translator, i: Instruction) -> None:
    """redux.sync.op.type d, a, membermask"""
    match i.modifiers:
        case "sync", ("add" | "min" | "max") as mode, ("u32" | "s32") as type_:
            pass
        case "sync", ("and" | "or" | "xor") as mode, "b32" as type_:
            pass
        case _:
            t.unsupported()
    dtype = isa.DTYPES[type_]
    value = f"m.given({t.value(i.operands[1], dtype)})"
    result = f"collectives.reduce({mode!r}, m.together(mask), {_members(t, i)}, {value})"
    t.assign(i, i.operands[0], result, dtype)


def elect(t: Translator, i: Instruction) -> None:
    """elect.sync d|p, membermask"""
    if i.modifiers != ("sync",):
        t.unsupported()
    t.line(f"c = collectives.elect(m.together(mask), {_members(t, i)})")
    _two(t, i, U32)


def warp_barrier(t: Translator, i: Instruction) -> None:
    """bar.warp.sync membermask. Starting the block already waits for the lanes."""
    _members(t, i)
    if i.modifiers != ("warp", "sync"):
        t.unsupported()


def active_mask(t: Translator, i: Instruction) -> None:
    """activemask.b32 d"""
    if i.modifiers != ("b32",):
        t.unsupported()
    t.assign(i, i.operands[0], "collectives.bits_of(m.active(mask))", U32)


EMITTERS: Emitters = {
    "shfl": (shuffle, {5}),
    "vote": (vote, {3}),
    "match": (match, {3}),
    "redux": (reduce, {3}),
    "elect": (elect, {2}),
    "bar.warp": (warp_barrier, {1}),
    "activemask": (active_mask, {1}),
}
