"""Aligned, truncated sums against the same rule on rationals, one element at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest

from gemmlab.emulator.arithmetic import tensor_core
from gemmlab.emulator.arithmetic.tensor_core import (
    BF16,
    E8M13,
    F16,
    F32,
    TF32,
    Format,
    accumulate,
    dot,
)

RNG = np.random.default_rng(5)


def exponent(x: Fraction, lowest: int) -> int:
    size = abs(x)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    return max(e - (Fraction(2) ** e > size), lowest)


def one_step(
    a: Iterable[float], b: Iterable[float], c: float, operands: Format, result: Format, bits: int
) -> float:
    terms = [(Fraction(c), exponent(Fraction(c), result.lowest))] if c else []
    for x, y in zip(map(Fraction, a), map(Fraction, b), strict=True):
        if x and y:
            terms.append((x * y, exponent(x, operands.lowest) + exponent(y, operands.lowest)))
    unit = Fraction(2) ** (max([e for _, e in terms], default=0) - bits)
    total = sum(math.trunc(value / unit) for value, _ in terms) * unit
    if total == 0:
        return 0.0
    step = Fraction(2) ** (exponent(total, result.lowest) + 1 - result.digits)
    rounded = (math.trunc(total / step) if result.truncates else round(total / step)) * step
    if abs(rounded) >= 2 ** (2 - result.lowest):
        return math.copysign(math.inf, rounded)
    return float(rounded)


def numbers(format: Format, shape: tuple[int, ...]) -> np.ndarray:
    """Return arbitrary significands, exponents near and far from each other, zeros, subnormals."""
    digits = RNG.integers(-(1 << format.digits) + 1, 1 << format.digits, shape).astype(float)
    near, far = RNG.integers(-6, 1, shape), RNG.integers(format.lowest, -format.lowest, shape)
    exponents = np.where(RNG.random(shape) < 0.8, near, far) + 1 - format.digits
    exponents = np.maximum(exponents, format.lowest + 1 - format.digits)
    return np.ldexp(digits, exponents) * (RNG.random(shape) < 0.9)


@pytest.mark.parametrize("bits", [24, 25])
@pytest.mark.parametrize("result", [F16, F32, E8M13])
@pytest.mark.parametrize("operands", [F16, BF16, TF32])
def test_a_step_is_the_rule(operands, result, bits):
    a, b = numbers(operands, (8, 200)), numbers(operands, (8, 200))
    c = tensor_core.round_to(numbers(result, (200,)), result)
    with np.errstate(over="ignore"):
        got = accumulate(a, b, c, operands, result, bits)
    wanted = [
        one_step(x, y, z, operands, result, bits)
        for x, y, z in zip(a.T.tolist(), b.T.tolist(), c.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(got, wanted)


def test_steps_follow_each_other_and_matrices_broadcast():
    a, b = numbers(F16, (5, 16)), numbers(F16, (16, 7))
    c = numbers(F32, (5, 7))
    got = dot(a.T[:, :, None], b[:, None, :], c, F16, step=8)
    for i, j in np.ndindex(5, 7):
        middle = one_step(a[i, :8], b[:8, j], c.item(i, j), F16, F32, 25)
        assert got[i, j] == one_step(a[i, 8:], b[8:, j], middle, F16, F32, 25)


@pytest.mark.parametrize(
    ("a", "b", "c", "wanted"),
    [
        ([np.inf, 1], [1, 1], 0, np.inf),
        ([np.inf, 1], [0, 1], 0, np.nan),
        ([np.inf, np.inf], [1, -1], 0, np.nan),
        ([1, 1], [1, 1], -np.inf, -np.inf),
        ([1, 1], [1, 1], np.nan, np.nan),
        # Truncated, not rounded, 25 bits below the leading bit of the largest term, for both signs.
        ([1, 2.0**-13], [1, 2.0**-13], -1, 0),
        ([1, 2.0**-12], [1, 2.0**-13], -1, 2.0**-25),
        ([1, -(2.0**-13)], [1, 2.0**-13], -1, 0),
        # Zeros are positive, and do not count when exponents are compared.
        ([-0.0, 0.0], [1, -1], -0.0, 0.0),
        ([2.0**-24, 0.0], [2.0**-24, 65504], 0.0, 2.0**-48),
    ],
)
def test_special_and_cut_off_terms(a, b, c, wanted):
    with np.errstate(invalid="ignore"):
        got = accumulate(np.array(a, float), np.array(b, float), np.array(c, float), F16)
    np.testing.assert_array_equal(got, wanted)
    assert wanted or not np.signbit(got)
