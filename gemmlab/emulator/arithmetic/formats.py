"""Narrow floating-point formats and rounding to them: f16, bf16, tf32, e4m3, e5m2.

Registers hold bit patterns. Values are float32, which represents all of these formats exactly, or
float64 before rounding. NaN results are canonical: all bits one except the sign.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from gemmlab.emulator.arithmetic.numerics import F32, F64, Value
from gemmlab.emulator.arithmetic.tensor_core import BF16, E4M3, E5M2, F16, TF32, Format

FORMATS = {"f16": F16, "bf16": BF16, "tf32": TF32, "e4m3": E4M3, "e5m2": E5M2}
BITS = {"f16": "u2", "bf16": "u2", "tf32": "u4", "e4m3": "u1", "e5m2": "u1"}
INTEGERS = {"s8": "i1", "u8": "u1"}


def widen(bits: Value, name: str) -> Value:
    """Bit patterns of a narrow format to float32 values.

    A rule of both tiers. The native tier passes a value of its IR.
    """
    match name:
        case "f16":
            return bits.view(np.float16).astype(F32)
        case "bf16":
            return (bits.astype(np.uint32) << np.uint32(16)).view(F32)
        case "tf32":
            return (bits & np.uint32(0xFFFFE000)).view(F32)
        case "e5m2":
            return (bits.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(F32)
    # Shifted to their places in a float32 number, the bits of e4m3 give a value 2^120 too small.
    word = bits.astype(np.uint32)
    size = word & np.uint32(0x7F)
    value = (size << np.uint32(20)).view(F32) * np.float32(2.0**120)
    number = np.where(size == np.uint32(0x7F), np.uint32(0x7FFFFFFF), value.view(np.uint32))
    return (number | (word & np.uint32(0x80)) << np.uint32(24)).view(F32)


# The non-negative numbers of e4m3, in the order of their bit patterns.
_E4M3 = widen(np.arange(0x7F, dtype=np.uint8), "e4m3").astype(F64)


def values(data: np.ndarray, name: str) -> np.ndarray:
    """Decode bytes along the last axis to float64. name: a format in FORMATS, "s8" or "u8"."""
    bits = np.ascontiguousarray(data).view(INTEGERS.get(name) or BITS[name])
    return np.asarray(bits if name in INTEGERS else widen(bits, name)).astype(F64)


def largest(format: Format) -> float:
    """The largest finite number of a format."""
    if format == E4M3:  # has no infinities: their bit patterns are numbers and one NaN
        return 448.0
    return float((2 - 2.0 ** (1 - format.digits)) * 2.0 ** (1 - format.lowest))


def narrow(x: Value, name: str, mode: str = "rn", words: Collection[str] = ()) -> np.ndarray:
    """Convert numbers of any NumPy type to bit patterns of a narrow format, rounding once.

    mode: "rn", "rz", "rm", "rp", or "rna" (ties away from zero). words: "relu" clamps negative
    numbers to 0, "sat" clamps to [0, 1], "satfinite" clamps to the largest finite number.
    """
    if (name, mode) == ("tf32", "rna"):
        return _away_on_bits(x, "satfinite" in words)
    format, kind = FORMATS[name], np.dtype(BITS[name]).type
    exact = to_odd(x)
    rounded = round_to(exact, format, mode)
    if "satfinite" in words:
        rounded = np.clip(rounded, -largest(format), largest(format))
    if "relu" in words:
        rounded = np.maximum(rounded, 0.0)
    if "sat" in words:
        rounded = np.where(exact > 0, np.minimum(rounded, 1.0), 0.0)
    nan = kind(0x7FFFE000 if name == "tf32" else (1 << 8 * kind().itemsize - 1) - 1)
    return np.where(np.isnan(rounded), nan, _encode(rounded, name))


def _away_on_bits(x: Value, finite: bool) -> np.ndarray:
    """float32 to tf32, ties away from zero, by an addition to the bit pattern, as hardware does it;
    this determines the NaN results. finite: infinities become the next smaller number."""
    bits: np.ndarray = x.view(np.uint32)
    size, infinity = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
    bits = np.where(bits & size < infinity, bits + np.uint32(0x1000), bits) & np.uint32(0xFFFFE000)
    if finite:
        bits = np.where(bits & size >= infinity, bits - np.uint32(0x2000), bits)
    return bits


def split(pair: Value) -> np.ndarray:
    """Split a register into halves along a new last axis, lower half first."""
    pair = np.asarray(pair)
    halves: np.ndarray = pair[..., None].view(np.dtype(f"u{pair.itemsize // 2}"))
    return halves


def merge(halves: np.ndarray) -> np.ndarray:
    """The inverse of `split`."""
    whole = np.ascontiguousarray(halves).view(np.dtype(f"u{2 * halves.itemsize}"))
    pair: np.ndarray = whole[..., 0]
    return pair


def join(lower: Value, upper: Value) -> np.ndarray:
    """Combine two halves into a register."""
    return merge(np.stack(np.broadcast_arrays(lower, upper), axis=-1))


def round_to(x: Value, format: Format, mode: str = "rn") -> np.ndarray:
    """Round float64 values to a format. Overflow gives infinity or the largest finite number,
    depending on `mode`."""
    power = (x.view(np.int64) & np.int64(0x7FF << 52)).view(F64)
    unit = np.maximum(power, 2.0**format.lowest) * 2.0 ** (1 - format.digits)
    whole = ROUND[mode](x / unit)
    result = whole * unit
    most = largest(format)
    over = (np.abs(result) > most) & np.isfinite(x)
    outward = {"rn": True, "rna": True, "rz": False, "rm": x < 0, "rp": x > 0}[mode]
    limit = np.where(outward, np.inf, most)
    return np.where(np.isfinite(x), np.where(over, np.copysign(limit, x), result), x)


def _away(x: Value) -> Value:
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


ROUND: dict[str, Callable[[Value], Value]] = {
    "rn": np.rint,
    "rna": _away,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
}


def to_odd(x: Value) -> np.ndarray:
    """Convert to float64 with rounding to odd (truncate, then set the last bit if inexact), so that
    a later rounding to fewer digits is correct."""
    wide: np.ndarray = x.astype(F64)
    if x.dtype.kind == "f" or x.dtype.itemsize < 8:
        return wide
    # A 64-bit integer, split into halves that fit.
    low = (x & x.dtype.type(0xFFFFFFFF)).astype(F64)
    high = (x >> x.dtype.type(32)).astype(F64) * 2.0**32
    error = low - (wide - high)
    inexact = (error != 0) & (wide.view(np.int64) & 1 == 0)
    outward = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact, np.nextafter(wide, outward), wide)


def _encode(x: np.ndarray, name: str) -> np.ndarray:
    """The bit patterns of float64 values that the format represents exactly."""
    bits: np.ndarray
    match name:
        case "f16":
            bits = x.astype(np.float16).view(np.uint16)
        case "bf16":
            bits = (x.astype(F32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        case "tf32":
            bits = x.astype(F32).view(np.uint32)
        case "e5m2":
            bits = (x.astype(np.float16).view(np.uint16) >> np.uint16(8)).astype(np.uint8)
        case _:
            bits = np.searchsorted(_E4M3, np.abs(x)).astype(np.uint8)
            bits |= np.where(np.signbit(x), np.uint8(0x80), np.uint8(0))
    return bits
