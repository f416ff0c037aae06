"""Calls of device functions, expanded in place.

Arguments travel as PTX writes them, through .param variables of the caller, which become a part
of each thread's frame. What is not defined in the file stays a call: printf is known, others fail
when they are reached. A call through a pointer becomes a comparison with the address of each
function that it may mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gemmlab.emulator.ptx.ir import (
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
    Vector,
)
from gemmlab.errors import PtxSyntaxError, UnsupportedInstructionError

MAX_DEPTH = 32


def inline_calls(module: Module, function: Function) -> Function:
    """The function with each call of a function of the module replaced by its body."""
    if not any(i.root == "call" for i in function.instructions):
        return function
    result = replace(function, variables=[], instructions=[], labels={}, branch_targets={})
    Inliner(module, result, module.addressed).append(function, Renaming("", {}), 0)
    return result


@dataclass
class Renaming:
    """How the names of one copy of a function differ from its text."""

    suffix: str
    parameters: dict[str, str]  # of the function -> .param variables of the caller
    end: str | None = None  # label behind the copy; None for the entry itself
    own: set[str] = field(default_factory=set)  # variables that each copy has for itself

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
    """Appends copies of functions to `result`."""

    module: Module
    result: Function
    candidates: list[Function]  # whose address is taken
    under_way: list[str] = field(default_factory=list)  # functions that are being copied
    num_copies: int = 0

    def append(self, function: Function, names: Renaming, depth: int) -> None:
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
        callee = self._callee(instruction)
        if callee is not None:
            self._call(instruction, operands, callee, guard, depth)
        elif instruction.root == "call" and any(isinstance(o, Reg) for o in operands):
            self._call_through_pointer(instruction, operands, guard, depth)
        elif instruction.root == "ret" and names.end is not None:
            jump = replace(instruction, opcode=("bra",), operands=(Symbol(names.end),), guard=guard)
            self.result.instructions.append(jump)
        else:
            self.result.instructions.append(replace(instruction, operands=operands, guard=guard))

    def _callee(self, instruction: Instruction) -> Function | None:
        if instruction.root != "call":
            return None
        names = [o.name for o in instruction.operands if isinstance(o, Symbol)]
        return self.module.functions.get(names[0]) if names else None

    def _call_through_pointer(
        self,
        instruction: Instruction,
        operands: tuple[Operand, ...],
        guard: Guard | None,
        depth: int,
    ) -> None:
        """call (results), pointer, (arguments), prototype"""
        self.num_copies += 1
        end, is_other = f"behind@{self.num_copies}", Reg(f"other@{self.num_copies}", "pred")
        pointer = next(o for o in operands if isinstance(o, Reg))
        place = operands.index(pointer)
        results, arguments = operands[:place], operands[place + 1 : place + 2]
        given = tuple(sum(len(_symbols(o)) for o in part) for part in (results, arguments))

        def add(opcode: str, *operands: Operand, guard: Guard | None = None) -> None:
            words = tuple(opcode.split("."))
            new = replace(instruction, opcode=words, operands=operands, guard=guard)
            self.result.instructions.append(new)

        if guard is not None:
            add("bra", Symbol(end), guard=Guard(guard.reg, not guard.negated))
        for function in self.candidates:
            takes = len(function.results), len(function.parameters)
            if takes != given or function.name in self.under_way:
                continue
            behind = f"{function.name}@{self.num_copies}:{end}"
            address = self.module.code_address(function.name)
            assert address is not None
            add("setp.ne.u64", is_other, pointer, Imm(address))
            add("bra", Symbol(behind), guard=Guard(is_other, False))
            direct = (*results, Symbol(function.name), *arguments)
            self._call(instruction, direct, function, None, depth)
            add("bra", Symbol(end))
            self.result.labels[behind] = len(self.result.instructions)
        add("call", *operands)  # what it points to is unknown
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
            message = f"unsupported: {callee.name} calls itself, or calls nest {MAX_DEPTH} deep"
            raise UnsupportedInstructionError(message, instruction.site)
        self.num_copies += 1
        suffix = f"@{self.num_copies}"
        place = next(k for k, o in enumerate(operands) if isinstance(o, Symbol))
        given = [_symbols(o) for o in (*operands[:place], *operands[place + 1 :])]
        results = given.pop(0) if place else []
        arguments = given[0] if given else []
        formal = [v.name for v in (*callee.results, *callee.parameters)]
        if len(formal) != len(results) + len(arguments):
            message = f"call of {callee.name} with other arguments than it takes"
            raise PtxSyntaxError(message, instruction.line)
        parameters = dict(zip(formal, [*results, *arguments], strict=True))
        end = callee.name + suffix
        if guard is not None:
            skip = Guard(guard.reg, not guard.negated)
            jump = replace(instruction, opcode=("bra",), operands=(Symbol(end),), guard=skip)
            self.result.instructions.append(jump)
        self.under_way.append(callee.name)
        self.append(callee, Renaming(suffix, parameters, end), depth + 1)
        self.under_way.pop()
        self.result.labels[end] = len(self.result.instructions)


def _symbols(operand: Operand) -> list[str]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return [o.name for o in items if isinstance(o, Symbol)]
