"""float64 operations where NumPy differs from hardware: NaN propagation and directed rounding.

A NaN result is the quieted NaN of an operand. If two operands are NaNs, the choice matches an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.numerics import F32, F64, Value, canonical32, fma64, to_float

QUIET = np.uint64(1 << 51)


def propagate(result: Value, *operands: Value) -> Value:
    """Replace NaN results by the quieted NaN of the first operand that is NaN."""
    nan = np.isnan(result)
    if not nan.any():
        return result
    bits = result.view(np.uint64)
    for x in reversed(operands):
        bits = np.where(np.isnan(x), x.view(np.uint64) | QUIET, bits)
    return np.where(nan, bits.view(F64), result)


def quiet(function: Callable[[Value], Value], x: Value) -> Value:
    """Apply neg or abs, which do not change the sign of a NaN."""
    return np.where(np.isnan(x), (x.view(np.uint64) | QUIET).view(F64), function(x))


def fused(a: Value, b: Value, c: Value) -> Value:
    return propagate(fma64(a, b, c), b, c, a)


def upper_half(x: Value) -> Value:
    """Round to the upper 32 bits: `.approx.ftz.f64` functions return zeros in the lower 32."""
    bits = x.view(np.uint64) + np.uint64(1 << 31) & np.uint64(0xFFFFFFFF << 32)
    return np.where(np.isfinite(x), bits.view(F64), x)


# Directed rounding


def _sign(x: Fraction) -> int:
    return (x > 0) - (x < 0)


NEAREST: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: propagate(a + b, b, a),
    "sub": lambda a, b: propagate(a - b, b, a),
    "mul": lambda a, b: propagate(a * b, b, a),
    "fma": fused,
    "div": lambda a, b: propagate(a / b, a, b),
    "rcp": lambda a: propagate(1.0 / a, a),
    "sqrt": lambda a: propagate(np.sqrt(a), a),
}
# operation -> function of a finite result and the operands, which returns sign(exact − result)
ERROR: dict[str, Callable[..., int]] = {
    "add": lambda r, a, b: _sign(a + b - r),
    "sub": lambda r, a, b: _sign(a - b - r),
    "mul": lambda r, a, b: _sign(a * b - r),
    "fma": lambda r, a, b, c: _sign(a * b + c - r),
    "div": lambda r, a, b: _sign(a / b - r),
    "rcp": lambda r, a: _sign(1 / a - r),
    "sqrt": lambda r, a: _sign(a - r * r),
}


def directed64(operation: str, mode: str, *operands: Value) -> Value:
    """A float64 operation with rounding mode "rz", "rm" or "rp".

    Rational arithmetic determines whether the nearest result is on the wrong side of the exact one.
    """
    nearest = np.asarray(NEAREST[operation](*operands))

    def error(r: float, *values: float) -> int:
        if not all(map(np.isfinite, values)) or r != r:
            return 0
        if np.isinf(r):  # an overflow, or an exact division by zero
            by_zero = operation in ("div", "rcp") and values[-1] == 0
            return 0 if by_zero else -int(np.sign(r))
        return ERROR[operation](*map(Fraction, (r, *values)))

    sign = np.asarray(np.frompyfunc(error, 1 + len(operands), 1)(nearest, *operands)).astype(int)
    wrong = {"rz": sign * np.sign(nearest) < 0, "rm": sign < 0, "rp": sign > 0}[mode]
    result = np.where(wrong, np.nextafter(nearest, np.where(sign > 0, np.inf, -np.inf)), nearest)
    if mode == "rm" and operation in ("add", "sub", "fma"):
        zero = (result == 0) & (sign == 0)
        result = np.where(zero & _negative(operation, *operands), -0.0, result)
    return result


def _negative(operation: str, *operands: Value) -> Value:
    """Whether a term of the sum is negative: if terms cancel, rounding downward then gives −0."""
    *factors, last = operands
    last = -last if operation == "sub" else last
    return np.signbit(np.prod(np.broadcast_arrays(*factors), axis=0)) | np.signbit(last)


WIDE: dict[str, Callable[..., Any]] = {
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
}


def directed32(operation: str, mode: str, *operands: Value) -> Value:
    """A float32 quotient or square root with directed rounding. Computing it in float64 first is
    safe: an inexact result never rounds to a float32 number in float64."""
    exact = WIDE[operation](*(x.astype(F64) for x in operands))
    return canonical32(to_float(exact, F32, mode))
