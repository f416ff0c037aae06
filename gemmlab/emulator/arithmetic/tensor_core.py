"""Tensor core arithmetic: dot products, aligned and truncated as in hardware.

A step takes k exact products and the accumulator, aligns them to the largest exponent among them,
truncates each to `fraction_bits` fractional bits, adds the results exactly, and rounds the sum once
(Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021; Khattak and Mikaitis,
arXiv 2512.07004; "MMA-Sim", arXiv 2511.10909). An instruction consists of one or more such steps.

Arguments and results are float64, which represents all of these formats exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmlab.emulator.arithmetic import compiled
from gemmlab.emulator.arithmetic.lanes import Value

FRACTION_BITS = 25  # Hopper, for f16, bf16 and tf32 operands
FP8_FRACTION_BITS = 13  # Hopper's wgmma of 8-bit floats
NO_EXPONENT = -10_000  # the exponent of zeros; smaller than that of any product
MAX_EXPONENT = 512  # exceeds that of any product; infinities and NaNs are above
# The NaN of the hardware: all ones except the sign, also after conversion to float32 or float16.
NAN = np.uint64(0x7FFFFFFFFFFFFFFF).view(np.float64)


@dataclass(frozen=True)
class Format:
    """A binary floating-point format."""

    digits: int  # bits of the significand, including the leading one
    lowest: int  # exponent of the smallest normal number
    truncates: bool = False  # results are rounded toward zero

    @property
    def is_narrow(self) -> bool:
        """Whether float32 holds all products of two numbers, and their scale factors."""
        return self.digits <= 12 and self.lowest >= -14


F16, BF16, TF32 = Format(11, -14), Format(8, -126), Format(11, -126)
E4M3, E5M2 = Format(4, -6), Format(3, -14)
F32 = Format(24, -126, truncates=True)
# The precision of float32 accumulators in Hopper's wgmma on 8-bit floats.
E8M13 = Format(14, -126, truncates=True)


def dot(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    operands: Format,
    result: Format = F32,
    fraction_bits: int = FRACTION_BITS,
    step: int | None = None,
) -> np.ndarray:
    """c + Σ a[k]·b[k] in steps of `step` products; None for a single step.

    a, b: (k, …), c: (…); a[k], b[k] and c broadcast to the result's shape. For matrices A (m, k)
    and B (k, n) that is a = A.T[:, :, None], b = B[:, None, :], c = C.
    """
    step = step or len(a)
    for k in range(0, len(a), step):
        c = accumulate(a[k : k + step], b[k : k + step], c, operands, result, fraction_bits)
    return c


def accumulate(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    operands: Format,
    result: Format = F32,
    fraction_bits: int = FRACTION_BITS,
) -> np.ndarray:
    """One step: c + Σ a[k]·b[k], rounded once to `result`. Shapes as in `dot`.

    All operations before the rounding are exact: a product has at most 22 digits, scale factors are
    powers of two, and the truncated terms are integers whose sum is far below 2^53.
    """
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:], c.shape)
    powers = _exponent(a, operands.lowest), _exponent(b, operands.lowest)
    largest, sums = np.empty(shape, np.int16), np.empty(shape, np.int16)
    np.maximum(_exponent(c, result.lowest), 2 * operands.lowest, out=largest)
    for x, y in zip(*powers, strict=True):
        if compiled.largest_sum is None:
            np.maximum(largest, np.add(x, y, out=sums), out=largest)
        else:
            compiled.largest_sum(x, y, largest, out=largest)
    if max(x.max() for x in (largest, *powers)) > MAX_EXPONENT:
        return _with_specials(a, b, c, operands, result, fraction_bits)
    up = fraction_bits - largest
    scale = power_of_two(up)
    total = np.trunc(c * scale, out=np.empty(shape))
    if operands.is_narrow:
        _add_narrow(total, a.astype(np.float32), b.astype(np.float32), up)
    else:
        term = np.empty(shape)
        for x, y in zip(a, b, strict=True):
            np.multiply(x, y, out=term)
            term *= scale
            total += np.trunc(term, out=term)
    total /= scale
    return round_to(total, result) + 0.0  # all zeros become +0


def _with_specials(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    operands: Format,
    result: Format,
    fraction_bits: int,
) -> np.ndarray:
    """`accumulate` for inputs with infinities or NaNs, which follow IEEE rules."""
    plain = np.multiply(a, b).sum(axis=0) + c
    x, y, z = (np.where(np.isfinite(v), v, 0.0) for v in (a, b, c))
    rounded = accumulate(x, y, z, operands, result, fraction_bits)
    return np.where(np.isfinite(plain), rounded, np.where(np.isnan(plain), NAN, plain))


def _add_narrow(total: np.ndarray, a: np.ndarray, b: np.ndarray, up: np.ndarray) -> None:
    """Add the scaled, truncated products of narrow formats to `total`, in place.

    up: the exponents of the scale factors. Terms are below 2^27, so int32 holds the sum of eight;
    the conversion to int32 truncates.
    """
    scale = narrow_power_of_two(up)
    product, term = np.empty(total.shape, np.float32), np.empty(total.shape, np.int32)
    for k in range(0, len(a), 8):
        some = np.zeros(total.shape, np.int32)
        for x, y in zip(a[k : k + 8], b[k : k + 8], strict=True):
            if compiled.add_product is None:
                np.multiply(x, y, out=product)
                product *= scale
                np.copyto(term, product, casting="unsafe")
                some += term
            else:
                compiled.add_product(x, y, scale, some, out=some)
        total += some


def round_to(x: np.ndarray, result: Format) -> np.ndarray:
    """Round float64 values to F16 (to nearest even), F32 or E8M13 (toward zero). Overflow gives
    infinity."""
    if not result.truncates:
        return x.astype(np.float16).astype(np.float64)
    rounded: np.ndarray = toward_zero(x, result.digits).astype(np.float64)
    return rounded


# Rules of both tiers. The native tier calls them with values of its IR.


def toward_zero(x: Value, digits: int) -> Value:
    """Round float64 to float32 with `digits` significant bits, toward zero. Overflow gives
    infinity."""
    nearest, magnitude = x.astype(np.float32), np.abs(x)
    above = (np.abs(nearest.astype(np.float64)) > magnitude) & (magnitude < 2.0**128)
    # Decrementing the bit pattern gives the next number toward zero.
    bits = nearest.view(np.int32) - above.astype(np.int32)
    return (bits & np.int32(-1 << F32.digits - digits)).view(np.float32)


def power_of_two(exponent: Value) -> Value:
    """2^exponent in float64."""
    return (exponent.astype(np.int64) + np.int64(1023) << np.int64(52)).view(np.float64)


def narrow_power_of_two(exponent: Value) -> Value:
    """2^exponent in float32."""
    return (exponent.astype(np.int32) + np.int32(127) << np.int32(23)).view(np.float32)


def _exponent(x: np.ndarray, lowest: int) -> np.ndarray:
    """e of x = ±s·2^e with 1 ≤ s < 2; subnormals have exponent `lowest`, zeros NO_EXPONENT."""
    exponent = np.asarray(((x.view(np.int64) >> 52).astype(np.int16) & 0x7FF) - 1023)
    np.maximum(exponent, lowest, out=exponent)
    exponent[x == 0] = NO_EXPONENT
    return exponent
