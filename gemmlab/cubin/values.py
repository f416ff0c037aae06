"""Symbolic execution of straight-line machine code: equal values get equal numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gemmlab.cubin.code import Instruction
from gemmlab.cubin.control import without_control
from gemmlab.cubin.registers import effects

FFMA = 0x7223  # d = a·b + c of registers, with no guard, sign or other modifier
_FIELDS = 255 << 16 | 255 << 24 | 255 << 32 | 255 << 64  # its registers d, a, b, c
_LOAD_FIELDS = 255 << 16 | 255 << 24  # a load's result and the register of its address
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)")
NAMED = re.compile(r"\bU?P\d\b|\bUR\d+\b")  # predicates and uniform registers
_TARGET = re.compile(r"`\(\S+\)")
_ZERO = 255  # RZ

State = dict[int | str, int]  # register, predicate or uniform register -> value


def is_ffma(one: Instruction) -> bool:
    return without_control(one.word) & ~_FIELDS == FFMA


def is_load(one: Instruction) -> bool:
    """Whether it loads 128 bits from shared memory."""
    return one.opcode == "LDS.128" and not one.guard


def is_copy(one: Instruction) -> bool:
    """Whether it moves one register to another."""
    return one.opcode == "MOV" and not one.guard and len(_REGISTER.findall(one.operands)) == 2


def is_jump(one: Instruction) -> bool:
    """Whether it is a jump without a condition, which computes nothing."""
    return one.opcode == "BRA" and not one.conditional


class Values:
    """Numbers of values. `meaning[v]` is what value `v` was computed from."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.meaning: list[tuple[Any, ...]] = []

    def number(self, *meaning: Any) -> int:
        if meaning not in self._numbers:
            self._numbers[meaning] = len(self.meaning)
            self.meaning.append(meaning)
        return self._numbers[meaning]

    def get(self, state: State, name: int | str) -> int:
        if name == _ZERO:
            return self.number("zero")
        return state.setdefault(name, self.number("before", name))

    def address(self, one: Instruction, state: State) -> str:
        """Return the address of a load, in terms of values."""
        text = one.operands.partition(",")[2]
        text = NAMED.sub(lambda m: f"u{self.get(state, m[0])}", text)
        return _REGISTER.sub(lambda m: f"v{self.get(state, int(m[1]))}", text)

    def run(self, code: Iterable[Instruction], state: State) -> list[int]:
        """Execute; update `state`. Return the values of all other instructions, in order.

        Memory is constant: the code must not contain an instruction that changes it.
        """
        others = []
        for one in code:
            if is_ffma(one):
                d, a, b, c = (one.word >> place & 255 for place in (16, 24, 32, 64))
                factors = sorted((self.get(state, a), self.get(state, b)))
                state[d] = self.number("ffma", *factors, self.get(state, c))
            elif is_load(one):
                where, d = self.address(one, state), one.word >> 16 & 255
                rest = without_control(one.word) & ~_LOAD_FIELDS
                for i in range(4):
                    state[d + i] = self.number("load", where, i, rest)
            elif is_copy(one):
                d, source = map(int, _REGISTER.findall(one.operands))
                state[d] = self.get(state, source)
            elif one.root != "NOP" and not is_jump(one):
                others.append(self._other(one, state))
        return others

    def _other(self, one: Instruction, state: State) -> int:
        reads, writes = effects(one)
        named = NAMED.findall(f"{one.guard} {one.operands}")
        operands = _TARGET.sub("", _REGISTER.sub("R", one.operands))
        old = [self.get(state, name) for name in (*sorted(reads), *named)]
        value = self.number("other", one.guard, one.opcode, operands, *old)
        if one.root != "BRA":
            # A predicate may be read or written. It counts as written; the order of such
            # instructions must not change.
            for i, name in enumerate((*sorted(writes), *dict.fromkeys(named))):
                state[name] = self.number("result", value, i)
        return value
