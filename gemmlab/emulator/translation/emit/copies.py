"""Python for cp.async and its waits."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.translation.emit.instructions import (
    Emitters,
    enabled,
    group_count,
    memory_operand,
)
from gemmlab.emulator.translation.translator import BOOL, U32, Translator
from gemmlab.ptx.ir import Imm, Instruction, Reg

ELEMENTS = {4: ["b32"], 8: ["b64"], 16: ["v2", "b64"]}  # by bytes per thread


def emit_copy(t: Translator, i: Instruction) -> None:
    """cp.async and its groups."""
    match i.modifiers:
        case ("async", "ca" | "cg", "shared" | "shared::cta", "global", *_):
            call = _issue(t, i)
        case ("async", "commit_group"):
            call = "commit("
        case ("async", "wait_all"):
            call = "wait_all("
        case ("async", "wait_group"):
            call = f"wait({group_count(t, i.operands[0])}, "
        case _:
            t.unsupported()
    mask, indent = enabled(t, i)
    t.line(f"{indent}m.copies.{call}{mask})")


def _issue(t: Translator, i: Instruction) -> str:
    """cp.async.{ca,cg}.shared.global [dst], [src], size{, src-size | ignore-src}{, policy}"""
    _, level, target, _, *hints = i.modifiers
    operands = list(i.operands)
    if "L2::cache_hint" in hints and len(operands) > 3:
        operands.pop()
    size = operands[2].value if len(operands) > 2 and isinstance(operands[2], Imm) else 0
    sizes = (4, 8, 16) if level == "ca" else (16,)
    if len(operands) not in (3, 4) or size not in sizes:
        t.unsupported()
    read = t.constant(np.uint32(size))
    if len(operands) == 4:
        last = operands[3]
        if isinstance(last, Reg) and last.type == "pred":
            read = f"select({t.value(last, BOOL)}, {t.constant(np.uint32(0))}, {read})"
        else:
            read = t.value(last, U32)
    ends = []
    for operand, space, role in ((operands[0], target, "a"), (operands[1], "global", "b")):
        words = [space, *ELEMENTS[size]]
        _, where, dtype, count, offset = memory_operand(t, operand, words)
        ends.append(f"{t.access(dtype, count, offset, role)}, {where}")
    return f"issue({', '.join(ends)}, {read}, {level == 'cg'}, "


EMITTERS: Emitters = {
    "cp.async": (emit_copy, {3, 4, 5}),
    "cp.async.commit_group": (emit_copy, {0}),
    "cp.async.wait_group": (emit_copy, {1}),
    "cp.async.wait_all": (emit_copy, {0}),
}
