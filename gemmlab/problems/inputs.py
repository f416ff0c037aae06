"""Input families: the distributions from which a problem's inputs are drawn.

A family draws one float32 operand of shape (rows, depth); the problem sums along `depth`.
`operand` is 0 for the left factor and 1 for the transposed right factor. The numbers depend only on
(seed, shape, family, operand), so the inputs of any recorded run can be regenerated.

Sums of up to 2**60 terms or products from any family stay within float32's range. The order of
summation therefore never decides whether a result is NaN or infinite.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from gemmlab.errors import InputError, UnknownNameError

# In quotes, because NumPy imports np.random when it is first used, which takes milliseconds.
Draw: TypeAlias = "Callable[[np.random.Generator, tuple[int, int], int], np.ndarray]"


def normal(rng: np.random.Generator, size: tuple[int, int], _operand: int) -> np.ndarray:
    """N(0, 1)."""
    return rng.standard_normal(size, dtype=np.float32)


def uniform(rng: np.random.Generator, size: tuple[int, int], _operand: int) -> np.ndarray:
    """U(0, 1): every term is positive, so partial sums grow."""
    return rng.random(size, dtype=np.float32)


def symmetric(rng: np.random.Generator, size: tuple[int, int], _operand: int) -> np.ndarray:
    """U(-1, 1)."""
    return np.asarray(2 * rng.random(size, dtype=np.float32) - 1)


def wide(rng: np.random.Generator, size: tuple[int, int], _operand: int) -> np.ndarray:
    """Exponents from -30 to 29, far beyond the range of float16."""
    mantissa = np.float32(1) + rng.random(size, dtype=np.float32)
    sign = rng.choice(np.array([-1, 1], np.float32), size)
    return np.asarray(np.ldexp(mantissa * sign, rng.integers(-30, 30, size, dtype=np.int32)))


def cancellation(rng: np.random.Generator, size: tuple[int, int], operand: int) -> np.ndarray:
    """Adjacent terms nearly cancel: the result is small compared with |A||B|."""
    rows, depth = size
    half = rng.standard_normal((rows, (depth + 1) // 2), dtype=np.float32)
    pairs = np.repeat(half, 2, axis=1)[:, :depth]
    if operand == 1:
        nudge = np.float32(1) + np.ldexp(rng.standard_normal(half.shape, dtype=np.float32), -12)
        pairs[:, 1::2] *= -nudge[:, : depth // 2]
    return pairs


def integers(rng: np.random.Generator, size: tuple[int, int], _operand: int) -> np.ndarray:
    """Integers from -8 to 8: products sum exactly in any order up to a depth of 2**18."""
    return rng.integers(-8, 9, size).astype(np.float32)


def zeros(_rng: np.random.Generator, size: tuple[int, int], _operand: int) -> np.ndarray:
    """All zero."""
    return np.zeros(size, np.float32)


def one_hot(rng: np.random.Generator, size: tuple[int, int], operand: int) -> np.ndarray:
    """Each row of the left factor selects one row of the right one: the result is an exact copy."""
    if operand == 1:
        return normal(rng, size, operand)
    rows, depth = size
    picked = np.zeros(size, np.float32)
    picked[np.arange(rows), rng.integers(0, depth, rows)] = 1
    return picked


def special(rng: np.random.Generator, size: tuple[int, int], operand: int) -> np.ndarray:
    """N(0, 1) with 10 % -0, 10 % subnormals, and +inf, -inf and NaN, one each in up to 3 rows."""
    rows, depth = size
    values = normal(rng, size, operand)
    kind = rng.integers(0, 10, size)
    subnormal = rng.integers(1, 1 << 23, size, dtype=np.uint32).view(np.float32)
    values[kind == 0] = -0.0
    values[kind == 1] = subnormal[kind == 1]
    hit = rng.choice(rows, min(rows, 3), replace=False)
    values[hit, rng.integers(0, depth, hit.size)] = [np.inf, -np.inf, np.nan][: hit.size]
    return values


FAMILIES: dict[str, Draw] = {
    "normal": normal,
    "uniform": uniform,
    "symmetric": symmetric,
    "wide": wide,
    "cancellation": cancellation,
    "integers": integers,
    "zeros": zeros,
    "one-hot": one_hot,
    "special": special,
}


def draw(
    family: str, shape: tuple[int, ...], size: tuple[int, int], operand: int, seed: int
) -> np.ndarray:
    """Draw one float32 operand of `size` (rows, depth) for a problem of `shape`.

    Raises the errors of `generator`.
    """
    rng = generator(family, FAMILIES, shape, operand, seed)
    return FAMILIES[family](rng, size, operand)


def generator(
    family: str, known: Iterable[str], shape: tuple[int, ...], operand: int, seed: int
) -> np.random.Generator:
    """Return the random generator of one operand.

    Raises UnknownNameError for an unknown family and InputError for a negative seed.
    """
    if family not in known:
        raise UnknownNameError(f"no input family {family!r}; known families: {', '.join(known)}")
    if seed < 0:
        raise InputError(f"seed {seed} is negative; it must be 0 or more")
    return np.random.default_rng([seed, *shape, zlib.crc32(family.encode()), operand])
