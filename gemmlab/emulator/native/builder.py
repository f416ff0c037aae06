"""Text of LLVM IR: modules, functions, pointers, control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.ufuncs import FUNCTIONS, UFUNCS
from gemmlab.emulator.native.values import BOOL, U32, Operand, Pointer, Value, ir_type, literal


class Module:
    """IR text under construction."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.declared: set[str] = set()

    def function(self, name: str, result: str, parameters: dict[str, str]) -> Function:
        f = Function(self, name, result, parameters)
        self.functions.append(f)
        return f

    @property
    def text(self) -> str:
        return "\n".join([*sorted(self.declared), *(f.text for f in self.functions)]) + "\n"


class Variable:
    """A local variable that can be assigned repeatedly."""

    def __init__(self, f: Function, first: Value) -> None:
        self.f, self.dtype, self.vector = f, first.dtype, first.vector
        self.slot = f.reserve(first.type)
        self.value = first

    @property
    def value(self) -> Value:
        return self.f.load(self.slot, self.dtype, self.vector)

    @value.setter
    def value(self, new: Value) -> None:
        self.f.store(self.slot, new.astype(self.dtype).broadcast(self.vector))


class Function:
    """A function under construction: its instructions and its current label."""

    ufuncs: Mapping[str, Callable[..., Value]] = UFUNCS
    functions: Mapping[str, Callable[..., Any]] = FUNCTIONS

    def __init__(self, module: Module, name: str, result: str, parameters: dict[str, str]) -> None:
        self.module, self.name, self.result, self.parameters = module, name, result, parameters
        self.lines: list[str] = []
        self.reserved: list[str] = []
        self.count = 0
        self.multiples: dict[tuple[str, str, str], Value] = {}  # address root × constant
        self.attributes = "#0"
        self.here = "entry"
        self.ended = False  # whether the current block has its terminator

    @property
    def text(self) -> str:
        parameters = ", ".join(f"{type_} %{name}" for name, type_ in self.parameters.items())
        head = f"define {self.result} @{self.name}({parameters}) {self.attributes} {{\nentry:\n"
        return head + "\n".join([*self.reserved, *self.lines]) + "\n}\n"

    # Instructions

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def assign(self, text: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def declare(self, text: str) -> None:
        """Declare an external function."""
        self.module.declared.add(text)

    def pointer(self, name: str) -> Pointer:
        """Return a pointer parameter."""
        return Pointer(self, f"%{name}")

    def argument(self, name: str, dtype: np.dtype, vector: bool = False) -> Value:
        return Value(self, f"%{name}", dtype, vector)

    def constant(self, value: Any, vector: bool = False) -> Value:
        return Value(self, literal(value, vector), value.dtype, vector)

    def table(self, values: np.ndarray) -> Value:
        """Return a vector constant, one element per lane."""
        kind = ir_type(values.dtype)
        items = ", ".join(f"{kind} {literal(x)}" for x in values)
        return Value(self, f"<{items}>", values.dtype, True)

    def splat(self, x: Value) -> Value:
        if not x.name.startswith("%"):
            name = f"splat ({x.typed})"
            return Value(self, name, x.dtype, True, x.any_nan)
        kind = ir_type(x.dtype, True)
        first = self.assign(f"insertelement {kind} poison, {x.typed}, i64 0")
        mask = f"<{WARP} x i32> zeroinitializer"
        name = self.assign(f"shufflevector {kind} {first}, {kind} poison, {mask}")
        return Value(self, name, x.dtype, True, x.any_nan)

    def element(self, x: Value, lane: int) -> Value:
        if not x.vector:
            return x
        return x.make(f"extractelement {x.typed}, i64 {lane}", x.dtype, vector=False)

    def invoke(self, function: Pointer, result: np.dtype | None, *operands: Operand) -> Value:
        """Call a function by address. The result of a void call must not be used."""
        arguments = ", ".join(x.typed for x in operands)
        if result is None:
            self.do(f"call void {function.name}({arguments})")
            return self.constant(U32.type(0))
        name = self.assign(f"call {ir_type(result)} {function.name}({arguments})")
        return Value(self, name, result, False)

    def call(self, name: str, dtype: np.dtype, vector: bool, *operands: Value) -> Value:
        result = ir_type(dtype, vector)
        types = ", ".join(x.type for x in operands)
        self.declare(f"declare {result} @{name}({types})")
        arguments = ", ".join(x.typed for x in operands)
        text = self.assign(f"call {result} @{name}({arguments})")
        return Value(self, text, dtype, vector)

    # Bits of a warp's lanes

    def bits(self, condition: Value) -> Value:
        """Return a bit mask of the lanes for which a condition holds; lane 0 is bit 0. A uniform
        condition gives all ones or zero."""
        if not condition.vector:
            return condition.make(f"sext {condition.typed} to i32", U32)
        return condition.make(f"bitcast {condition.typed} to i32", U32, vector=False)

    def lanes(self, bits: Value) -> Value:
        """Return a mask as a vector condition. The inverse of `bits`."""
        return bits.make(f"bitcast {bits.typed} to {ir_type(BOOL, True)}", BOOL, vector=True)

    # Memory

    def load(self, where: Pointer, dtype: np.dtype, vector: bool = False, align: int = 0) -> Value:
        align = align or dtype.itemsize
        kind = ir_type(dtype, vector)
        name = self.assign(f"load {kind}, ptr {where.name}, align {align}")
        return Value(self, name, dtype, vector)

    def store(self, where: Pointer, value: Value, align: int = 0) -> None:
        align = align or value.dtype.itemsize
        self.do(f"store {value.typed}, ptr {where.name}, align {align}")

    def reserve(self, kind: str) -> Pointer:
        """Allocate stack memory."""
        self.count += 1
        name = f"%v{self.count}"
        self.reserved.append(f"  {name} = alloca {kind}, align 64")
        return Pointer(self, name)

    def load_pointer(self, where: Pointer) -> Pointer:
        return Pointer(self, self.assign(f"load ptr, ptr {where.name}, align 8"))

    def increment(self, where: Pointer, by: Value) -> None:
        self.store(where, self.load(where, by.dtype) + by)

    def clear(self, where: Pointer, nbytes: Value) -> None:
        """Fill with zeros."""
        self.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        zero = f"i8 0, {nbytes.typed}, i1 false"
        self.do(f"call void @llvm.memset.p0.i64(ptr align 4 {where.name}, {zero})")

    def is_null(self, where: Pointer) -> Value:
        return Value(self, self.assign(f"icmp eq ptr {where.name}, null"), BOOL, False)

    # Control flow

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}.{self.count}"

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.here, self.ended = label, False

    def end(self, text: str) -> None:
        """Append the block's terminator unless it already has one."""
        if not self.ended:
            self.do(text)
        self.ended = True

    def jump(self, label: str) -> None:
        self.end(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        self.end(f"br {condition.typed}, label %{yes}, label %{no}")

    def phi(self, sources: list[tuple[Value, str]]) -> Value:
        """Merge values from several predecessors."""
        first = sources[0][0]
        pairs = ", ".join(f"[ {x.name}, %{label} ]" for x, label in sources)
        return first.make(f"phi {first.type} {pairs}", first.dtype)

    def ret(self, value: Value | None = None) -> None:
        self.end("ret void" if value is None else f"ret {value.typed}")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Emit the body under an `if`."""
        inside, behind = self.label("then"), self.label("behind")
        self.branch(condition, inside, behind)
        self.place(inside)
        yield
        self.jump(behind)
        self.place(behind)

    @contextmanager
    def loop(self, condition: Callable[[], Value]) -> Iterator[None]:
        """Emit the body as a `while` loop."""
        head, body, behind = self.label("head"), self.label("body"), self.label("behind")
        self.jump(head)
        self.place(head)
        self.branch(condition(), body, behind)
        self.place(body)
        yield
        self.jump(head)
        self.place(behind)
