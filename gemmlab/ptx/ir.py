"""A parsed PTX file as data: operands, instructions, variables, functions, module."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

from gemmlab.errors import Site, UnknownNameError
from gemmlab.ptx.modifiers import read_opcode
from gemmlab.ptx.recent import Recent

WIDTHS = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2}
WIDTHS |= {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4}
WIDTHS |= {"b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "pred": 1}
TYPES = frozenset(WIDTHS)


@dataclass(frozen=True, slots=True)
class Reg:
    """A register."""

    name: str  # unique in the function
    type: str  # as declared: "b32"


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal."""

    value: int  # an integer, or the bit pattern of a float
    width: int = 0  # bytes of a float, 4 or 8; 0 for an integer

    def as_float(self) -> float:
        if self.width == 4:
            return float(struct.unpack("<f", struct.pack("<I", self.value))[0])
        if self.width == 8:
            return float(struct.unpack("<d", struct.pack("<Q", self.value))[0])
        return float(self.value)


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, a parameter, a function, or a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, c, d}`, the argument list `(a, b)` of a call, or the two results `p|q`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """`[base + offset]`, or `[base, {x, y}]` for tensor coordinates."""

    base: Reg | Symbol | Imm
    offset: int
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Negated:
    """`!p`: a negated predicate."""

    reg: Reg


Operand = Reg | Special | Imm | Symbol | Vector | Memory | Negated


def registers(operands: Iterable[Operand]) -> Iterator[str]:
    """Names of the registers in operands, including base addresses and negated predicates."""
    for o in operands:
        match o:
            case Reg():
                yield o.name
            case Negated():
                yield o.reg.name
            case Memory():
                yield from registers([o.base])
            case Vector():
                yield from registers(o.items)


def vector_length(words: Iterable[str]) -> int:
    """The number of elements that a memory instruction with these modifiers moves."""
    return next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)


class Guard(NamedTuple):
    """The `@p` or `@!p` before an instruction."""

    reg: Reg
    negated: bool


@dataclass(slots=True)
class Instruction:
    """One instruction."""

    opcode: tuple[str, ...]  # ("ld", "global", "f32"); modifiers in the order of modifiers.py
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int  # in the PTX text, from 1
    text: str
    source: str | None  # "file:line" in the Python or CUDA source, from .loc

    @property
    def root(self) -> str:
        """The first word of the opcode: "mad", "cp"."""
        return self.opcode[0]

    @property
    def name(self) -> str:
        """The opcode without modifiers: "mad.lo", "cp.async.bulk"."""
        return read_opcode(self.opcode).name

    @property
    def modifiers(self) -> tuple[str, ...]:
        return self.opcode[1:]

    @property
    def callee(self) -> str | None:
        """The name of the function that a call names; None for indirect calls and other opcodes."""
        target = next((o for o in self.operands if not isinstance(o, Vector)), None)
        return target.name if self.root == "call" and isinstance(target, Symbol) else None

    @property
    def site(self) -> Site:
        return Site(self.line, self.text, self.source)


@dataclass(frozen=True)
class Variable:
    """A variable declared in .param, .shared, .local, .global or .const space."""

    name: str
    space: str
    type: str
    size: int  # bytes; 0 if extern
    alignment: int  # bytes
    is_pointer: bool = False
    initial: bytes = b""
    pointers: tuple[tuple[int, Symbol], ...] = ()  # addresses in `initial`: (offset, symbol)


@dataclass
class Function:
    """A kernel entry or a device function."""

    name: str
    is_entry: bool
    parameters: list[Variable]
    results: list[Variable] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # name -> index of the next instruction
    branch_targets: dict[str, list[str]] = field(default_factory=dict)  # .branchtargets tables
    reqntid: tuple[int, int, int] | None = None
    maxntid: tuple[int, int, int] | None = None
    reqnctapercluster: tuple[int, int, int] | None = None
    minnctapersm: int = 1
    maxnreg: int | None = None

    @cached_property
    def specials(self) -> frozenset[str]:
        """Names of the special registers that the function reads."""
        operands = (operand for i in self.instructions for operand in i.operands)
        return frozenset(operand.name for operand in operands if isinstance(operand, Special))


@dataclass
class Module:
    """A parsed PTX module. Modules are cached by text and shared, so they must not be modified."""

    version: str
    target: str
    functions: dict[str, Function]
    variables: list[Variable]
    digest: str = field(default="", compare=False)  # SHA-256 of the text
    # Translated entries, cached with the module.
    programs: Recent[tuple[Any, ...], Any] = field(
        default_factory=partial(Recent, 64), compare=False
    )

    def code_address(self, name: str) -> int | None:
        """The number that represents a device function's address; None if there is none."""
        names = [f.name for f in self.functions.values() if not f.is_entry]
        return 16 * (1 + names.index(name)) if name in names else None

    @cached_property
    def addressed(self) -> list[Function]:
        """The device functions whose address is taken by a mov or a variable's initial value."""
        names = {symbol.name for v in self.variables for _, symbol in v.pointers}
        for function in self.functions.values():
            moves = (i for i in function.instructions if i.root == "mov")
            names |= {o.name for i in moves for o in i.operands if isinstance(o, Symbol)}
        return [f for f in self.functions.values() if f.name in names and not f.is_entry]

    @property
    def entries(self) -> list[str]:
        return [f.name for f in self.functions.values() if f.is_entry]

    def entry(self, name: str | None = None) -> Function:
        """The entry with the given name, or the only entry. Raises UnknownNameError."""
        names = self.entries
        if name is None and len(names) == 1:
            return self.functions[names[0]]
        if name is None or name not in names:
            wanted = "no entry named" if name is None else f"no entry {name!r}"
            raise UnknownNameError(f"{wanted}; the PTX has {', '.join(names) or 'none'}")
        return self.functions[name]
