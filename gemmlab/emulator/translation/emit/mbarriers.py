"""Python for mbarrier instructions."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.memory.addresses import WINDOW_STARTS
from gemmlab.emulator.translation.emit.instructions import Emitters, enabled, memory_operand
from gemmlab.emulator.translation.translator import U32, U64, Translator
from gemmlab.ptx.ir import Instruction, Operand, Reg

# Memory orders and scopes. Here all threads observe every access at once.
ORDERING = {"relaxed", "acquire", "release", "cta", "cluster"}
SHARED = {"shared", "shared::cta", "shared::cluster"}
ONE, ZERO = np.uint32(1), np.uint32(0)


def is_wait(i: Instruction) -> bool:
    return i.root == "mbarrier" and bool({"test_wait", "try_wait"} & {*i.modifiers})


def shared_address(t: Translator, i: Instruction, operand: Operand, space: str = "") -> str:
    """Return the constant part of an access to an mbarrier, and the mbarrier's shared address."""
    space = space or next((w for w in i.modifiers if w in SHARED), "generic")
    words = ["b64"] if space == "generic" else [space, "b64"]
    _, where, dtype, count, offset = memory_operand(t, operand, words)
    if space == "generic":
        where = f"({where} - {t.constant(np.uint64(WINDOW_STARTS['shared']))})"
    return f"{t.access(dtype, count, offset)}, {where}"


def wait(t: Translator, i: Instruction) -> str:
    """mbarrier.{test,try}_wait[.parity] p, [a], state|parity[, time]: a terminator."""
    if i.modifiers[-1] != "b64" or not 3 <= len(i.operands) <= 3 + ("try_wait" in i.modifiers):
        t.unsupported()
    if not isinstance(i.operands[0], Reg):
        t.unsupported("the result must be a register")
    target, phase = i.operands[1:3]
    if "parity" in i.modifiers:
        parity = t.value(phase, U32)
    else:
        parity = f"mbarriers.phase_of({t.value(phase, U64)})"
    return f"{t.guard(i) or 'None'}, {shared_address(t, i, target)}, {parity}"


def emit_mbarrier(t: Translator, i: Instruction) -> None:
    """init, inval, expect_tx, complete_tx, arrive, arrive_drop, pending_count"""
    verb, *words = i.modifiers
    rest = {*words[:-1]} - ORDERING - SHARED
    operands = list(i.operands)
    if verb == "pending_count" and words == ["b64"] and len(operands) == 2:
        token = t.value(operands[1], U64)
        t.assign(i, operands[0], f"mbarriers.pending_of({token})", U32)
        return
    state = operands.pop(0) if verb in ("arrive", "arrive_drop") else None
    if words[-1:] != ["b64"] or rest - {"expect_tx", "noComplete"} or not operands:
        t.unsupported()
    where = shared_address(t, i, operands[0])
    numbers = [t.value(o, U32) for o in operands[1:]]
    one, zero = t.constant(ONE), t.constant(ZERO)
    match verb, numbers, "expect_tx" in rest:
        case "init", [count], False:
            call = f"init({where}, {count}, "
        case "inval", [], False:
            call = f"invalidate({where}, "
        case "expect_tx", [tx], False:
            call = f"expect({where}, {tx}.astype(np.int64), "
        case "complete_tx", [tx], False:
            call = f"expect({where}, -{tx}.astype(np.int64), "
        case "arrive" | "arrive_drop", [tx], True:
            call = f"arrive({where}, {one}, {tx}, "
        case "arrive" | "arrive_drop", [] | [_], False:
            call = f"arrive({where}, {numbers[0] if numbers else one}, {zero}, "
        case _:
            t.unsupported()
    mask, indent = enabled(t, i)
    drops = ", drops=True" if verb == "arrive_drop" else ""
    t.line(f"{indent}x0 = m.mbarriers.{call}{mask}{drops})")
    if state is not None:
        if indent:
            t.line(f"else: x0 = {t.constant(np.uint64(0))}")
        t.assign(i, state, "x0", U64)


def emit_arrive_on_copies(t: Translator, i: Instruction) -> None:
    """cp.async.mbarrier.arrive[.noinc][.shared].b64 [a]: one arrival when the thread's copies have
    completed. Without .noinc the expected count of the phase first increases by one, so the net
    change is zero."""
    rest = {*i.modifiers[3:-1]} - SHARED
    if i.modifiers[-1] != "b64" or rest - {"noinc"}:
        t.unsupported()
    where = shared_address(t, i, i.operands[0])
    mask, indent = enabled(t, i)
    t.line(f"{indent}m.copies.complete_all({mask})")
    if "noinc" in rest:
        one, zero = t.constant(ONE), t.constant(ZERO)
        t.line(f"{indent}m.mbarriers.arrive({where}, {one}, {zero}, {mask})")


EMITTERS: Emitters = {
    "mbarrier.init": (emit_mbarrier, {2}),
    "mbarrier.inval": (emit_mbarrier, {1}),
    "mbarrier.expect_tx": (emit_mbarrier, {2}),
    "mbarrier.complete_tx": (emit_mbarrier, {2}),
    "mbarrier.arrive": (emit_mbarrier, {2, 3}),
    "mbarrier.arrive.expect_tx": (emit_mbarrier, {3}),
    "mbarrier.arrive_drop": (emit_mbarrier, {2, 3}),
    "mbarrier.arrive_drop.expect_tx": (emit_mbarrier, {3}),
    "mbarrier.pending_count": (emit_mbarrier, {2}),
    "cp.async.mbarrier.arrive": (emit_arrive_on_copies, {1}),
}
