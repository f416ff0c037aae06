"""Replacements for functions of arithmetic/numerics.py that LLVM has instructions or intrinsics
for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic import numerics
from gemmlab.emulator.native.ufuncs import intrinsic
from gemmlab.emulator.native.values import Value, where

Operation = Callable[..., Any]


def _native(emit: Operation) -> Operation:
    """Apply `emit` to values of equal shape. If all operands are constants, call the NumPy
    function."""

    def operation(*operands: Any) -> Any:
        some = next((x for x in operands if isinstance(x, Value)), None)
        if some is None:
            return getattr(numerics, emit.__name__)(*operands)
        values = [x if isinstance(x, Value) else some.f.constant(x) for x in operands]
        vector = any(x.vector for x in values)
        return emit(*(x.broadcast(vector) for x in values))

    return operation


def _arithmetic(name: str, word: str) -> Operation:
    """A float32 instruction. Its NaNs become the canonical NaN when their bits are read."""

    def emit(first: Value, *others: Value) -> Value:
        names = ", ".join(x.name for x in (first, *others))
        return first.make(f"{word} {first.type} {names}", first.dtype).with_any_nan()

    emit.__name__ = name
    return _native(emit)


def fma32(a: Value, b: Value, c: Value) -> Value:
    return intrinsic("fma", a, b, c).with_any_nan()


def fma64(a: Value, b: Value, c: Value) -> Value:
    return intrinsic("fma", a.canonical(), b, c)


def canonical32(x: Value) -> Value:
    return x.with_any_nan()


def sqrt32(x: Value) -> Value:
    return intrinsic("sqrt", x).with_any_nan()


def reciprocal(x: Value) -> Value:
    one = x.f.constant(np.float32(1), x.vector)
    return x.make(f"fdiv {x.type} {one.name}, {x.name}", x.dtype).with_any_nan()


def count_leading_zeros(x: Value) -> Value:
    return intrinsic("ctlz", x, x.f.constant(np.bool_(False))).astype(np.uint32)


def reverse_bits(x: Value) -> Value:
    return intrinsic("bitreverse", x)


def divide(a: Value, b: Value) -> Value:
    zero = b == b.dtype.type(0)
    return where(zero, ~a.dtype.type(0), _quotient("div", a, b))


def remainder(a: Value, b: Value) -> Value:
    return where(b == b.dtype.type(0), a, _quotient("rem", a, b))


def _quotient(word: str, a: Value, b: Value) -> Value:
    """Quotient or remainder, rounded toward zero. Operands for which LLVM's result is undefined are
    replaced."""
    kind, signed = a.dtype.type, a.dtype.kind == "i"
    safe = where(b == kind(0), kind(1), b)
    if not signed:
        return a.make(f"u{word} {a.type} {a.name}, {safe.name}", a.dtype)
    minus = safe == kind(-1)
    safe = where(minus, kind(1), safe)
    found = a.make(f"s{word} {a.type} {a.name}, {safe.name}", a.dtype)
    return where(minus, kind(0) - a if word == "div" else kind(0), found)


class Numerics:
    """Replaces the numerics module in traced code."""

    def __getattr__(self, name: str) -> Any:
        return getattr(numerics, name)


_EMITTERS: list[Operation] = [fma32, fma64, canonical32, sqrt32, reciprocal]
_EMITTERS += [count_leading_zeros, reverse_bits, divide, remainder]
for _emit in _EMITTERS:
    setattr(Numerics, _emit.__name__, staticmethod(_native(_emit)))
for _name, _word in {"add32": "fadd", "sub32": "fsub", "mul32": "fmul", "div32": "fdiv"}.items():
    setattr(Numerics, _name, staticmethod(_arithmetic(_name, _word)))
