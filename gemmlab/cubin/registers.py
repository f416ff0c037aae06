"""Which registers machine instructions read and write, and which are live between blocks."""

from __future__ import annotations

import re

from gemmlab.cubin.code import LEAVE, Code, Instruction

_REGISTER = re.compile(r"(?<![A-Z])R(\d+)")
_RESULT = re.compile(r"R(\d+)(?:\.\w+)*")
_OPERANDS = re.compile(r",(?![^\[]*\])")
_NO_VALUE = re.compile(r"!?U?P(\d|T)")
# Instructions without a register as result.
_NO_RESULT = re.compile(
    "U.*|ARRIVES|BAR|BRA|CCTL|EXIT|[FI]SETP|LDGDEPBAR|LDGSTS|NOP|PLOP3|R2UR|RED|ST[GLS]?|STSM|"
    "SYNCS|VOTEU|WARPSYNC"
)

_RESERVED = 2  # registers per thread that setmaxnreg grants but no instruction can name


def effects(one: Instruction) -> tuple[set[int], set[int]]:
    """Return the registers that an instruction may read, and those that it writes."""
    operands = [text.strip() for text in _OPERANDS.split(one.operands)]
    wide = 4 if ".128" in one.opcode else 1
    if ".64" in one.opcode or "WIDE" in one.opcode or one.root == "CS2R":
        wide = 2
    no_result = _NO_RESULT.fullmatch(one.root)
    result = None
    if not no_result:
        result = next((i for i, x in enumerate(operands) if not _NO_VALUE.fullmatch(x)), None)
    reads, writes = set[int](), set[int]()
    for i, text in enumerate(operands):
        if i == result and (found := _RESULT.fullmatch(text)):
            writes = set(range(int(found[1]), int(found[1]) + wide))
            continue
        span = 2 if ".64" in text else 1
        if "[" not in text and no_result:
            span = wide  # what a store writes to memory
        elif "[" not in text and wide == 2 and ("WIDE" not in one.opcode or i == 3):
            span = 2
        for number in _REGISTER.findall(text):
            reads.update(range(int(number), int(number) + span))
    return reads, writes


def granted(code: Code) -> int:
    """Return how many registers setmaxnreg allows, from R0; without it, how many are named."""
    sizes = [
        int(x.operands.rpartition("0x")[2], 16) for x in code.instructions if "ALLOC" in x.opcode
    ]
    if sizes:
        return max(sizes) - _RESERVED
    return 1 + max(
        (r for x in code.instructions for r in set[int]().union(*effects(x))), default=-1
    )


def live(code: Code) -> tuple[list[set[int]], list[set[int]]]:
    """Return the registers that may be read later, at the start and at the end of each block."""
    used, written = [], []
    for block in code.blocks:
        uses, kills, guarded = set[int](), set[int](), set[tuple[int, str]]()
        for one in code.inside(block):
            reads, writes = effects(one)
            uses |= {r for r in reads - kills if (r, one.guard) not in guarded}
            if one.guard:
                guarded |= {(r, one.guard) for r in writes}
            else:
                kills |= writes
            guarded = {(r, g) for r, g in guarded if not _sets(one, g)}
        used.append(uses)
        written.append(kills)
    starts = [set[int]() for _ in code.blocks]
    ends = [set[int]() for _ in code.blocks]
    changed = True
    while changed:
        changed = False
        for i, block in reversed(list(enumerate(code.blocks))):
            following = [starts[e.target] for e in block.edges if e.target != LEAVE]
            ends[i] = set[int]().union(*following)
            start = used[i] | (ends[i] - written[i])
            changed |= start != starts[i]
            starts[i] = start
    return starts, ends


def _sets(one: Instruction, guard: str) -> bool:
    """Whether an instruction may change the predicate of a guard."""
    return re.search(rf"\b{guard.lstrip('!')}\b", one.operands) is not None
