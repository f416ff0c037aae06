"""The arithmetic of tensor cores: sums of products, aligned and truncated as the hardware does it.

A step takes k exact products and the accumulator, shifts all of them to the largest exponent among
them, cuts each off `fraction_bits` binary places behind the point, adds what is left exactly, and
rounds the sum once (Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021;
Khattak and Mikaitis, arXiv 2512.07004; "MMA-Sim", arXiv 2511.10909). An instruction is one step, or
several, one after the other.

All values are float64 here, which holds each of these formats exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FRACTION_BITS = 25  # Hopper, for f16, bf16 and tf32 operands
FP8_FRACTION_BITS = 13  # Hopper's wgmma of 8-bit floats


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: `digits` of significand, the leading one included, and the
    exponent of the smallest normal number. `truncates`: results in it are rounded toward zero."""

    digits: int
    lowest: int
    truncates: bool = False


F16, BF16, TF32 = Format(11, -14), Format(8, -126), Format(11, -126)
E4M3, E5M2 = Format(4, -6), Format(3, -14)
F32 = Format(24, -126, truncates=True)
# What Hopper's wgmma of 8-bit floats leaves in a float32 register.
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
    """c + Σ a[k]·b[k] in steps of `step` products, or in one.

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
    """One step: c + Σ a[k]·b[k] of shapes as in `dot`, rounded once to `result`.

    Every float64 operation here is exact: a product has at most 22 digits, scaling is by powers of
    two, and the cut-off terms are integers whose sum stays far below 2^53.
    """
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:], c.shape)
    size_a, size_b = _power(a, operands.lowest), _power(b, operands.lowest)
    term, largest = np.empty(shape), np.empty(shape)
    np.maximum(_power(c, result.lowest), 4.0**operands.lowest, out=largest)
    for x, y in zip(size_a, size_b, strict=True):
        np.maximum(largest, np.multiply(x, y, out=term), out=largest)
    scale = np.divide(2.0**fraction_bits, largest, out=largest)
    total = np.trunc(c * scale)
    for x, y in zip(a, b, strict=True):
        np.multiply(x, y, out=term)
        term *= scale
        total += np.trunc(term, out=term)
    rounded = round_to(total / scale, result) + 0.0  # zeros are +0, whatever they come from
    if all(np.isfinite(x).all() for x in (a, b, c)):
        return rounded
    plain = np.multiply(a, b).sum(axis=0) + c
    return np.where(np.isfinite(plain), rounded, plain)


def round_to(x: np.ndarray, result: Format) -> np.ndarray:
    """Float64 values in F16 to nearest even, in F32 and E8M13 toward zero; what is too large is
    an infinity."""
    if not result.truncates:
        return x.astype(np.float16).astype(np.float64)
    nearest = x.astype(np.float32)
    size = np.abs(x)
    # One less in the bits is the next number toward zero.
    bits = nearest.view(np.int32) - ((np.abs(nearest) > size) & (size < 2.0**128))
    bits &= -1 << F32.digits - result.digits
    rounded: np.ndarray = bits.view(np.float32).astype(np.float64)
    return rounded


def _power(x: np.ndarray, lowest: int) -> np.ndarray:
    """2^e of x = ±s·2^e, 1 ≤ s < 2, where subnormals have exponent `lowest`; zeros take no part."""
    power = (x.view(np.int64) & 0x7FF << 52).view(np.float64)
    return np.where(x == 0, 0.0, np.maximum(power, 2.0**lowest))
