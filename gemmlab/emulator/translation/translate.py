"""Translates a PTX function to Python: one generated function per basic block, which executes whole
chunks of lanes.

A block's function takes the machine, the registers that are live across blocks, and the mask of
active lanes. Within it, registers are Python variables. Under a mask it computes all lanes and
keeps the results of active lanes at its end; only memory accesses apply the mask immediately.

Registers hold bits. Each register has one NumPy type throughout the function, the type that most of
its instructions use. Elsewhere a `.view`, which costs nothing, changes the type.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import CodeType
from typing import Any

import numpy as np

from gemmlab.core import disk_cache
from gemmlab.emulator.arithmetic import doubles, formats, halves, numerics, packed
from gemmlab.emulator.arithmetic.lanes import select
from gemmlab.emulator.copies import bulk_copies
from gemmlab.emulator.memory import atomics, clusters
from gemmlab.emulator.program import Access, Block, Program
from gemmlab.emulator.synchronization import collectives, mbarriers
from gemmlab.emulator.tensor_cores import fragments, matrices
from gemmlab.emulator.translation import emit, isa
from gemmlab.emulator.translation.emit import instructions
from gemmlab.emulator.translation.emit.collectives import members_of
from gemmlab.emulator.translation.spins import mark_spins
from gemmlab.emulator.translation.translator import Translator, Unsupported, immediate
from gemmlab.emulator.translation.vectorize import Location, joined_accesses
from gemmlab.errors import PtxSyntaxError
from gemmlab.ptx.inline import inline_calls
from gemmlab.ptx.ir import (
    WIDTHS,
    Function,
    Imm,
    Instruction,
    Operand,
    Reg,
    Symbol,
)
from gemmlab.ptx.modifiers import read_opcode
from gemmlab.ptx.opcodes import TERMINATORS
from gemmlab.ptx.parser import parse

LONG_SOURCE = 100_000  # characters of generated Python, which take 0.1 s to compile
_ENDING = {"bar", "barrier", "mbarrier", *TERMINATORS}  # first words of possible terminators
STACK_ALIGNMENT = 8  # bytes; the minimum alignment of local memory


def translate(
    text: str,
    entry: str | None = None,
    recorded: bool = False,
    unneeded: Callable[[Function], frozenset[int]] | None = None,
) -> Program:
    """Parse and translate one entry of a PTX text.

    recorded: for the checks, store the values that decide which operands an instruction uses in
    `machine.recorded`. unneeded: returns the instructions to leave out, except their guards.
    Raises PtxSyntaxError, UnknownNameError.
    """
    module = parse(text)
    function = module.entry(entry)

    def make() -> Program:
        whole = inline_calls(module, function)
        left_out = unneeded(whole) if unneeded else frozenset[int]()
        return FunctionTranslator(module, whole, recorded, left_out).program()

    found: Program = module.programs.get((function.name, recorded, unneeded), make)
    return found


def _compiled(source: str, name: str) -> CodeType:
    """Compile generated Python. If that takes long, the result is kept for other processes."""
    if len(source) < LONG_SOURCE:
        return compile(source, name, "exec")
    kept = disk_cache.name_of(["translation", sys.version, name, source])
    found = disk_cache.load(kept)
    if found is None:
        found = marshal.dumps(compile(source, name, "exec"))
        disk_cache.save(kept, found)
    code: CodeType = marshal.loads(found)
    return code


def is_block_barrier(i: Instruction) -> bool:
    """Return whether an instruction is a thread-block barrier."""
    return i.root in ("bar", "barrier") and not {"warp", "cluster"} & {*i.modifiers}


def terminator_of(instruction: Instruction) -> str | None:
    """Return the kind of terminator that an instruction is, or None."""
    if instruction.root not in _ENDING:
        return None
    if is_block_barrier(instruction):
        return "barrier"
    if emit.mbarriers.is_wait(instruction):
        return "phase"
    if emit.clusters.is_wait(instruction):
        return "cluster"
    return TERMINATORS.get(instruction.root)


def terminator_result(instruction: Instruction) -> bool:
    """Return whether a terminator has a result, which the machine writes to its first operand."""
    if not instruction.operands or not isinstance(instruction.operands[0], Reg):
        return False
    return instructions.is_barrier_reduction(instruction) or emit.mbarriers.is_wait(instruction)


def basic_blocks(function: Function) -> list[Block]:
    """Split a function at labels, after terminators, and before instructions that wait for other
    lanes."""
    code = function.instructions
    leaders = {0, *(i for i in function.labels.values() if i < len(code))}
    leaders |= {i + 1 for i, x in enumerate(code) if terminator_of(x) and i + 1 < len(code)}
    leaders |= {i for i, x in enumerate(code) if members_of(x) is not None}
    leaders |= {i for i, x in enumerate(code) if emit.mbarriers.is_wait(x)}
    starts = sorted(leaders) if code else []
    blocks = [Block(first, last) for first, last in pairwise([*starts, len(code)])]
    number = {b.first: i for i, b in enumerate(blocks)}
    number[len(code)] = len(blocks)  # execution past the last instruction exits

    def target(label: str) -> int:
        return number[function.labels[label]]

    for i, block in enumerate(blocks):
        last = code[block.last - 1]
        block.terminator = terminator_of(last) or "fall"
        if block.terminator == "branch":
            block.targets = [target(o.name) for o in last.operands if isinstance(o, Symbol)]
        elif block.terminator == "switch":
            table = last.operands[1]
            assert isinstance(table, Symbol)
            block.targets = [target(label) for label in function.branch_targets[table.name]]
        block.targets.append(i + 1)
    blocks.append(Block(len(code), len(code), "exit"))
    return blocks


def selectors(i: Instruction) -> list[tuple[Operand, np.dtype]]:
    """Return the operands whose values decide which other operands matter, with their types."""
    flag = np.dtype(bool)
    if i.root == "selp":
        return [(i.operands[3], flag)]
    if i.root in ("and", "or") and i.opcode[-1] in isa.DTYPES:
        return [(o, isa.DTYPES[i.opcode[-1]]) for o in i.operands[1:]]
    if i.root == "setp" and len(i.operands) == 4:
        return [(i.operands[3], flag)]
    if i.name == "shfl":
        return [(o, np.dtype("u4")) for o in i.operands[2:4]]
    return []


class FunctionTranslator(Translator):
    """Drives the emitters. Emission runs twice; the first run determines registers' types."""

    def program(self) -> Program:
        blocks = basic_blocks(self.function)
        spans = [(b.first, b.last) for b in blocks]
        self.joined = joined_accesses(self.function, spans, self.locations())
        live: set[str] = set()
        for block in blocks:
            self.body(block)
            live |= self.exposed
        self.storage = {
            name: max(votes.items(), key=lambda item: item[1])[0]
            for name, votes in self.votes.items()
        }
        live |= self.machine_registers(blocks)
        slots = {name: i for i, name in enumerate(sorted(live))}
        text, origins, bodies = list[str](), list[int](), list[range]()
        for i, block in enumerate(blocks):
            lines, body = self.block_source(i, block, slots)
            bodies.append(range(len(text) + body.start, len(text) + body.stop))
            text += lines
            origins += self.origins
        source = "\n".join(text) + "\n"
        namespace: dict[str, Any] = {"np": np, "n": numerics, "select": select, **self.constants}
        namespace |= {"atomics": atomics, "collectives": collectives, "mbarriers": mbarriers}
        namespace |= {"bulk_copies": bulk_copies, "clusters": clusters, "partial": partial}
        namespace |= {"doubles": doubles, "formats": formats, "halves": halves}
        namespace |= {"matrices": matrices, "fragments": fragments, "packed": packed}
        exec(_compiled(source, f"<{self.function.name}>"), namespace)
        for i, block in enumerate(blocks):
            block.run = namespace[f"block_{i}"]
            self.connect(block, slots)
        initial = {name: self.storage_of(self.registers[name]).type(0) for name in slots}
        mark_spins(self.function.instructions, blocks)
        accesses = {a.instruction: a for a in self.constants.values() if isinstance(a, Access)}
        return Program(
            self.function,
            self.module,
            blocks,
            initial,
            source,
            accesses,
            origins,
            bodies,
            self.dtypes,
            self.joined,
            self.left_out,
        )

    def machine_registers(self, blocks: list[Block]) -> set[str]:
        """Return the registers that the machine reads or writes between basic blocks."""
        code, found = self.function.instructions, []
        for block in blocks[:-1]:
            found.append(members_of(code[block.first]))
            if terminator_result(code[block.last - 1]):
                found.append(code[block.last - 1].operands[0])
        registers = {x.name: x for x in found if isinstance(x, Reg)}
        self.registers |= registers
        return set(registers)

    def connect(self, block: Block, slots: dict[str, int]) -> None:
        """Set the attributes of a block that refer to the machine's registers."""
        code = self.function.instructions
        if block.first == block.last:
            return
        members = members_of(code[block.first])
        if isinstance(members, Reg):
            if WIDTHS.get(members.type) != 4:
                message = f"a membermask has 32 bits, but {members.name} is .{members.type}"
                raise PtxSyntaxError(message, code[block.first].line)
            slot = slots[members.name]
            block.members = lambda registers: registers[slot].view(np.uint32)
        elif isinstance(members, Imm):
            bits = immediate(members, np.dtype("u4"))
            block.members = lambda registers: bits
        last = code[block.last - 1]
        if instructions.is_barrier_reduction(last):
            block.reduction = next(m for m in last.modifiers if m in ("popc", "and", "or"))
        if terminator_result(last):
            assert isinstance(last.operands[0], Reg)
            block.result = slots[last.operands[0].name]

    def body(self, block: Block) -> str:
        """Emit a block into `lines` and return the expression of its terminator's operand."""
        self.lines, self.origins, self.defined, self.exposed = [], [], set(), set()
        result = "None"
        self.first = block.first
        for self.index in range(block.first, block.last):
            instruction = self.function.instructions[self.index]
            if instruction.guard is not None:
                self.line(f"g = {self.predicate(instruction.guard)}")
                self.line(f"m.count_guarded({self.index}, g, mask)")
            if self.index in self.left_out:
                continue
            mark = len(self.lines)
            try:
                if self.recorded:
                    self.note(instruction)
                if problem := read_opcode(instruction.opcode).problem:
                    self.unsupported(problem)
                kind = terminator_of(instruction)
                if kind == "phase":
                    result = emit.mbarriers.wait(self, instruction)
                elif kind is not None:
                    result = instructions.terminator(self, instruction)
                elif (access := self.joined.get(self.index, instruction)) is not None:
                    instructions.instruction(self, access, emit.EMITTERS)
            except Unsupported as reason:
                del self.lines[mark:], self.origins[mark:]
                guard = self.guard(instruction)
                self.line(f"m.unsupported({self.index}, {str(reason)!r}, {guard}, mask)")
                plain = block.terminator in ("branch", "exit", "trap")
                result = str(guard) if plain else f"{guard},"
        return result

    def note(self, i: Instruction) -> None:
        """Store the guard and the values that decide which operands determine the result."""
        values = [self.value(*selector, typed=False) for selector in selectors(i)]
        if i.guard is not None or values:
            self.line(f"m.recorded[{self.index}] = {', '.join([str(self.guard(i)), *values])},")

    def locations(self) -> dict[str, Location]:
        """Return the locations of variables. Shared variables lie in one region of memory, local
        ones in another."""
        variables = self.variables.values()
        found = {v.name: Location(v.name, 0, v.alignment) for v in variables if v.space == "global"}
        local = [v for v in variables if v.space == "local"]
        aligned = max([STACK_ALIGNMENT, *(v.alignment for v in local)])
        found |= {v.name: Location("local", self.local[v.name], aligned) for v in local}
        return found | {name: Location("shared", offset) for name, offset in self.shared.items()}

    def block_source(
        self, number: int, block: Block, slots: dict[str, int]
    ) -> tuple[list[str], range]:
        """Return a block's function and the range of its lines that hold instructions."""
        result = self.body(block)
        live_in = sorted(self.exposed & slots.keys())
        live_out = sorted(self.defined & slots.keys())
        head = [f"{self.name(r)} = R[{slots[r]}]" for r in live_in]
        tail = []
        if live_out:
            plain = [f"R[{slots[r]}] = {self.name(r)}" for r in live_out]
            kept = [f"R[{slots[r]}] = np.where(a, {self.name(r)}, R[{slots[r]}])" for r in live_out]
            tail = ["if mask is None:", *(f"    {x}" for x in plain), "else:", "    a = mask.array"]
            tail += [f"    {x}" for x in kept]
        body = [*head, *self.lines, *tail, f"return {result}"]
        before, behind = [block.first] * (1 + len(head)), [block.last - 1] * (len(tail) + 1)
        self.origins = before + self.origins + behind
        lines = [f"def block_{number}(m, R, mask):", *(f"    {x}" for x in body)]
        return lines, range(len(before), len(before) + len(self.lines))
