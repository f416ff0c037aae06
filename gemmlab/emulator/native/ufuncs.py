"""NumPy functions of values, in LLVM IR."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.layout import CORE, LOOPS
from gemmlab.emulator.native.values import BOOL, F64, Emitter, NotCovered, Value, apply, where

# (function, result type, *operands in NumPy's computation types) -> result
Emit = Callable[..., Value]


def _plain(integer: str, real: str = "", unsigned: str = "") -> Emit:
    def emit(f: Emitter, result: np.dtype, *operands: Value) -> Value:
        first, kind = operands[0], operands[0].dtype.kind
        word = real if kind == "f" else unsigned if kind in "ub" and unsigned else integer
        if not word:
            raise NotCovered(f"{integer or real} of {first.dtype}")
        names = ", ".join(x.name for x in operands)
        return first.make(f"{word} {first.type} {names}", result)

    return emit


def _comparison(signed: str, unsigned: str, real: str) -> Emit:
    def emit(f: Emitter, result: np.dtype, a: Value, b: Value) -> Value:
        kind = a.dtype.kind
        word = f"fcmp {real}" if kind == "f" else f"icmp {signed if kind == 'i' else unsigned}"
        return a.make(f"{word} {a.type} {a.name}, {b.name}", BOOL)

    return emit


def intrinsic(name: str, *operands: Value, result: np.dtype | None = None) -> Value:
    """Call llvm.<name> for the first operand's type."""
    first = operands[0]
    suffix = f"v{WARP}" if first.vector else ""
    letter = "f" if first.dtype.kind == "f" else "i"
    full = f"llvm.{name}.{suffix}{letter}{8 * first.dtype.itemsize}"
    return first.f.call(full, first.dtype, first.vector, *operands)


def _intrinsic(integer: str, real: str = "", unsigned: str = "") -> Emit:
    def emit(f: Emitter, result: np.dtype, *operands: Value) -> Value:
        kind = operands[0].dtype.kind
        word = real if kind == "f" else unsigned if kind in "ub" and unsigned else integer
        if not word:
            raise NotCovered(f"{integer or real} of {operands[0].dtype}")
        return intrinsic(word, *operands).astype(result)

    return emit


def _shift(word: str, arithmetic: str = "") -> Emit:
    """NumPy defines shifts by the width or more: the result is 0, or the sign for arithmetic
    shifts."""

    def emit(f: Emitter, result: np.dtype, a: Value, count: Value) -> Value:
        kind, bits = a.dtype.type, 8 * a.dtype.itemsize
        unsigned = count.view(f"u{a.dtype.itemsize}")
        if a.dtype.kind == "i" and arithmetic:
            count = apply(np.minimum, unsigned, unsigned.dtype.type(bits - 1))
            return a.make(f"{arithmetic} {a.type} {a.name}, {count.name}", result)
        moved = a.make(f"{word} {a.type} {a.name}, {count.name}", result)
        if not count.name.startswith(("%", "splat (i")) and int(count.name) < bits:
            return moved
        return where(unsigned < unsigned.dtype.type(bits), moved, kind(0))

    return emit


def _division(signed: str, unsigned: str) -> Emit:
    """Integer division. The caller has replaced zero divisors. Division by −1 could overflow, so it
    is handled separately."""

    def emit(f: Emitter, result: np.dtype, a: Value, b: Value) -> Value:
        if a.dtype.kind == "u":
            return a.make(f"{unsigned} {a.type} {a.name}, {b.name}", result)
        kind = a.dtype.type
        safe = where(b == kind(-1), kind(1), b)
        quotient = a.make(f"{signed} {a.type} {a.name}, {safe.name}", result)
        if signed == "srem":
            return where(b == kind(-1), kind(0), quotient)
        # NumPy's quotient rounds down.
        inexact = (quotient * safe != a) & ((a < kind(0)) != (safe < kind(0)))
        return where(b == kind(-1), kind(0) - a, quotient - inexact.astype(a.dtype))

    return emit


def _sign_bit(f: Emitter, result: np.dtype, x: Value) -> Value:
    signed = x.view(f"i{x.dtype.itemsize}")
    return signed < 0


def _absolute(f: Emitter, result: np.dtype, x: Value) -> Value:
    if x.dtype.kind == "f":
        return intrinsic("fabs", x)
    return where(x < x.dtype.type(0), x.dtype.type(0) - x, x) if x.dtype.kind == "i" else x


def _minimum(f: Emitter, result: np.dtype, a: Value, b: Value) -> Value:
    """For floats, a NaN operand is returned, as in NumPy."""
    if a.dtype.kind == "f":
        return where((a < b) | (a != a), a, b)
    return intrinsic("smin" if a.dtype.kind == "i" else "umin", a, b)


def _maximum(f: Emitter, result: np.dtype, a: Value, b: Value) -> Value:
    if a.dtype.kind == "f":
        return where((a > b) | (a != a), a, b)
    return intrinsic("smax" if a.dtype.kind == "i" else "umax", a, b)


def _negative(f: Emitter, result: np.dtype, x: Value) -> Value:
    if x.dtype.kind == "f":
        return x.make(f"fneg {x.typed}", result)
    return apply(np.subtract, x.dtype.type(0), x)


def _invert(f: Emitter, result: np.dtype, x: Value) -> Value:
    ones = f.constant(np.bool_(True) if x.dtype == BOOL else ~x.dtype.type(0), x.vector)
    return x.make(f"xor {x.type} {x.name}, {ones.name}", result)


def _next_after(f: Emitter, result: np.dtype, x: Value, toward: Value) -> Value:
    """Return the neighbour of x in the direction of an infinity."""
    bits = x.view(f"i{x.dtype.itemsize}")
    one, zero = bits.dtype.type(1), x.dtype.type(0)
    step = where((toward > x) == (bits >= bits.dtype.type(0)), one, bits.dtype.type(-1))
    smallest = apply(np.copysign, one.view(x.dtype), toward)
    moved = where(x == zero, smallest, (bits + step).view(x.dtype))
    return where((x != x) | (x == toward), x, moved)


# Functions whose last bits depend on NumPy's implementation. Native code calls NumPy's inner loops.


class _UFunc(ctypes.Structure):
    """The first fields of PyUFuncObject (NumPy C API, "Python types and C structures")."""

    _fields_ = [
        ("ob_refcnt", ctypes.c_ssize_t),
        ("ob_type", ctypes.c_void_p),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_byte)),
    ]


@cache
def loop_of(name: str) -> tuple[int, int]:
    """Return the addresses of NumPy's float64 inner loop of a function and of its data argument."""
    ufunc = getattr(np, name)
    found = _UFunc.from_address(id(ufunc))
    double = np.dtype(float).num
    if (found.nin, found.nout) != (1, 1) or (found.name or b"").decode() != name:
        raise NotCovered(f"np.{name}: this version of NumPy lays out its objects differently")
    for k in range(found.ntypes):
        if [found.types[2 * k], found.types[2 * k + 1]] == [double, double]:
            return found.functions[k] or 0, found.data[k] or 0
    raise NotCovered(f"np.{name} of float64")


def _loop(name: str) -> Emit:
    def emit(f: Emitter, result: np.dtype, x: Value) -> Value:
        loop_of(name)
        if result != F64:
            raise NotCovered(f"np.{name} of {result}")
        core = f.pointer("core").at(CORE["loops"] + 16 * LOOPS.index(name))
        source, target = f.reserve(x.type), f.reserve(x.type)
        both = f.reserve("[2 x ptr]")
        f.store(source, x, align=64)
        f.do(f"store ptr {source.name}, ptr {both.name}")
        f.do(f"store ptr {target.name}, ptr {both.at(8).name}")
        sizes = f.reserve("[3 x i64]")
        for k, size in enumerate((WARP if x.vector else 1, 8, 8)):
            f.store(sizes.at(8 * k), f.constant(np.int64(size)))
        function, data = f.load_pointer(core), f.load_pointer(core.at(8))
        f.invoke(function, None, both, sizes, sizes.at(8), data)
        return f.load(target, F64, x.vector, align=64 if x.vector else 8)

    return emit


UFUNCS: dict[str, Emit] = {name: _loop(name) for name in LOOPS}
UFUNCS |= {
    "add": _plain("add", "fadd"),
    "subtract": _plain("sub", "fsub"),
    "multiply": _plain("mul", "fmul"),
    "divide": _plain("", "fdiv"),
    "reciprocal": lambda f, result, x: f.constant(result.type(1), x.vector) / x,
    "bitwise_and": _plain("and"),
    "bitwise_or": _plain("or"),
    "bitwise_xor": _plain("xor"),
    "invert": _invert,
    "negative": _negative,
    "absolute": _absolute,
    "minimum": _minimum,
    "maximum": _maximum,
    "left_shift": _shift("shl"),
    "right_shift": _shift("lshr", "ashr"),
    "floor_divide": _division("sdiv", "udiv"),
    "remainder": _plain("", unsigned="urem"),
    "fmod": _division("srem", "urem"),
    "equal": _comparison("eq", "eq", "oeq"),
    "not_equal": _comparison("ne", "ne", "une"),
    "less": _comparison("slt", "ult", "olt"),
    "less_equal": _comparison("sle", "ule", "ole"),
    "greater": _comparison("sgt", "ugt", "ogt"),
    "greater_equal": _comparison("sge", "uge", "oge"),
    "isnan": lambda f, result, x: x != x,
    "isinf": lambda f, result, x: np.abs(x) == x.dtype.type(np.inf),
    "isfinite": lambda f, result, x: np.abs(x) < x.dtype.type(np.inf),
    "signbit": _sign_bit,
    "copysign": lambda f, result, x, sign: intrinsic("copysign", x, sign),
    "sign": lambda f, result, x: where(x > 0, x.dtype.type(1), where(x < 0, x.dtype.type(-1), x)),
    "nextafter": _next_after,
    "sqrt": _intrinsic("", "sqrt"),
    "rint": _intrinsic("", "rint"),
    "trunc": _intrinsic("", "trunc"),
    "floor": _intrinsic("", "floor"),
    "ceil": _intrinsic("", "ceil"),
    "bitwise_count": _intrinsic("ctpop"),
}


def _clip(f: Emitter, x: Value, low: Any, high: Any) -> Value:
    return apply(np.minimum, apply(np.maximum, x, low), high)


def _zeros_like(f: Emitter, x: Value) -> Value:
    return f.constant(x.dtype.type(0), x.vector)


def _full_like(f: Emitter, x: Value, value: Any) -> Value:
    return f.constant(x.dtype.type(value), x.vector)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": lambda f, *operands: where(*operands),
    "clip": _clip,
    "zeros_like": _zeros_like,
    "full_like": _full_like,
}
