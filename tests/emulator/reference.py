"""Reference semantics of instructions in plain Python integers and rationals."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

LANES = 192
Reference = Callable[..., Any]
RNG = np.random.default_rng(2)

# Rationals as references

FORMATS = {"f16": (11, -24, 65504.0), "f32": (24, -149, 3.4028234663852886e38)}
FORMATS["f64"] = (53, -1074, 1.7976931348623157e308)


def rounded(value: Fraction | float, type_: str, mode: str = "rn", zero: float = 0.0) -> float:
    """Round an exact value to a float type. `zero`: the sign of the result if the value is 0."""
    if isinstance(value, float):
        if not math.isfinite(value) or value == 0:
            return value
        value = Fraction(value)
    if value == 0:
        return zero
    digits, lowest, largest = FORMATS[type_]
    size, sign = abs(value), 1.0 if value > 0 else -1.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** max(exponent - digits + 1, lowest)
    whole = {
        "rn": lambda: round(value / step),
        "rz": lambda: math.trunc(value / step),
        "rm": lambda: math.floor(value / step),
        "rp": lambda: math.ceil(value / step),
    }[mode]()
    result = whole * step
    if abs(result) > Fraction(largest):
        outward = mode == "rn" or mode == ("rp" if value > 0 else "rm")
        return sign * (math.inf if outward else largest)
    return sign * float(abs(result))


def arithmetic(
    type_: str, exact: Reference, terms: Reference, mode: str = "rn", plain: Reference | None = None
) -> Reference:
    """Return a function that applies `exact` to rationals if all operands are finite, otherwise
    `plain` to Python floats."""

    def reference(*operands: float) -> float:
        if not all(map(math.isfinite, operands)) or (plain and 0 in operands):
            return plain(*operands) if plain else sum(terms(*operands))
        value = exact(*map(Fraction, operands))
        if value:
            return rounded(value, type_, mode)
        signs = {math.copysign(1, x) for x in terms(*operands)}
        return -0.0 if signs == {-1.0} or (mode == "rm" and -1.0 in signs) else 0.0

    return reference


def float_div(a: float, b: float) -> float:
    if b == 0:
        nan = math.isnan(a) or a == 0
        return (
            math.nan if nan else math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))
        )
    return a / b


def add(type_: str, mode: str = "rn") -> Reference:
    return arithmetic(type_, lambda a, b: a + b, lambda a, b: (a, b), mode)


def sub(type_: str, mode: str = "rn") -> Reference:
    return lambda a, b: add(type_, mode)(a, -b)


def mul(type_: str, mode: str = "rn") -> Reference:
    return arithmetic(type_, lambda a, b: a * b, lambda a, b: (a * b,), mode)


def div(type_: str, mode: str = "rn") -> Reference:
    return arithmetic(type_, lambda a, b: a / b, lambda a, b: (a / b,), mode, float_div)


def reciprocal(type_: str, mode: str = "rn") -> Reference:
    return lambda a: div(type_, mode)(1.0, a)


def fma(type_: str, mode: str = "rn") -> Reference:
    product = arithmetic(type_, lambda a, b, c: a * b + c, lambda a, b, c: (a * b, c), mode)

    def reference(a: float, b: float, c: float) -> float:
        # The exact product of finite factors is finite, even if the float product overflows.
        finite = math.isfinite(a) and math.isfinite(b)
        return c if finite and not math.isfinite(c) else product(a, b, c)

    return reference


def smaller(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min(a, b, key=lambda x: (x, math.copysign(1, x)))


def larger(a: float, b: float) -> float:
    return -smaller(-a, -b)


def nan_wins(function: Reference) -> Reference:
    return lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else function(a, b)


def of_sizes(function: Reference) -> Reference:
    def reference(a: float, b: float) -> float:
        sign = math.copysign(1, a) * math.copysign(1, b)
        return sign * function(abs(a), abs(b))

    return reference


def values(type_: str) -> np.ndarray:
    """Return edge values and random ones, shuffled."""
    if type_ == "pred":
        return RNG.integers(0, 2, LANES)
    if type_[0] == "f":
        bits = int(type_[1:])
        kind = np.dtype(f"f{bits // 8}")
        info = np.finfo(kind)
        edge = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            -2.5,
            info.max,
            info.min,
            info.tiny,
            -info.tiny,
        ]
        edge += [info.smallest_subnormal, np.inf, -np.inf, np.nan, 3 * info.smallest_subnormal]
        edge += [1 + info.eps, 1 - info.epsneg, -info.smallest_subnormal, 2.0**15]
        edge += [2.0**31, 2.0**63] if bits > 16 else []
        patterns = RNG.integers(0, 1 << bits, LANES, np.uint64).astype(f"u{bits // 8}").view(kind)
        normal = RNG.standard_normal(LANES).astype(kind)
        pool = np.concatenate([np.array(edge, kind), patterns[:40], normal[:60]])
        return RNG.choice(pool, LANES)
    bits = int(type_[1:])
    limits = np.iinfo(f"{'i' if type_[0] == 's' else 'u'}{bits // 8}")
    edge = [
        limits.min,
        limits.max,
        0,
        1,
        2,
        31,
        32,
        33,
        64,
        1 << (bits - 2),
        limits.max - 1,
        limits.min + 1,
    ]
    drawn = RNG.integers(limits.min, limits.max, LANES, limits.dtype, endpoint=True)
    small = RNG.integers(0, 70, LANES).astype(limits.dtype)
    return RNG.choice(np.concatenate([np.array(edge, limits.dtype), drawn[:30], small[:30]]), LANES)


def bits_of(value: Any, type_: str) -> int:
    """Return the contents of a register of the type; all NaNs compare equal."""
    if type_ == "pred":
        return int(bool(value))
    size = int(type_[1:])
    if type_[0] == "f":
        if math.isnan(value):
            return -1
        return int(np.array(value, f"f{size // 8}").view(f"u{size // 8}"))
    return int(value) % (1 << size)


def result_bits(array: np.ndarray, type_: str) -> list[int]:
    if type_ == "f16":
        array = array.view("f2")
    return [bits_of(x, type_) for x in array.tolist()]


def check(compute, opcode: str, signature: str, reference: Reference, operands: str = "") -> None:
    """Run `opcode %x, %a, %b, …` on random lanes, and on one value that all lanes share."""
    result, *types = signature.split()
    inputs = [(t, values(t)) for t in types]
    if "selp" in opcode:
        operands = "%a, %b, %p1"
    names = operands or ", ".join(f"%{n}" for n in "abcde"[: len(types)])
    body = f"{opcode} %x, {names};"
    [got] = compute(body, inputs, [result])
    rows = list(zip(*(x.tolist() for _, x in inputs), strict=True))
    wanted = [reference(*row) for row in rows]
    for row, actual, value in zip(rows, result_bits(got, result), wanted, strict=True):
        if value is not None:
            assert actual == bits_of(value, result), f"{opcode} of {row}"
    for lane in range(0, 12):
        single = [(t, x[lane : lane + 1]) for t, x in inputs]
        [got] = compute(body, single, [result], uniform=True)
        if wanted[lane] is not None:
            assert set(result_bits(got, result)) == {bits_of(wanted[lane], result)}, rows[lane]
