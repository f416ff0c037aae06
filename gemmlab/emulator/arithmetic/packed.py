"""Packed integers (two halves or four bytes per register), and other integer instructions on parts
of their operands (PTX ISA, "Integer Arithmetic Instructions")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmlab.emulator.arithmetic.numerics import Value, shift_left

U32 = np.uint32


def part(x: Value, k: int, bits: int, signed: bool) -> Value:
    """Field k of a register, counted from the lowest bits, sign- or zero-extended."""
    kind = np.int32 if signed else np.uint32
    top = x.view(U32) << U32(32 - bits * (k + 1))
    return (top.view(kind) >> kind(32 - bits)).view(U32)


def dot4(a: Value, b: Value, c: Value, signed: tuple[bool, bool]) -> Value:
    """`dp4a`: c plus the products of the bytes of a and b."""
    for k in range(4):
        c = c + part(a, k, 8, signed[0]) * part(b, k, 8, signed[1])
    return c


def dot2(a: Value, b: Value, c: Value, signed: tuple[bool, bool], first: int) -> Value:
    """`dp2a`: c plus the products of the halves of a with bytes `first` and `first` + 1 of b."""
    for k in range(2):
        c = c + part(a, k, 16, signed[0]) * part(b, first + k, 8, signed[1])
    return c


def halves(function: Callable[..., Value], signed: bool, *operands: Value) -> Value:
    """Apply a function to the lower and to the upper halves of the operands."""
    kind = np.int32 if signed else np.uint32
    low, high = (
        function(*(part(x, k, 16, signed).view(kind) for x in operands)).view(U32) for k in (0, 1)
    )
    return (low & U32(0xFFFF)) | (high << U32(16))


def differences(
    a: Value, b: Value, c: Value, bits: int, signed: tuple[bool, bool], is_sum: bool
) -> Value:
    """`vabsdiff4` and `vabsdiff2`: |a − b| of each field, or c plus their sum."""
    total = c if is_sum else c & U32(0)
    for k in range(32 // bits):
        x, y = part(a, k, bits, signed[0]), part(b, k, bits, signed[1])
        size = np.abs((x - y).view(np.int32)).view(U32)
        total = total + (size if is_sum else (size & U32((1 << bits) - 1)) << U32(bits * k))
    return total


def pack(a: Value, b: Value, c: Value, low: int, high: int, bits: int) -> Value:
    """`cvt.pack`: saturate a and b to [low, high] and pack them into `bits` bits each, below c."""
    a, b = (np.clip(x.view(np.int32), np.int32(low), np.int32(high)).view(U32) for x in (a, b))
    mask = U32((1 << bits) - 1)
    both = (b & mask) | ((a & mask) << U32(bits))
    return both if bits == 16 else both | (c << U32(2 * bits))


def low24(x: Value) -> Value:
    """The 24-bit operand of `mul24`, sign- or zero-extended."""
    return (x << x.dtype.type(8)) >> x.dtype.type(8)


def mask_of(start: Value, width: Value, wraps: bool) -> Value:
    """`bmsk`: `width` ones starting at bit `start`. wraps: take both modulo 32."""
    if wraps:
        start, width = start & U32(31), width & U32(31)
    ones = np.where(width > U32(31), ~(width & U32(0)), (U32(1) << (width & U32(31))) - U32(1))
    return shift_left(ones, start)


def resize(x: Value, width: Value, wraps: bool) -> Value:
    """`szext`: the low `width` bits, sign-extended if x is signed, else zero-extended."""
    all_bits = mask_of(width & U32(0), width, wraps)
    kind = x.dtype.type
    low = x.view(U32) & all_bits
    if x.dtype.kind == "u":
        return low
    sign = (all_bits & ~(all_bits >> U32(1))) & low
    fits = all_bits == U32(0xFFFFFFFF)
    return np.where(fits | (sign == U32(0)), low, low | ~all_bits).view(kind)


def find_set(mask: Value, base: Value, offset: Value) -> Value:
    """`fns`: the |offset|-th set bit from `base`, upward if offset > 0, downward if offset < 0; bit
    `base` itself if offset is 0. All ones if there is no such bit, or no bit `base`."""
    step = np.where(offset < 0, np.int32(-1), np.int32(1))
    left = np.where(offset == 0, np.int32(1), np.abs(offset))
    result, position = ~(mask & U32(0)), base.view(np.int32)
    begins = (position >= 0) & (position < 32)
    for _ in range(32):
        inside = begins & (position >= 0) & (position < 32)
        bit = (mask >> (position & np.int32(31)).view(U32)) & U32(1)
        left = left - np.where(inside & (bit != U32(0)), np.int32(1), np.int32(0))
        found = inside & (bit != U32(0)) & (left == 0)
        result = np.where(found, position.view(U32), result)
        position = np.where(offset == 0, np.int32(32), position + step)
    return result
