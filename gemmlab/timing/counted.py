"""What determines the path of a warp through a program: some registers, and counted loops."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gemmlab.emulator.program import Block, Program
from gemmlab.emulator.translation.emit.mbarriers import is_wait
from gemmlab.emulator.translation.liveness import live_at_starts, results, sources
from gemmlab.ptx.ir import WIDTHS, Imm, Instruction, Memory, Reg, registers
from gemmlab.ptx.opcodes import ACCESSES, ATOMICS, LOADS, TERMINATORS

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
WITHOUT_COPIES = {"global", "const", "param"}  # state spaces to which bulk copies bring no data
MOST_LEFT = 1 << 20  # iterations that a loop is followed ahead


@dataclass(frozen=True)
class Counted:
    """A loop of basic blocks `head` to `last`, at whose end a counter is compared.

    An iteration adds `step` to `counter`. Another iteration follows if `comparison` of the new
    value and `bound`, a register or a number, is true or, with `is_negated`, false. state: the
    other registers that determine what an iteration executes.
    """

    head: int
    last: int
    counter: str
    step: int
    comparison: str
    type: str
    bound: str | int
    is_negated: bool
    state: tuple[str, ...]

    def left(self, counter: int, bound: int) -> int:
        """How often the loop returns to its head, where it is now with these values."""
        compare, end = COMPARISONS[self.comparison], self._number(bound)
        for returns in range(MOST_LEFT):
            value = self._number(counter + self.step * (returns + 1))
            if compare(value, end) is self.is_negated:
                return returns
        return MOST_LEFT

    def _number(self, bits: int) -> int:
        width = 8 * WIDTHS[self.type]
        bits &= (1 << width) - 1
        return bits - (bits >> width - 1 << width) if self.type[0] == "s" else bits


@lru_cache(maxsize=4)
def deciding(program: Program) -> frozenset[str]:
    """Return the registers on which the targets of branches, the addresses of accesses and the
    guards of instructions depend. All waits for mbarriers succeed, so they depend on nothing."""
    found, waiting = set[str](), set[str]()
    writers = defaultdict[str, list[Instruction]](list)
    for one in program.function.instructions:
        waiting |= _decides(one)
        for name in () if is_wait(one) else results(one):
            writers[name].append(one)
    while waiting:
        name = waiting.pop()
        found.add(name)
        for one in writers.pop(name, ()):
            waiting |= _inputs(one) - found
    return frozenset(found)


def needs_copies(program: Program, registers: frozenset[str]) -> bool:
    """Whether one of the registers is loaded from memory to which bulk copies may bring data."""
    return any(
        one.root in LOADS | ATOMICS
        and WITHOUT_COPIES.isdisjoint(one.opcode)
        and not registers.isdisjoint(results(one))
        for one in program.function.instructions
    )


@lru_cache(maxsize=4)
def counted_loops(program: Program) -> tuple[Counted, ...]:
    """Return the innermost counted loops that access no memory, except by copies and parameters."""
    code, blocks = program.function.instructions, program.blocks
    live, decides, found = live_at_starts(code, blocks), deciding(program), list[Counted]()
    for last, block in enumerate(blocks):
        if block.terminator != "branch" or block.targets[0] > last:
            continue
        head = block.targets[0]
        if any(head <= loop.head for loop in found) or not _is_closed(blocks, head, last):
            continue
        loop = _counted(code[blocks[head].first : block.last], head, last, decides, live[head])
        if loop is not None:
            found.append(loop)
    return tuple(found)


def _is_closed(blocks: Sequence[Block], head: int, last: int) -> bool:
    """Whether basic blocks are entered at the head alone, and left at the end alone."""
    inside = range(head, last + 1)
    return all(
        block.terminator not in ("exit", "switch", "trap")
        and (number == last or all(target in inside for target in block.targets))
        if number in inside
        else all(target == head or target not in inside for target in block.targets)
        for number, block in enumerate(blocks)
    )


def _counted(
    body: Sequence[Instruction], head: int, last: int, decides: frozenset[str], live: frozenset[str]
) -> Counted | None:
    """Return the counted loop with this body, or None if it is none. live: at its head."""
    guard = body[-1].guard
    if guard is None or any(x.root in ACCESSES and "param" not in x.opcode for x in body):
        return None
    writers: dict[str, list[Instruction]] = {}
    for one in body:
        for name in results(one):
            writers.setdefault(name, []).append(one)

    def only(name: str) -> Instruction | None:
        """The instruction that writes a register, if it is the only one and has no guard."""
        found = writers.get(name, [])
        return found[0] if len(found) == 1 and found[0].guard is None else None

    # The counter is added to, copied if the sum is in another register, and compared.
    match test := only(guard.reg.name):
        case Instruction(
            opcode=("setp", comparison, type_), operands=(_, Reg(after), Reg() | Imm() as bound)
        ) if comparison in COMPARISONS and type_[0] in "sub":
            pass
        case _:
            return None
    match addition := only(after):
        case Instruction(opcode=("add", *_), operands=(_, Reg(counter), Imm(step))):
            pass
        case _:
            return None
    copy = only(counter) if counter != after else addition
    match copy:
        case Instruction(opcode=("mov", *_), operands=(_, Reg(name))) if name == after:
            pass
        case _ if copy is not addition:
            return None
    if isinstance(bound, Reg) and bound.name in writers:
        return None
    for one in body:
        uses = not _inputs(one).isdisjoint((counter, after))
        decisive = not decides.isdisjoint({*results(one), *_decides(one)})
        if uses and decisive and one not in (test, addition, copy):
            return None
    read = set().union(*map(_inputs, body))
    return Counted(
        head,
        last,
        counter,
        step,
        comparison,
        type_,
        bound.name if isinstance(bound, Reg) else bound.value,
        guard.negated,
        tuple(sorted((live & decides & read) - {counter})),
    )


def _inputs(one: Instruction) -> set[str]:
    return {*sources(one)} | ({one.guard.reg.name} if one.guard else set())


def _decides(one: Instruction) -> set[str]:
    """The registers that decide where an instruction leads, or what it accesses if anything."""
    if one.root in TERMINATORS:
        return _inputs(one)
    found = {one.guard.reg.name} if one.guard else set()
    if one.root in ACCESSES or (one.root == "cp" and "bulk" not in one.opcode):
        found |= {*registers(x for x in one.operands if isinstance(x, Memory))}
    return found
