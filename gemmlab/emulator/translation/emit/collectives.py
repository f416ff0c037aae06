"""Python for instructions in which the lanes of a warp see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gemmlab.emulator.ptx.ir import Instruction, Operand, Vector
from gemmlab.emulator.synchronization.collectives import REDUCTIONS
from gemmlab.emulator.translation import isa
from gemmlab.emulator.translation.emit.instructions import BOOL, U32, Emitters

if TYPE_CHECKING:
    from gemmlab.emulator.translation.translate import Translator

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


def _two(t: Translator, i: Instruction, first: np.dtype) -> None:
    """Assign the pair `c` to `d` or `d|p`."""
    target = i.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    for k, (item, dtype) in enumerate(zip(items, (first, BOOL), strict=False)):
        t.assign(i, item, f"c[{k}]", dtype)


def shuffle(t: Translator, i: Instruction) -> None:
    """shfl.sync.mode.b32 d[|p], a, b, c, membermask"""
    if len(i.opcode) != 4 or i.opcode[2] not in ("up", "down", "bfly", "idx"):
        t.unsupported("no such shuffle")
    value, distance, segment = (t.value(o, U32) for o in i.operands[1:4])
    t.line(f"c = collectives.shuffle({i.opcode[2]!r}, {value}, {distance}, {segment})")
    _two(t, i, U32)


def vote(t: Translator, i: Instruction) -> None:
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


def match(t: Translator, i: Instruction) -> None:
    """match.any.sync.type d, a, membermask; match.all.sync.type d[|p], a, membermask"""
    value = t.value(i.operands[1], isa.DTYPES["b64" if i.opcode[-1] == "b64" else "b32"])
    if i.opcode[1] == "any":
        t.assign(i, i.operands[0], f"collectives.match_any(m.active(mask), {value})", U32)
    else:
        t.line(f"c = collectives.match_all(m.active(mask), {value})")
        _two(t, i, U32)


def reduce(t: Translator, i: Instruction) -> None:
    """redux.sync.op.type d, a, membermask"""
    mode, type_ = i.opcode[-2], i.opcode[-1]
    if mode not in REDUCTIONS or type_ not in ("u32", "s32", "b32"):
        t.unsupported("no such reduction")
    dtype = isa.DTYPES[type_]
    value = t.value(i.operands[1], dtype)
    t.assign(i, i.operands[0], f"collectives.reduce({mode!r}, m.active(mask), {value})", dtype)


def elect(t: Translator, i: Instruction) -> None:
    """elect.sync d|p, membermask"""
    t.line("c = collectives.elect(m.active(mask))")
    _two(t, i, U32)


def active_mask(t: Translator, i: Instruction) -> None:
    """activemask.b32 d"""
    t.assign(i, i.operands[0], "collectives.bits_of(m.active(mask))", U32)


EMITTERS: Emitters = {
    "shfl": (shuffle, {5}),
    "vote": (vote, {3}),
    "match": (match, {3}),
    "redux": (reduce, {3}),
    "elect": (elect, {2}),
    "activemask": (active_mask, {1}),
}
