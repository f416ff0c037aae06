"""Infrastructure for runtime routines, which are emitted from Python once and shared by all
kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.builder import Function, Module
from gemmlab.emulator.native.layout import CORE
from gemmlab.emulator.native.values import BOOL, I32, I64, U32, Pointer, Value, apply, ir_type

Parameter = tuple[np.dtype, bool] | None  # type and whether it is a vector; None for a pointer
PTR = None


@dataclass(frozen=True)
class Routine:
    """A runtime function. It takes the core and then `parameters`."""

    result: np.dtype | None
    parameters: dict[str, Parameter]
    body: Callable[..., None]

    def define(self, module: Module, name: str) -> None:
        types = {p: "ptr" if t is None else ir_type(*t) for p, t in self.parameters.items()}
        result = "void" if self.result is None else ir_type(self.result)
        f = module.function(name, result, {"core": "ptr", **types})
        given = [
            f.pointer(p) if t is None else f.argument(p, *t) for p, t in self.parameters.items()
        ]
        self.body(f, f.pointer("core"), *given)


ROUTINES: dict[str, Routine] = {}


def routine(
    result: np.dtype | None = None, **parameters: np.dtype | Parameter
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function that emits the body of the runtime routine with its name."""

    def register(body: Callable[..., None]) -> Callable[..., None]:
        types = {p: (t, False) if isinstance(t, np.dtype) else t for p, t in parameters.items()}
        ROUTINES[body.__name__] = Routine(result, types, body)
        return body

    return register


def call(f: Function, core: Pointer, name: str, *operands: Pointer | Value) -> Value:
    """Emit a call of another routine."""
    return f.invoke(Pointer(f, f"@{name}"), ROUTINES[name].result, core, *operands)


def table_index(name: str) -> int:
    """Return a routine's index in the table of their addresses, which is sorted by name."""
    return sorted(ROUTINES).index(name)


# Helpers


def number(f: Function, value: int, dtype: np.dtype = I64) -> Value:
    return f.constant(dtype.type(value))


def lane_numbers(f: Function) -> Value:
    items = ", ".join(f"i32 {lane}" for lane in range(WARP))
    return Value(f, f"<{items}>", I32, True)


def record_fault(f: Function, core: Pointer, kind: int, instruction: Value, lanes: Value) -> None:
    """Record a fault in the core. The caller has stored the lanes' addresses or operands in
    `words`."""
    f.store(core.at(CORE["fault"]), number(f, kind))
    f.store(core.at(CORE["fault_instruction"]), instruction)
    f.store(core.at(CORE["fault_lanes"]), lanes.astype(I64))


def lane_offset(lane: Value, dtype: np.dtype) -> Value:
    """Return the byte offset of a lane's element in a vector."""
    return lane.astype(I64) * np.int64(dtype.itemsize)


def first_lane(bits: Value) -> Value:
    """Return the index of the lowest lane of a nonempty mask."""
    f = bits.f
    f.declare("declare i32 @llvm.cttz.i32(i32, i1)")
    name = f.assign(f"call i32 @llvm.cttz.i32({bits.typed}, i1 true)")
    return Value(f, name, U32, False)


def last_lane(bits: Value) -> Value:
    """Return the index of the highest lane of a nonempty mask."""
    f = bits.f
    f.declare("declare i32 @llvm.ctlz.i32(i32, i1)")
    zeros = Value(f, f.assign(f"call i32 @llvm.ctlz.i32({bits.typed}, i1 true)"), U32, False)
    return np.uint32(WARP - 1) - zeros


def count_lanes(bits: Value) -> Value:
    return apply(np.bitwise_count, bits).astype(I64)


def reduced(word: str, x: Value) -> Value:
    """Reduce a vector over its lanes: add, and, or, xor, smin, umax, …"""
    kind = f"v{WARP}i{8 * x.dtype.itemsize}"
    return x.f.call(f"llvm.vector.reduce.{word}.{kind}", x.dtype, False, x)


def shuffled(x: Value, sources: Any) -> Value:
    """Permute lanes by constant source indices."""
    mask = ", ".join(f"i32 {lane}" for lane in sources)
    text = f"shufflevector {x.typed}, {x.type} poison, <{WARP} x i32> <{mask}>"
    return x.make(text, x.dtype)


def addresses(base: Pointer, offsets: Value) -> str:
    """Return one pointer per lane."""
    return base.f.assign(f"getelementptr i8, ptr {base.name}, {offsets.typed}")


def gather(base: Pointer, offsets: Value, dtype: np.dtype, lanes: Value | None = None) -> Value:
    """Load one element per lane (of `lanes`), each at its own byte offset."""
    f, pointers = base.f, addresses(base, offsets)
    kind, condition = ir_type(dtype, True), ir_type(BOOL, True)
    letter = "f" if dtype.kind == "f" else "i"
    name = f"llvm.masked.gather.v{WARP}{letter}{8 * dtype.itemsize}.v{WARP}p0"
    f.declare(f"declare {kind} @{name}(<{WARP} x ptr>, {condition}, {kind})")
    mask = "splat (i1 true)" if lanes is None else lanes.name
    text = f.assign(
        f"call {kind} @{name}(<{WARP} x ptr> align {dtype.itemsize} {pointers}, "
        f"{condition} {mask}, {kind} poison)"
    )
    return Value(f, text, dtype, True)


def scatter(base: Pointer, offsets: Value, x: Value, lanes: Value | None = None) -> None:
    """Store one element per lane (of `lanes`). At equal offsets the highest lane wins."""
    f, pointers = base.f, addresses(base, offsets)
    condition = ir_type(BOOL, True)
    letter = "f" if x.dtype.kind == "f" else "i"
    name = f"llvm.masked.scatter.v{WARP}{letter}{8 * x.dtype.itemsize}.v{WARP}p0"
    f.declare(f"declare void @{name}({x.type}, <{WARP} x ptr>, {condition})")
    mask = "splat (i1 true)" if lanes is None else lanes.name
    f.do(
        f"call void @{name}({x.typed}, <{WARP} x ptr> align {x.dtype.itemsize} {pointers}, "
        f"{condition} {mask})"
    )
