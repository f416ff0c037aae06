"""Finds the registers that decide what instructions do."""

from __future__ import annotations

from collections.abc import Sequence

from gemmlab.emulator.translation.emit.integers import CARRY
from gemmlab.emulator.translation.liveness import results, sources
from gemmlab.emulator.translation.translator import CLOCKS
from gemmlab.ptx.ir import Instruction, Special
from gemmlab.ptx.opcodes import TERMINATORS, is_arithmetic

WITH_CARRY = ("addc", "subc", "madc")  # read the carry flag


def deciding_registers(code: Sequence[Instruction]) -> frozenset[str] | None:
    """Return the registers that decide what instructions do, apart from writing other registers:
    where they branch, which memory they access, what they store. None if a clock decides it.

    If these registers and memory have the same values again, the instructions repeat forever.
    """
    found, size = set[str](), -1
    while len(found) > size:
        size = len(found)
        for i in code:
            written = {*results(i), CARRY.name} if "cc" in i.modifiers else {*results(i)}
            if is_arithmetic(i.root) and found.isdisjoint(written):
                continue
            if i.root in WITH_CARRY:
                found.add(CARRY.name)
            if any(isinstance(o, Special) and o.name in CLOCKS for o in i.operands):
                return None
            if TERMINATORS.get(i.root) != "sleep":  # its duration decides nothing
                found.update(sources(i))
            if i.guard is not None:
                found.add(i.guard.reg.name)
    return frozenset(found)
