"""What can be said against a kernel without running it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gemmlab.compile.ptx import parse
from gemmlab.ptx.ir import (
    Function,
    Instruction,
    Memory,
    Module,
    Negated,
    Operand,
    Reg,
    Symbol,
    Vector,
)
from gemmlab.ptx.opcodes import LOADS

_READS = LOADS | {"prefetch", "prefetchu", "isspacep", "tex", "wmma.load"}
_PRINTING = {"vprintf", "__assertfail"}


def forbidden(ptx: str) -> str | None:
    """The rule that a PTX text breaks, or None.

    A variable of a module in global memory keeps its value from launch to launch: a kernel could
    count its launches, or keep a result. One that nothing writes keeps nothing: a table, the texts
    of printf and of assertions, what a header declares. Raises PtxSyntaxError.
    """
    module = parse(ptx)
    known = {variable.name for variable in module.variables if variable.space == "global"}
    kept = _Addresses(module, known).written if known else set()
    if kept:
        return (
            f"keeps {', '.join(sorted(kept)[:3])} in global memory of its module, which outlives a "
            "launch; take an array as an argument, or __constant__ or __shared__ memory"
        )
    return None


class _Addresses:
    """Where the addresses of some variables may get to, and which of these may be written there.

    What is computed from an address counts as one, and so does all that is read from memory once
    one is stored.
    """

    def __init__(self, module: Module, known: set[str]) -> None:
        self._module, self._known = module, known
        self.written: set[str] = set()
        self._stored = {
            symbol.name
            for variable in module.variables
            for _, symbol in variable.pointers
            if symbol.name in known
        }
        self._held: dict[tuple[str, str], set[str]] = defaultdict(set)  # function, register
        before = -1
        while before != (now := self._size()):
            before = now
            for function in module.functions.values():
                for instruction in function.instructions:
                    self._follow(function, instruction)

    def _size(self) -> int:
        held = sum(map(len, self._held.values()))
        return held + len(self._stored) + len(self.written)

    def _follow(self, function: Function, instruction: Instruction) -> None:
        operands, opcode = instruction.operands, instruction.opcode
        if instruction.root == "call":
            self._call(function, operands)
            return
        places = [operand for operand in operands if isinstance(operand, Memory)]
        if not places or "param" in opcode:
            self._give(function, operands[:1], self._of(function, operands[1:]))
        else:
            values = [operand for operand in operands if not isinstance(operand, Memory)]
            if instruction.root not in _READS and instruction.name not in _READS:
                self.written |= self._of(function, places[:1])  # where it goes to stands first
                self._stored |= self._of(function, values)
            if values and operands[0] is values[0]:  # it brings something from memory
                self._give(function, values[:1], self._stored)

    def _call(self, function: Function, operands: tuple[Operand, ...]) -> None:
        """A function that is not known may do anything with what it gets."""
        groups = [operand.items for operand in operands if isinstance(operand, Vector)]
        names = [operand.name for operand in operands if isinstance(operand, Symbol)]
        called = next((self._module.functions.get(name) for name in names), None)
        if any(name in _PRINTING for name in names):
            return
        if called is None or not called.instructions:
            for group in groups:
                self.written |= self._of(function, group)
            return
        if called.results:
            results = [self._held[called.name, result.name] for result in called.results]
            self._give(function, groups[0], set().union(*results))
        for argument, parameter in zip(
            groups[-1] if groups else (), called.parameters, strict=False
        ):
            self._held[called.name, parameter.name] |= self._of(function, [argument])

    def _of(self, function: Function, operands: Iterable[Operand]) -> set[str]:
        """The variables whose addresses these may hold."""
        found: set[str] = set()
        for operand in operands:
            match operand:
                case Reg(name=name) | Negated(reg=Reg(name=name)):
                    found |= self._held.get((function.name, name), set())
                case Symbol(name=name):
                    found |= {name} & self._known | self._held.get((function.name, name), set())
                case Memory(base=base):
                    found |= self._of(function, [base])
                case Vector(items=items):
                    found |= self._of(function, items)
        return found

    def _give(self, function: Function, targets: Iterable[Operand], names: set[str]) -> None:
        for target in targets if names else ():
            match target:
                case Reg(name=name) | Symbol(name=name) | Memory(base=Symbol(name=name)):
                    self._held[function.name, name] |= names
                case Vector(items=items):
                    self._give(function, items, names)
