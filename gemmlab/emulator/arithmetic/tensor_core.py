"""The arithmetic of tensor cores: sums of products, aligned and truncated as the hardware does it.

A step takes k exact products and the accumulator, shifts all of them to the largest exponent among
them, cuts each off `fraction_bits` binary places behind the point, adds what is left exactly, and
rounds the sum once (Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021;
Khattak and Mikaitis, arXiv 2512.07004; "MMA-Sim", arXiv 2511.10909). An instruction is one step, or
several, one after the other.

Values come and go as float64, which holds each of these formats exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FRACTION_BITS = 25  # Hopper, for f16, bf16 and tf32 operands
FP8_FRACTION_BITS = 13  # Hopper's wgmma of 8-bit floats
NO_EXPONENT = -10_000  # of a zero: smaller than that of any product
MAX_EXPONENT = 512  # above that of any product; infinities and NaNs have more
# All ones, also after a conversion to float32 or float16: what the hardware returns.
NAN = np.uint64(0x7FFFFFFFFFFFFFFF).view(np.float64)


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: `digits` of significand, the leading one included, and the
    exponent of the smallest normal number. `truncates`: results in it are rounded toward zero."""

    digits: int
    lowest: int
    truncates: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether float32 holds every product of two such numbers, and any sum of their powers."""
        return self.digits <= 12 and self.lowest >= -14


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

    Every operation here is exact: a product has at most 22 digits, scaling is by powers of two, and
    the cut-off terms are integers whose sum stays far below 2^53.
    """
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:], c.shape)
    powers = _exponent(a, operands.lowest), _exponent(b, operands.lowest)
    largest, sums = np.empty(shape, np.int16), np.empty(shape, np.int16)
    np.maximum(_exponent(c, result.lowest), 2 * operands.lowest, out=largest)
    for x, y in zip(*powers, strict=True):
        np.maximum(largest, np.add(x, y, out=sums), out=largest)
    if max(x.max() for x in (largest, *powers)) > MAX_EXPONENT:
        return _with_specials(a, b, c, operands, result, fraction_bits)
    up = fraction_bits - largest
    scale = _power_of_two(up)
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
    return round_to(total, result) + 0.0  # zeros are +0, whatever they come from


def _with_specials(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    operands: Format,
    result: Format,
    fraction_bits: int,
) -> np.ndarray:
    """`accumulate` where infinities or NaNs take part: what IEEE makes of the plain sum."""
    plain = np.multiply(a, b).sum(axis=0) + c
    x, y, z = (np.where(np.isfinite(v), v, 0.0) for v in (a, b, c))
    rounded = accumulate(x, y, z, operands, result, fraction_bits)
    return np.where(np.isfinite(plain), rounded, np.where(np.isnan(plain), NAN, plain))


def _add_narrow(total: np.ndarray, a: np.ndarray, b: np.ndarray, up: np.ndarray) -> None:
    """Add the scaled, cut-off products of numbers whose products float32 holds exactly.

    A term is below 2^27: eight of them fit in int32, to which the conversion truncates.
    """
    scale = ((up.astype(np.int32) + 127) << 23).view(np.float32)
    product, term = np.empty(total.shape, np.float32), np.empty(total.shape, np.int32)
    for k in range(0, len(a), 8):
        some = np.zeros(total.shape, np.int32)
        for x, y in zip(a[k : k + 8], b[k : k + 8], strict=True):
            np.multiply(x, y, out=product)
            product *= scale
            np.copyto(term, product, casting="unsafe")
            some += term
        total += some


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


def _exponent(x: np.ndarray, lowest: int) -> np.ndarray:
    """e of x = ±s·2^e, 1 ≤ s < 2, where subnormals have exponent `lowest`; zeros take no part."""
    exponent = np.asarray(((x.view(np.int64) >> 52).astype(np.int16) & 0x7FF) - 1023)
    np.maximum(exponent, lowest, out=exponent)
    exponent[x == 0] = NO_EXPONENT
    return exponent


def _power_of_two(exponent: np.ndarray) -> np.ndarray:
    power: np.ndarray = (exponent.astype(np.int64) + 1023 << 52).view(np.float64)
    return power
