"""Static checks of a kernel's PTX: it must not keep state between launches."""

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
    """Return a message if the PTX may write a module variable in global memory, else None.

    Such a variable keeps its value between launches, so a kernel could count its launches or keep a
    result. Variables that are only read are allowed: tables, the strings of printf and assert,
    declarations in headers. Raises PtxSyntaxError.
    """
    module = parse(ptx)
    variables = {variable.name for variable in module.variables if variable.space == "global"}
    kept = _PointsTo(module, variables).written if variables else set()
    if kept:
        return (
            f"keeps {', '.join(sorted(kept)[:3])} in global memory of its module, which persists "
            "between launches; use an array argument, or __constant__ or __shared__ memory"
        )
    return None


class _PointsTo:
    """A flow-insensitive points-to analysis; `written` are the `variables` that may be written.

    Every value computed from an address may be that address. Memory is a single location: once an
    address is stored, every value loaded from memory may be that address.
    """

    def __init__(self, module: Module, variables: set[str]) -> None:
        self._module, self._variables = module, variables
        self.written: set[str] = set()
        self._stored = {
            symbol.name
            for variable in module.variables
            for _, symbol in variable.pointers
            if symbol.name in variables
        }
        self._targets: dict[tuple[str, str], set[str]] = defaultdict(set)  # function, register
        before = -1
        while before != (now := self._size()):  # the sets only grow: iterate to the fixed point
            before = now
            for function in module.functions.values():
                for instruction in function.instructions:
                    self._propagate(function, instruction)

    def _size(self) -> int:
        targets = sum(map(len, self._targets.values()))
        return targets + len(self._stored) + len(self.written)

    def _propagate(self, function: Function, instruction: Instruction) -> None:
        operands, opcode = instruction.operands, instruction.opcode
        if instruction.root == "call":
            self._call(function, operands)
            return
        places = [operand for operand in operands if isinstance(operand, Memory)]
        if not places or "param" in opcode:
            self._assign(function, operands[:1], self._pointees(function, operands[1:]))
        else:
            values = [operand for operand in operands if not isinstance(operand, Memory)]
            if instruction.root not in _READS and instruction.name not in _READS:
                self.written |= self._pointees(function, places[:1])  # the destination comes first
                self._stored |= self._pointees(function, values)
            if values and operands[0] is values[0]:  # the result is loaded from memory
                self._assign(function, values[:1], self._stored)

    def _call(self, function: Function, operands: tuple[Operand, ...]) -> None:
        """Propagate through a call. An external function may write to all its arguments."""
        groups = [operand.items for operand in operands if isinstance(operand, Vector)]
        names = [operand.name for operand in operands if isinstance(operand, Symbol)]
        called = next((self._module.functions.get(name) for name in names), None)
        if any(name in _PRINTING for name in names):
            return
        if called is None or not called.instructions:
            for group in groups:
                self.written |= self._pointees(function, group)
            return
        if called.results:
            results = [self._targets[called.name, result.name] for result in called.results]
            self._assign(function, groups[0], set().union(*results))
        for argument, parameter in zip(
            groups[-1] if groups else (), called.parameters, strict=False
        ):
            self._targets[called.name, parameter.name] |= self._pointees(function, [argument])

    def _pointees(self, function: Function, operands: Iterable[Operand]) -> set[str]:
        """Return the variables to which the operands may point."""
        found: set[str] = set()
        for operand in operands:
            match operand:
                case Reg(name=name) | Negated(reg=Reg(name=name)):
                    found |= self._targets.get((function.name, name), set())
                case Symbol(name=name):
                    targets = self._targets.get((function.name, name), set())
                    found |= {name} & self._variables | targets
                case Memory(base=base):
                    found |= self._pointees(function, [base])
                case Vector(items=items):
                    found |= self._pointees(function, items)
        return found

    def _assign(self, function: Function, to: Iterable[Operand], names: set[str]) -> None:
        """Record that the operands `to` may point to the variables `names`."""
        for target in to if names else ():
            match target:
                case Reg(name=name) | Symbol(name=name) | Memory(base=Symbol(name=name)):
                    self._targets[function.name, name] |= names
                case Vector(items=items):
                    self._assign(function, items, names)
