"""Translates a PTX function to Python: one generated function per basic block, which executes whole
chunks of lanes.

A block's function takes the machine, the registers that are live across blocks, and the mask of
active lanes. Within it, registers are Python variables. Under a mask it computes all lanes and
keeps the results of active lanes at its end; only memory accesses apply the mask immediately.

Registers hold bits. Each register has one NumPy type throughout the function, the type that most of
its instructions use. Elsewhere a `.view`, which costs nothing, changes the type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from gemmlab.emulator.arithmetic import doubles, formats, halves, numerics, packed
from gemmlab.emulator.arithmetic.lanes import select
from gemmlab.emulator.memory import atomics, bulk_copies
from gemmlab.emulator.memory.spaces import Access
from gemmlab.emulator.synchronization import clusters, collectives, mbarriers
from gemmlab.emulator.tensor_cores import fragments, matrices
from gemmlab.emulator.translation import emit, isa
from gemmlab.emulator.translation.emit import instructions
from gemmlab.emulator.translation.emit.calls import callee
from gemmlab.emulator.translation.emit.collectives import members_of
from gemmlab.emulator.translation.spins import mark_spins
from gemmlab.emulator.translation.vectorize import Home, joined_accesses
from gemmlab.errors import PtxSyntaxError
from gemmlab.ptx import layout
from gemmlab.ptx.inline import inline_calls
from gemmlab.ptx.ir import (
    WIDTHS,
    Function,
    Guard,
    Imm,
    Instruction,
    Module,
    Negated,
    Operand,
    Reg,
    Special,
    Symbol,
    registers,
)
from gemmlab.ptx.modifiers import read_opcode
from gemmlab.ptx.parser import parse


@dataclass
class Block:
    """A basic block and its terminator."""

    first: int  # instruction indices [first, last)
    last: int
    terminator: str = "fall"  # fall, branch, switch, exit, trap, or a kind of wait
    targets: list[int] = field(default_factory=list)  # block indices; the last is the next block
    run: Callable[..., Any] = lambda machine, registers, mask: None
    spins: bool = False  # ends in the back edge of a loop that waits for memory to change
    locks: bool = False  # ends in the back edge of a loop that may take a lock
    # mask of lanes that must arrive before the block starts
    members: Callable[[list[Any]], Any] | None = None
    reduction: str = ""  # operation of bar.red: popc, and, or
    result: int | None = None  # slot of the register that the terminator writes


@dataclass
class Program:
    """A translated function."""

    function: Function
    module: Module
    blocks: list[Block]
    initial: list[Any]  # zeros, one per register that is live across blocks
    source: str  # generated Python
    accesses: dict[int, Access]  # by index of the memory instruction; one for joined accesses
    origins: list[int] = field(default_factory=list)  # the instruction of each source line
    # the source lines of each basic block's instructions
    bodies: list[range] = field(default_factory=list)
    dtypes: dict[str, np.dtype] = field(default_factory=dict)  # of the register variables
    # Joined accesses: the vector access to execute, or None at the other accesses of its group.
    joined: dict[int, Instruction | None] = field(default_factory=dict)
    # Cache of the native tier's code.
    native: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    # Facts that every launch needs

    @cached_property
    def callees(self) -> frozenset[str]:
        """Names of the called functions that the PTX does not define."""
        return frozenset(name for i in self.function.instructions if (name := callee(i)))

    @cached_property
    def registers_read(self) -> frozenset[str]:
        """Registers that are read, not counting destinations of atomic operations."""
        found: set[str] = set()
        for i in self.function.instructions:
            found.update(registers(i.operands[1 if i.root == "atom" else 0 :]))
        return frozenset(found)

    @cached_property
    def block_of(self) -> np.ndarray:
        """The index of each instruction's basic block."""
        owner = np.zeros(len(self.function.instructions), np.int64)
        for number, block in enumerate(self.blocks):
            owner[block.first : block.last] = number
        return owner


class Unsupported(Exception):
    """An instruction cannot be translated. It becomes an error when a lane reaches it."""


STACK_ALIGNMENT = 8  # bytes; the minimum alignment of local memory
TERMINATORS = {"bra": "branch", "brx": "switch", "ret": "exit", "exit": "exit", "trap": "trap"}
TERMINATORS |= {"nanosleep": "sleep"}


def translate(text: str, entry: str | None = None, noted: bool = False) -> Program:
    """Parse and translate one entry of a PTX text. noted: store in `machine.noted` the values that
    decide which operands an instruction uses, for the checks. Raises PtxSyntaxError,
    UnknownNameError."""
    module = parse(text)
    function = module.entry(entry)

    def make() -> Program:
        return Translator(module, inline_calls(module, function), noted).program()

    found: Program = module.programs.get((function.name, noted), make)
    return found


def is_block_barrier(i: Instruction) -> bool:
    """Return whether an instruction is a thread-block barrier."""
    return i.root in ("bar", "barrier") and not {"warp", "cluster"} & {*i.modifiers}


def terminator_of(instruction: Instruction) -> str | None:
    """Return the kind of terminator that an instruction is, or None."""
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


def deciders(i: Instruction) -> list[tuple[Operand, np.dtype]]:
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


class Translator:
    """Emits Python for one function. Emission runs twice; the first run determines registers'
    types."""

    def __init__(self, module: Module, function: Function, noted: bool = False) -> None:
        self.module, self.function, self.noted = module, function, noted
        self.variables = {v.name: v for v in (*module.variables, *function.variables)}
        self.parameters = layout.parameter_offsets(function)
        self.shared = layout.shared_offsets(module, function)
        self.local, _ = layout.local_layout(function)
        self.registers: dict[str, Reg] = {}  # read before their block writes them
        self.votes: dict[str, Counter[np.dtype]] = {}
        self.storage: dict[str, np.dtype] = {}
        self.names: dict[str, str] = {}  # register -> Python variable
        self.dtypes: dict[str, np.dtype] = {}  # of those variables
        self.constants: dict[str, Any] = {}
        self.constant_names: dict[tuple[str, bytes], str] = {}
        self.joined: dict[int, Instruction | None] = {}
        self.lines: list[str] = []
        self.origins: list[int] = []  # the instruction of each line
        self.index = 0  # the instruction being emitted
        self.first = 0  # the start of its basic block
        self.defined: set[str] = set()  # registers written so far in this block
        self.exposed: set[str] = set()  # registers read in this block before they are written

    # Translation

    def program(self) -> Program:
        blocks = basic_blocks(self.function)
        spans = [(b.first, b.last) for b in blocks]
        self.joined = joined_accesses(self.function, spans, self.homes())
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
        exec(compile(source, f"<{self.function.name}>", "exec"), namespace)
        for i, block in enumerate(blocks):
            block.run = namespace[f"block_{i}"]
            self.connect(block, slots)
        initial = [self.storage_of(self.registers[name]).type(0) for name in slots]
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
            bits = instructions.immediate(members, np.dtype("u4"))
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
            mark = len(self.lines)
            try:
                if self.noted:
                    self.note(instruction)
                if problem := read_opcode(instruction.opcode).problem:
                    self.unsupported(problem)
                if terminator_of(instruction) == "phase":
                    result = emit.mbarriers.wait(self, instruction)
                elif terminator_of(instruction):
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
        values = [self.value(*decider, typed=False) for decider in deciders(i)]
        if i.guard is not None or values:
            self.line(f"m.noted[{self.index}] = {', '.join([str(self.guard(i)), *values])},")

    def homes(self) -> dict[str, Home]:
        """Return the locations of variables. Shared variables lie in one piece of memory, local
        ones in another."""
        variables = self.variables.values()
        found = {v.name: Home(v.name, 0, v.alignment) for v in variables if v.space == "global"}
        local = [v for v in variables if v.space == "local"]
        aligned = max([STACK_ALIGNMENT, *(v.alignment for v in local)])
        found |= {v.name: Home("local", self.local[v.name], aligned) for v in local}
        return found | {name: Home("shared", offset) for name, offset in self.shared.items()}

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

    # Used by emitters

    def line(self, text: str) -> None:
        self.lines.append(text)
        self.origins.append(self.index)

    def unsupported(
        self, reason: str = "unknown combination of modifiers and operands"
    ) -> NoReturn:
        raise Unsupported(reason)

    def name(self, register: str) -> str:
        return self.names.setdefault(register, f"v{len(self.names)}")

    def storage_of(self, register: Reg) -> np.dtype:
        """Return the NumPy type of a register's variable."""
        if found := self.storage.get(register.name):
            return found
        return isa.DTYPES[register.type] if register.type in isa.DTYPES else np.dtype("u4")

    def vote(self, register: Reg, dtype: np.dtype) -> None:
        if dtype.itemsize == WIDTHS[register.type]:
            self.votes.setdefault(register.name, Counter())[dtype] += 1

    def read(self, register: Reg) -> str:
        """Return the register's variable, in its storage type."""
        if register.name not in self.defined:
            self.exposed.add(register.name)
            self.registers[register.name] = register
        name = self.name(register.name)
        self.dtypes[name] = self.storage_of(register)
        return name

    def constant(self, value: Any) -> str:
        """Return a name for a NumPy scalar."""
        key = value.dtype.str, value.tobytes()
        if key not in self.constant_names:
            self.constant_names[key] = f"k{len(self.constants)}"
            self.constants[self.constant_names[key]] = value
        return self.constant_names[key]

    def value(self, operand: Operand, dtype: np.dtype, typed: bool = True) -> str:
        """Return an expression for an operand as `dtype`. A wider register yields its low bits.

        `typed`: whether the use counts towards the register's type. It does not if the instruction
        only moves bits.
        """
        if isinstance(operand, Reg):
            variable, stored = self.read(operand), self.storage_of(operand)
            if typed:
                self.vote(operand, dtype)
            if stored == dtype:
                return variable
            if "b" in (stored.kind, dtype.kind):
                self.unsupported(f"{operand.name} is a .{operand.type} register")
            if stored.itemsize == dtype.itemsize:
                return f"{variable}.view({self.dtype(dtype)})"
            if stored.itemsize < dtype.itemsize or dtype.kind == "f":
                self.unsupported(f"{operand.name} is too narrow or has the wrong type")
            bits = self.dtype(np.dtype(f"u{stored.itemsize}"))
            return f"{variable}.view({bits}).astype({self.dtype(dtype)})"
        if isinstance(operand, Imm):
            return instructions.literal(self, operand, dtype)
        if isinstance(operand, Special):
            return instructions.special(self, operand.name, dtype)
        if isinstance(operand, Negated):
            return f"~{self.value(operand.reg, dtype)}"
        if isinstance(operand, Symbol):
            declared = self.variables.get(operand.name)
            if operand.name in self.local and declared and declared.space == "param":
                self.unsupported("the address of a call argument")
            return instructions.address(self, operand, dtype)
        self.unsupported("a vector operand, expected a scalar")

    def constant_object(self, value: Any, name: str = "") -> str:
        """Return a name for an object other than a NumPy scalar."""
        name = name or f"f_{value.__name__}"
        self.constants[name] = value
        return name

    def dtype(self, dtype: np.dtype) -> str:
        name = f"t_{dtype.kind}{dtype.itemsize}"
        self.constants.setdefault(name, dtype)
        return name

    def predicate(self, guard: Guard) -> str:
        predicate = self.value(guard.reg, np.dtype(bool))
        return f"~{predicate}" if guard.negated else predicate

    def guard(self, instruction: Instruction) -> str | None:
        """Return the variable that holds the guard. It is evaluated once, before the instruction
        writes."""
        return "g" if instruction.guard is not None else None

    def assign(
        self,
        instruction: Instruction,
        destination: Operand,
        expression: str,
        dtype: np.dtype,
        typed: bool = True,
    ) -> None:
        """Write an expression of type `dtype` to a register, under the instruction's guard."""
        if isinstance(destination, Symbol) and destination.name == "_":
            return
        if not isinstance(destination, Reg):
            self.unsupported("the destination must be a register")
        if typed:
            self.vote(destination, dtype)
        stored = self.storage_of(destination)
        if (stored.kind == "b") != (dtype.kind == "b"):
            self.unsupported(f"{destination.name} is a .{destination.type} register")
        if stored.itemsize > dtype.itemsize:
            wide = np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{stored.itemsize}")
            expression, dtype = f"({expression}).astype({self.dtype(wide)})", wide
        if stored.itemsize != dtype.itemsize:
            self.unsupported(f"{destination.name} is too narrow for the result")
        if stored != dtype:
            expression = f"({expression}).view({self.dtype(stored)})"
        guard = self.guard(instruction)
        if guard is not None:
            old = self.read(destination)
            expression = f"select({guard}, {expression}, {old})"
        self.defined.add(destination.name)
        self.dtypes[self.name(destination.name)] = stored
        self.line(f"{self.name(destination.name)} = {expression}")

    def access(self, dtype: np.dtype, count: int, offset: int, role: str = "a") -> str:
        """Return a name for the constant part of a memory access, one per role in an
        instruction."""
        name = f"{role}{self.index}"
        self.constants[name] = Access(self.index, offset, dtype, count)
        return name
