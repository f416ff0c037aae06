"""Bit-exact arithmetic on NumPy arrays or scalars of any shape.

IEEE operations round to nearest even, preserve subnormals, and return the canonical NaN 0x7fffffff
(PTX ISA, "Floating-Point Instructions"). The bits of `.approx` functions are not documented; here
they return the correctly rounded value, which is within the error bound that PTX states.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic import compiled

Value = Any  # an array, or a NumPy scalar if all lanes are equal

F32, F64 = np.float32, np.float64
NAN32 = np.uint32(0x7FFFFFFF).view(F32)
NAN64 = np.uint64(0x7FF8000000000000).view(F64)
_TIE_MASK, _TIE = np.int64(0x1FFFFFFF), np.int64(0x10000000)
_SMALLEST = np.finfo(F32).smallest_normal


def canonical32(x: Value) -> Value:
    """Replace every NaN by the canonical NaN."""
    return np.where(x == x, x, NAN32) if np.count_nonzero(x != x) else x


def add32(a: Value, b: Value) -> Value:
    return canonical32(a + b)


def sub32(a: Value, b: Value) -> Value:
    return canonical32(a - b)


def mul32(a: Value, b: Value) -> Value:
    return canonical32(a * b)


def div32(a: Value, b: Value) -> Value:
    return canonical32(a / b)


def fma32(a: Value, b: Value, c: Value) -> Value:
    """a·b + c with one rounding."""
    return rounded_fma32(a, b, c) if compiled.fma32 is None else compiled.fma32(a, b, c)


def rounded_fma32(a: Value, b: Value, c: Value) -> Value:
    """`fma32` by operations that NumPy has.

    The product of two float32 numbers is exact in float64, so only the sum and the conversion
    round. Double rounding can be wrong only if the float64 sum is a tie between float32 numbers,
    or subnormal in float32.
    """
    total = np.multiply(a, b, dtype=F64)
    total = total + c
    result = total.astype(F32)
    tie = (total.view(np.int64) & _TIE_MASK) == _TIE
    normal = np.abs(result) > _SMALLEST  # False for NaN
    # All others may be zeros, which are exact, and common because they pad tiles at the edges. On
    # small arrays, count_nonzero takes a quarter of the time of any().
    count = np.count_nonzero(normal)
    if not np.count_nonzero(tie) and (count == total.size or count == np.count_nonzero(total)):
        return result
    doubtful = (tie | ~normal) & (total != 0)
    if not np.count_nonzero(doubtful):
        return result
    repaired = np.array(result)
    a, b, c = (np.broadcast_to(x, repaired.shape)[doubtful] for x in (a, b, c))
    odd = fma_to_odd(a, b, c)
    repaired[doubtful] = np.where(np.isnan(odd), NAN32, odd.astype(F32))
    return repaired[()]


def fma32_directed(a: Value, b: Value, c: Value, rounding: str) -> Value:
    """a·b + c rounded toward zero ("rz"), down ("rm") or up ("rp")."""
    odd = fma_to_odd(a, b, c)
    result = canonical32(to_float(odd, F32, rounding))
    if rounding == "rm":  # canceling terms give −0
        negative = np.signbit(np.multiply(a, b, dtype=F64)) | np.signbit(c)
        result = np.where((odd == 0) & negative, F32(-0.0), result)[()]
    return result


def mul32_directed(a: Value, b: Value, rounding: str) -> Value:
    """a·b with directed rounding; the product is exact in float64."""
    return canonical32(to_float(np.multiply(a, b, dtype=F64), F32, rounding))


def fma_to_odd(a: Value, b: Value, c: Value) -> Value:
    """a·b + c of float32 values in float64, rounded to odd, so that a later rounding to fewer
    digits is correct."""
    product = np.multiply(a, b, dtype=F64)
    c = c.astype(F64)
    low = product + c
    # TwoSum: product + c = low + error, exactly.
    back = low - product
    error = (product - (low - back)) + (c - back)
    # Round to odd: set the last bit if the sum is inexact.
    fix = (error != 0) & np.isfinite(low) & ((low.view(np.int64) & 1) == 0)
    return np.where(fix, np.nextafter(low, np.where(error > 0, np.inf, -np.inf)), low)


def fma64(a: Value, b: Value, c: Value) -> Value:
    """a·b + c with one rounding (Boldo and Melquiond, 2008; rational arithmetic outside its
    range)."""
    shape = np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c))
    a, b, c = (np.broadcast_to(x, shape).astype(F64) for x in (a, b, c))
    high, low = _two_product(a, b)
    s_high, s_low = _two_sum(c, low)
    v_high, v_low = _two_sum(high, s_high)
    z, error = _two_sum(s_low, v_low)
    fix = (error != 0) & ((z.view(np.int64) & 1) == 0)
    odd = np.where(fix, np.nextafter(z, np.where(error > 0, np.inf, -np.inf)), z)
    result = np.asarray(v_high + odd)
    magnitude = np.maximum(np.abs(a), np.abs(b))
    smallest = np.minimum(np.abs(high), np.abs(result))
    safe = (magnitude < 2.0**500) & (np.abs(c) < 2.0**1000) & (smallest > 2.0**-900)
    if not safe.all():
        result = result.copy()
        flat = [x[~safe].tolist() for x in (a, b, c)]
        result[~safe] = [_fma64_rational(*abc) for abc in zip(*flat, strict=True)]
    return result[()]


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    s = np.asarray(a + b)
    back = s - a
    return s, np.asarray((a - (s - back)) + (b - back))


def _two_product(a: Value, b: Value) -> tuple[Value, Value]:
    def split(x: Value) -> tuple[Value, Value]:
        big = x * 134217729.0  # 2^27 + 1, Veltkamp
        high = big - (big - x)
        return high, x - high

    product = a * b
    (a1, a2), (b1, b2) = split(a), split(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def _fma64_rational(a: float, b: float, c: float) -> float:
    if np.isfinite(a) and np.isfinite(b) and not np.isfinite(c):
        return c  # whether or not the product overflows
    plain = a * b + c
    if not (np.isfinite(a) and np.isfinite(b)) or a == 0 or b == 0:
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return plain
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def flush(x: Value) -> Value:
    """`.ftz`: flush subnormals to zero, keeping the sign."""
    tiny = np.abs(x) < np.finfo(x.dtype).smallest_normal
    return np.where(tiny, np.copysign(F32(0), x), x) if np.count_nonzero(tiny) else x


def is_subnormal(x: Value) -> Value:
    return (np.abs(x) < np.finfo(x.dtype).smallest_normal) & (x != 0)


def saturate(x: Value) -> Value:
    """`.sat`: clamp to [0, 1]; NaN becomes +0."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def minimum(a: Value, b: Value) -> Value:
    """If one operand is NaN, the result is the other; −0 is less than +0."""
    first = (a < b) | (a == b) & np.signbit(a) | np.isnan(b)
    return _canonical(np.where(first, a, b))


def maximum(a: Value, b: Value) -> Value:
    """If one operand is NaN, the result is the other; +0 is greater than −0."""
    first = (a > b) | (a == b) & ~np.signbit(a) | np.isnan(b)
    return _canonical(np.where(first, a, b))


def _canonical(x: Value) -> Value:
    nan = NAN32 if x.dtype == F32 else NAN64
    return np.where(np.isnan(x), nan, x)


def either_nan(function: Callable[[Value, Value], Value], a: Value, b: Value) -> Value:
    """`.NaN`: the result is NaN if either operand is."""
    return _canonical(np.where(np.isnan(a) | np.isnan(b), np.nan, function(a, b)))


def of_sizes(function: Callable[[Value, Value], Value], a: Value, b: Value) -> Value:
    """`.xorsign.abs`: compare magnitudes; the result's sign is the exclusive or of both signs."""
    magnitude = function(np.abs(a), np.abs(b))
    return np.where(np.signbit(a) != np.signbit(b), -magnitude, magnitude)


def wide(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Turn a float64 function into a float32 function that computes in float64."""
    return lambda x: canonical32(function(x.astype(F64)).astype(F32))


rsqrt = wide(lambda x: 1.0 / np.sqrt(x))
exp2 = wide(np.exp2)
log2 = wide(np.log2)
sine = wide(np.sin)
cosine = wide(np.cos)
tangent_h = wide(np.tanh)
sqrt32 = wide(np.sqrt)  # correctly rounded: float64 has enough digits to avoid double rounding
reciprocal = wide(lambda x: 1.0 / x)  # likewise


# Integers


def divide(a: Value, b: Value) -> Value:
    """The quotient, rounded toward zero. x / 0 is all ones, as in NVIDIA's division routine."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":  # NumPy rounds down
        quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0)))
    return np.where(zero, ~a.dtype.type(0), quotient).astype(a.dtype)


def remainder(a: Value, b: Value) -> Value:
    """a − b·(a / b); a if b is 0."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a, np.fmod(a, safe)).astype(a.dtype)


def multiply_high(a: Value, b: Value) -> Value:
    """The upper half of the double-width product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        double = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return ((a.astype(double) * b.astype(double)) >> double.type(bits)).astype(a.dtype)
    x, y = a.view(np.uint64), b.view(np.uint64)
    low32, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    cross = (x & low32) * (y >> shift) + (((x & low32) * (y & low32)) >> shift)
    other = (x >> shift) * (y & low32) + (cross & low32)
    high = (x >> shift) * (y >> shift) + (cross >> shift) + (other >> shift)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def shift_left(a: Value, count: Value) -> Value:
    """`shl`: counts ≥ the width give 0. count: uint32 for any width of `a`."""
    bits = a.dtype.itemsize * 8
    return a << np.minimum(count, np.uint32(bits)).astype(a.dtype)


def shift_right(a: Value, count: Value) -> Value:
    """`shr`: counts are clamped to the width, so a signed value becomes 0 or -1."""
    bits = a.dtype.itemsize * 8
    return a >> np.minimum(count, np.uint32(bits)).astype(a.dtype)


def funnel(low: Value, high: Value, count: Value, left: bool, wrap: bool) -> Value:
    """`shf`: 32 bits of the 64-bit value high:low, shifted left or right by `count`.

    wrap: take the count modulo 32 instead of clamping it to 32.
    """
    n = (count & np.uint32(31)) if wrap else np.minimum(count, np.uint32(32))
    both = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    n = n.astype(np.uint64)
    moved = (both << n) >> np.uint64(32) if left else both >> n
    return moved.astype(np.uint32)


def logic3(a: Value, b: Value, c: Value, table: Value) -> Value:
    """`lop3`: bit i of the result is table[a_i b_i c_i]."""
    result = a & a.dtype.type(0)
    for row in range(8):
        if int(table) >> row & 1:
            term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            result = result | term
    return result


def _field(number: Value, bits: int) -> Value:
    """The effective position or length. 32-bit instructions use only its low byte. 64-bit ones
    compile to shifts, which use all bits; larger values than 255 act like 255."""
    return number & np.uint32(255) if bits == 32 else np.minimum(number, np.uint32(255))


def extract(a: Value, position: Value, length: Value) -> Value:
    """`bfe`: `length` bits from `position`, sign- or zero-extended (PTX ISA, bfe)."""
    bits = a.dtype.itemsize * 8
    unsigned = a.view(f"u{a.dtype.itemsize}")
    kind = unsigned.dtype.type
    position, length = _field(position, bits), _field(length, bits)
    moved = shift_right(unsigned, position)
    keep = np.where(length >= bits, kind(2**bits - 1), (kind(1) << length.astype(kind)) - kind(1))
    field = moved & keep.astype(kind)
    if a.dtype.kind == "u":
        return field
    # The last bit of the field inside the value; it is copied to all bits above.
    last = np.minimum(position.astype(np.int64) + length.astype(np.int64) - 1, bits - 1)
    sign = shift_right(unsigned, np.maximum(last, 0).astype(np.uint32)) & kind(1)
    negative = (sign != 0) & (length != 0)
    inside = np.clip(last - position.astype(np.int64) + 1, 0, bits).astype(np.uint32)
    above = shift_left(~(unsigned & kind(0)), inside)
    return np.where(negative, field | above, field).astype(kind).view(a.dtype)


def insert(a: Value, b: Value, position: Value, length: Value) -> Value:
    """`bfi`: insert the low `length` bits of a into b at `position`."""
    kind, bits = b.dtype.type, b.dtype.itemsize * 8
    position, length = _field(position, bits), _field(length, bits)
    ones = np.where(length >= bits, kind(2**bits - 1), (kind(1) << length.astype(kind)) - kind(1))
    mask = shift_left(ones.astype(kind), position)
    return (b & ~mask) | (shift_left(a, position) & mask)


def count_leading_zeros(a: Value) -> Value:
    bits = a.dtype.itemsize * 8
    left, result = a.copy(), np.full_like(a, bits)
    for step in (32, 16, 8, 4, 2, 1):
        if step < bits:
            upper = left >> a.dtype.type(step)
            result = np.where(upper != 0, result - a.dtype.type(step), result)
            left = np.where(upper != 0, upper, left)
    return (result - left).astype(np.uint32)


def find_leading(a: Value, shift: bool = False) -> Value:
    """`bfind`: the position of the highest bit that differs from the sign, or with `shift` its
    distance from the top bit. All ones if there is no such bit."""
    unsigned = a.view(f"u{a.dtype.itemsize}")
    if a.dtype.kind == "i":
        unsigned = np.where(a < 0, ~unsigned, unsigned)
    distance = count_leading_zeros(unsigned)
    position = distance if shift else np.uint32(a.dtype.itemsize * 8 - 1) - distance
    return np.where(unsigned == 0, np.uint32(0xFFFFFFFF), position)


def reverse_bits(a: Value) -> Value:
    kind, bits = a.dtype.type, a.dtype.itemsize * 8
    result = a
    for step in (1, 2, 4, 8, 16, 32):
        if step < bits:
            ones = (2**bits - 1) // (2 ** (2 * step) - 1) * (2**step - 1)
            low = (result & kind(ones)) << kind(step)
            result = low | ((result >> kind(step)) & kind(ones))
    return result


def permute(a: Value, b: Value, selector: Value) -> Value:
    """`prmt` in generic mode: select four bytes of b:a by four selector nibbles."""
    both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    result = np.zeros_like(both)
    for i in range(4):
        nibble = (selector.astype(np.uint64) >> np.uint64(4 * i)) & np.uint64(15)
        byte = (both >> ((nibble & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        spread = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        byte = np.where(nibble & np.uint64(8), spread, byte)
        result = result | (byte << np.uint64(8 * i))
    return result.astype(np.uint32)


# Mode of prmt -> equivalent selectors, indexed by the low two bits of operand c.
SELECTORS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def selector(control: Value, mode: str) -> Value:
    """The selector of the generic mode that is equivalent to another mode of `prmt`."""
    low = control & np.uint32(3)
    first, *others = (np.uint32(x) for x in SELECTORS[mode])
    result = np.where(low == 1, others[0], first)
    for k in (2, 3):
        result = np.where(low == k, others[k - 1], result)
    return result


# Conversions

ROUND_TO_INTEGER: dict[str, Callable[[Value], Value]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def to_integer(x: Value, kind: type, rounding: str) -> Value:
    """Float to integer with saturation. NaN gives 0, or only the top bit set if source or target
    has 64 bits."""
    info = np.iinfo(kind)
    whole = ROUND_TO_INTEGER[rounding](x.astype(F64))
    low, high = whole <= float(info.min), whole >= float(info.max)
    nan = np.isnan(whole)
    special = nan | low | high
    inside: Value = np.where(special, 0.0, whole).astype(kind)
    from_nan = 0 if x.dtype.itemsize < 8 and info.bits < 64 else 1 << (info.bits - 1)
    limits = np.where(nan, np.array(from_nan, np.uint64).astype(kind), kind(info.max))
    return np.where(special, np.where(low, kind(info.min), limits), inside).astype(kind)


def to_float(x: Value, kind: type, rounding: str) -> Value:
    """Convert to a float type. rounding: "rn", "rz", "rm" or "rp"."""
    nearest = x.astype(kind)
    if rounding == "rn":  # conversions from float64 preserve the NaN
        return canonical32(nearest) if kind is F32 and x.dtype != F64 else nearest
    error = _sign_of_error(x, nearest)
    wrong = {"rz": error * np.sign(nearest) < 0, "rm": error < 0, "rp": error > 0}[rounding]
    neighbour = np.nextafter(nearest, np.where(error > 0, np.inf, -np.inf).astype(kind))
    return np.where(wrong, neighbour, nearest)


def _sign_of_error(exact: Value, rounded: Value) -> Value:
    if exact.dtype.kind == "f":
        return np.sign(exact - rounded.astype(exact.dtype))
    # Compare as integers, unless the float is outside the integer range.
    info, wide = np.iinfo(exact.dtype), rounded.astype(F64)
    above, below = wide >= 2.0 * (info.max // 2 + 1), wide < float(info.min)
    whole = np.where(above | below, 0.0, wide).astype(exact.dtype)
    return np.where(above | (~below & (exact < whole)), -1, np.where(below | (exact > whole), 1, 0))


def clamp(x: Value, kind: type) -> Value:
    """Integer to integer with saturation."""
    low, high = (
        max(np.iinfo(kind).min, np.iinfo(x.dtype).min),
        min(np.iinfo(kind).max, np.iinfo(x.dtype).max),
    )
    return np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(kind)
