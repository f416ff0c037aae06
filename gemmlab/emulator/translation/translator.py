"""The state of a translation and what the emitters of instructions share: expressions for operands,
assignments to registers, names for constants."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NoReturn

import numpy as np

from gemmlab.emulator.program import Access
from gemmlab.emulator.translation import isa
from gemmlab.ptx import layout
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
)

BOOL, U32, U64 = np.dtype(bool), np.dtype("u4"), np.dtype("u8")

KNOWN_SPECIAL = {f"%{r}.{axis}" for r in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"}
KNOWN_SPECIAL |= {"%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "WARP_SZ"}
KNOWN_SPECIAL |= {"%dynamic_smem_size", "%total_smem_size"}
KNOWN_SPECIAL |= {f"%lanemask_{c}" for c in ("eq", "lt", "le", "gt", "ge")}
CLUSTER_SPECIAL = ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
KNOWN_SPECIAL |= {f"%{r}.{axis}" for r in CLUSTER_SPECIAL for axis in "xyz"}
KNOWN_SPECIAL |= {"%envreg1", "%envreg2", "%aggr_smem_size"}
KNOWN_SPECIAL |= {f"{layout.RESERVED}{name}" for name in layout.RESERVED_OFFSETS}
KNOWN_SPECIAL |= {"%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"}
CLOCKS = {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}
KNOWN_SPECIAL |= CLOCKS


class Unsupported(Exception):
    """An instruction cannot be translated. It becomes an error when a lane reaches it."""


def immediate(operand: Imm, dtype: np.dtype) -> Any:
    """Return a literal as a NumPy scalar. A float is rounded for a float type; other types take its
    bits."""
    if operand.width == 0:
        bits = np.array(operand.value % (1 << 64), U64).astype(f"u{dtype.itemsize}")
        return bits.view(dtype)[()] if dtype != BOOL else np.bool_(operand.value != 0)
    if operand.width == dtype.itemsize:
        return np.array(operand.value, f"u{operand.width}").view(dtype)[()]
    with np.errstate(over="ignore", invalid="ignore"):  # for signalling NaNs
        return np.array(operand.as_float(), "f8").astype(dtype)[()]


class Translator:
    """Emits Python for operands and results, for the emitters of instructions."""

    def __init__(
        self,
        module: Module,
        function: Function,
        recorded: bool = False,
        left_out: frozenset[int] = frozenset(),
    ) -> None:
        self.module, self.function, self.recorded = module, function, recorded
        self.left_out = left_out
        self.variables = {v.name: v for v in (*module.variables, *function.variables)}
        self.parameters = layout.parameter_offsets(function)
        self.shared = layout.shared_offsets(module, function)
        self.local, _ = layout.local_layout(function)
        self.registers: dict[str, Reg] = {}  # read before their block writes them
        self.votes: defaultdict[str, Counter[np.dtype]] = defaultdict(Counter)
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
            self.votes[register.name][dtype] += 1

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
            return self.literal(operand, dtype)
        if isinstance(operand, Special):
            return self.special(operand.name, dtype)
        if isinstance(operand, Negated):
            return f"~{self.value(operand.reg, dtype)}"
        if isinstance(operand, Symbol):
            declared = self.variables.get(operand.name)
            if operand.name in self.local and declared and declared.space == "param":
                self.unsupported("the address of a call argument")
            return self.address(operand, dtype)
        self.unsupported("a vector operand, expected a scalar")

    def literal(self, operand: Imm, dtype: np.dtype, stored: np.dtype | None = None) -> str:
        """Return the name of a literal's value if ptxas accepts the literal for this type.

        stored: the type of the same width in which to give its bits.
        """
        if dtype.kind == "f" and operand.width == 0:
            self.unsupported("an integer operand, expected a float")
        is_float = dtype.kind == "f" and dtype.itemsize > 2
        if operand.width not in (0, dtype.itemsize) and not is_float:
            self.unsupported(f"a float operand of {operand.width} bytes, expected {dtype.itemsize}")
        return self.constant(immediate(operand, dtype).view(stored or dtype))

    def special(self, name: str, dtype: np.dtype) -> str:
        """Return a special register; 32-bit registers widen."""
        if name not in KNOWN_SPECIAL:
            self.unsupported(f"special register {name}")
        read = f"m.special({name!r})"
        if name in CLOCKS:
            read = f"m.clock({name!r}, {self.index - self.first})"
        own: np.dtype = U64 if name in ("%clock64", "%globaltimer") else U32
        if name == "%is_explicit_cluster":
            own = BOOL
        if own == dtype:
            return read
        return f"{read}.astype({self.dtype(dtype)})"

    def address(self, symbol: Symbol, dtype: np.dtype) -> str:
        """Return a variable's address in its own state space, as an integer of type `dtype`."""
        if dtype.kind not in "ui":
            self.unsupported(f"the address of {symbol.name} is an integer")
        for offsets in (self.parameters, self.shared, self.local):
            if symbol.name in offsets:
                offset = offsets[symbol.name] + symbol.offset
                return self.constant(immediate(Imm(offset), dtype))
        if dtype.itemsize != 8:
            self.unsupported(f"the address of {symbol.name} has 64 bits")
        code = self.module.code_address(symbol.name)
        if code is not None:
            return self.constant(immediate(Imm(code + symbol.offset), dtype))
        variable = self.variables.get(symbol.name)
        if variable is None or variable.space not in ("global", "const"):
            self.unsupported(f"the address of {symbol.name}")
        where = f"m.variable({symbol.name!r}, {symbol.offset})"
        return where if dtype == U64 else f"{where}.view({self.dtype(dtype)})"

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
