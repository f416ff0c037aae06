"""Arithmetic on f16 and bf16, scalar or packed in pairs.

Results are exact and rounded once: errors of float64 sums and products are too small to affect a
rounding to 11 or 8 digits, and fma rounds to odd in float64 first. ex2 and tanh truncate a float32
result, as on an H200. Of all 65,536 arguments, the last bit differs from an H200 for 1 (ex2.f16),
199 (ex2.bf16), 7,610 (tanh.f16) and 948 (tanh.bf16).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from gemmlab.emulator.arithmetic import numerics as n
from gemmlab.emulator.arithmetic.formats import FORMATS, merge, narrow, split, widen
from gemmlab.emulator.arithmetic.numerics import Value

ONE = {"f16": 0x3C00, "bf16": 0x3F80}


OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": n.fma_to_odd,
    "neg": np.negative,
    "abs": np.abs,
}
EXTREMES: dict[str, Callable[..., Value]] = {"min": n.minimum, "max": n.maximum}
APPROXIMATE = {"ex2": np.exp2, "tanh": np.tanh}
# The NaN that tensor copies write outside a tensor. With `.oob`, products with it are 0.
OUT_OF_BOUNDS = np.uint16(0x7FF7)


def compute(operation: str, name: str, words: Collection[str], *operands: Value) -> Value:
    """Execute one instruction on registers. name: "f16", "bf16", "f16x2" or "bf16x2". words: the
    modifiers."""
    single = name.removesuffix("x2")
    if name != single:
        return merge(compute(operation, single, words, *map(split, operands)))
    values = [widen(x, name).astype(np.float64) for x in operands]
    if "ftz" in words:
        values = [flush(x, name) for x in values]
    if operation in APPROXIMATE:
        bits = _cut_off(APPROXIMATE[operation](*values), name)
    else:
        bits = narrow(_function(operation, words)(*values), name, words=words)
    if "ftz" in words:
        bits = narrow(flush(widen(bits, name), name), name)
    if "oob" in words:
        outside = (operands[0] == OUT_OF_BOUNDS) | (operands[1] == OUT_OF_BOUNDS)
        bits = np.where(outside, np.uint16(0), bits)
    return bits


def _function(operation: str, words: Collection[str]) -> Callable[..., Value]:
    if operation not in EXTREMES:
        return OPERATIONS[operation]
    function = EXTREMES[operation]
    if "xorsign" in words:
        function = partial(n.of_sizes, function)
    return partial(n.either_nan, function) if "NaN" in words else function


def _cut_off(x: Value, name: str) -> np.ndarray:
    short = x.astype(np.float32)
    too_large = np.abs(short) >= 2.0 ** (2 - FORMATS[name].lowest)
    return narrow(np.where(too_large, np.copysign(np.inf, short), short), name, "rz")


def flush(x: Value, name: str) -> Value:
    """`.ftz`: flush numbers that are subnormal in the format to zero, keeping the sign."""
    return np.where(np.abs(x) < 2.0 ** FORMATS[name].lowest, np.copysign(x.dtype.type(0), x), x)


def comparable(bits: Value, name: str, ftz: bool) -> Value:
    """The values to compare; packed pairs add a new last axis."""
    single = name.removesuffix("x2")
    x = widen(bits if name == single else split(bits), single)
    return flush(x, single) if ftz else x


def choose(condition: Value, name: str) -> np.ndarray:
    """1.0 where the condition is true, else 0, as bit patterns of format `name`."""
    single = name.removesuffix("x2")
    one = np.where(condition, np.uint16(ONE[single]), np.uint16(0))
    return one if name == single else merge(one)
