"""Inlines calls of device functions.

Arguments are passed through .param variables of the caller, which become part of each thread's
local memory. Calls of functions that the module does not define remain calls: the emulator provides
printf, malloc and free; any other is an error if it executes. A call through a pointer becomes a
chain of comparisons with the addresses of all candidate functions. Recursive functions become
subroutines, see recursion.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from gemmlab.errors import PtxSyntaxError, UnsupportedInstructionError
from gemmlab.ptx.ir import (
    Function,
    Guard,
    Imm,
    Instruction,
    Memory,
    Module,
    Negated,
    Operand,
    Reg,
    Symbol,
    Variable,
    Vector,
)
from gemmlab.ptx.recursion import (
    CALL,
    Body,
    Linker,
    callee_of,
    pointer_of,
    reachable,
    subroutine,
    symbols,
    takes,
)

MAX_DEPTH, MAX_INSTRUCTIONS = 32, 250_000


def inline_calls(module: Module, function: Function) -> Function:
    """Replace all calls of functions of the module by their bodies.

    Raises PtxSyntaxError and UnsupportedInstructionError.
    """
    if not any(i.root == "call" for i in function.instructions):
        return function
    candidates = module.addressed
    reached = reachable(module, candidates)
    recursive = {name for name in reached[function.name] if name in reached[name]}
    numbers = count(1)

    def flat(function: Function, names: Renaming) -> Function:
        result = replace(function, variables=[], instructions=[], labels={}, branch_targets={})
        Inliner(module, result, candidates, recursive, numbers).append(function, names, 0)
        return result

    kernel = flat(function, Renaming("", {}))
    if not recursive:
        return kernel
    bodies: dict[str, Body] = {}
    for name in sorted(recursive):
        callee, suffix = module.functions[name], f"@{name}"
        formals = tuple(_renamed(v, suffix) for v in (*callee.results, *callee.parameters))
        own = {v.name.removesuffix(suffix): v.name for v in formals}
        bodies[name] = subroutine(flat(callee, Renaming(suffix, own)), formals)
    return Linker(kernel, bodies, reached).link()


def _renamed(variable: Variable, suffix: str) -> Variable:
    return replace(variable, name=variable.name + suffix)


@dataclass
class Renaming:
    """Maps the names in a function to the names in one inlined copy."""

    suffix: str
    parameters: dict[str, str]  # parameter of the function -> .param variable of the caller
    end: str | None = None  # label after the copy; None if `ret` remains a return
    own: set[str] = field(default_factory=set)  # variables and labels that are private to a copy

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Reg):
            return Reg(operand.name + self.suffix, operand.type)
        if isinstance(operand, Negated):
            return Negated(Reg(operand.reg.name + self.suffix, operand.reg.type))
        if isinstance(operand, Vector):
            return Vector(tuple(self.operand(x) for x in operand.items))
        if isinstance(operand, Memory):
            base = self.operand(operand.base)
            assert isinstance(base, (Reg, Symbol, Imm))
            coordinates = tuple(self.operand(x) for x in operand.coordinates)
            return Memory(base, operand.offset, coordinates)
        if isinstance(operand, Symbol):
            if operand.name in self.parameters:
                return Symbol(self.parameters[operand.name], operand.offset)
            if operand.name in self.own:
                return Symbol(operand.name + self.suffix, operand.offset)
        return operand


@dataclass
class Inliner:
    """Appends inlined copies of functions to `result`."""

    module: Module
    result: Function
    candidates: list[Function]  # functions whose address is taken
    recursive: set[str]
    numbers: Iterator[int]  # numbers the copies

    def append(self, function: Function, names: Renaming, depth: int) -> None:
        """Append a copy of `function`. depth: of nested calls."""
        names.own = {v.name for v in function.variables if v.space in ("local", "param")}
        names.own |= set(function.labels) | set(function.branch_targets)
        for variable in function.variables:
            private = variable.name in names.own
            name = variable.name + names.suffix if private else variable.name
            if not any(v.name == name for v in self.result.variables):
                self.result.variables.append(replace(variable, name=name))
        for name, labels in function.branch_targets.items():
            targets = [label + names.suffix for label in labels]
            self.result.branch_targets[name + names.suffix] = targets
        labels_at: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            labels_at.setdefault(index, []).append(label + names.suffix)
        for index, instruction in enumerate(function.instructions):
            self._place(labels_at.get(index, ()))
            self._copy(instruction, names, depth)
        self._place(labels_at.get(len(function.instructions), ()))

    def _place(self, labels: list[str] | tuple[()]) -> None:
        for label in labels:
            self.result.labels[label] = len(self.result.instructions)

    def _copy(self, instruction: Instruction, names: Renaming, depth: int) -> None:
        guard = instruction.guard
        if guard is not None:
            guard = Guard(Reg(guard.reg.name + names.suffix, guard.reg.type), guard.negated)
        operands = tuple(names.operand(o) for o in instruction.operands)
        callee = callee_of(self.module, instruction)
        if len(self.result.instructions) > MAX_INSTRUCTIONS:
            message = f"unsupported: more than {MAX_INSTRUCTIONS:,} instructions after inlining"
            raise UnsupportedInstructionError(message, instruction.site)
        if callee is not None:
            self._call(instruction, operands, callee, guard, depth)
        elif pointer_of(instruction) is not None:
            self._call_through_pointer(instruction, operands, guard, depth)
        elif instruction.root == "ret" and names.end is not None:
            jump = replace(instruction, opcode=("bra",), operands=(Symbol(names.end),), guard=guard)
            self.result.instructions.append(jump)
        else:
            self.result.instructions.append(replace(instruction, operands=operands, guard=guard))

    def _call_through_pointer(
        self,
        instruction: Instruction,
        operands: tuple[Operand, ...],
        guard: Guard | None,
        depth: int,
    ) -> None:
        """Expand `call (results), pointer, (arguments), prototype`."""
        number = next(self.numbers)
        end, is_other = f"behind@{number}", Reg(f"other@{number}", "pred")
        pointer = next(o for o in operands if isinstance(o, Reg))
        place = operands.index(pointer)
        results, arguments = operands[:place], operands[place + 1 : place + 2]

        def add(opcode: str, *operands: Operand, guard: Guard | None = None) -> None:
            words = tuple(opcode.split("."))
            new = replace(instruction, opcode=words, operands=operands, guard=guard)
            self.result.instructions.append(new)

        if guard is not None:
            add("bra", Symbol(end), guard=Guard(guard.reg, not guard.negated))
        for function in self.candidates:
            if not takes(function, instruction):
                continue
            behind = f"{function.name}@{next(self.numbers)}:{end}"
            address = self.module.code_address(function.name)
            assert address is not None
            add("setp.ne.u64", is_other, pointer, Imm(address))
            add("bra", Symbol(behind), guard=Guard(is_other, False))
            direct = (*results, Symbol(function.name), *arguments)
            self._call(instruction, direct, function, None, depth)
            add("bra", Symbol(end))
            self.result.labels[behind] = len(self.result.instructions)
        add("call", *operands)  # no candidate matches; an error when executed
        self.result.labels[end] = len(self.result.instructions)

    def _call(
        self,
        instruction: Instruction,
        operands: tuple[Operand, ...],
        callee: Function,
        guard: Guard | None,
        depth: int,
    ) -> None:
        if depth >= MAX_DEPTH:
            message = f"unsupported: calls are nested more than {MAX_DEPTH} deep"
            raise UnsupportedInstructionError(message, instruction.site)
        suffix = f"@{next(self.numbers)}"
        place = next(k for k, o in enumerate(operands) if isinstance(o, Symbol))
        given = [symbols(o) for o in (*operands[:place], *operands[place + 1 :])]
        results = given.pop(0) if place else []
        arguments = given[0] if given else []
        formal = [v.name for v in (*callee.results, *callee.parameters)]
        if len(formal) != len(results) + len(arguments):
            message = f"the arguments of a call of {callee.name} do not match its parameters"
            raise PtxSyntaxError(message, instruction.line)
        parameters = dict(zip(formal, [*results, *arguments], strict=True))
        end = callee.name + suffix
        if guard is not None:
            skip = Guard(guard.reg, not guard.negated)
            jump = replace(instruction, opcode=("bra",), operands=(Symbol(end),), guard=skip)
            self.result.instructions.append(jump)
        if callee.name in self.recursive:
            lists = [Vector(tuple(map(Symbol, part))) for part in (results, arguments)]
            site: tuple[Operand, ...] = (Symbol(callee.name), *lists)
            call = replace(instruction, opcode=(CALL,), operands=site, guard=None)
            self.result.instructions.append(call)
        else:
            self.append(callee, Renaming(suffix, parameters, end), depth + 1)
        self.result.labels[end] = len(self.result.instructions)
