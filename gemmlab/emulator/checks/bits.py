"""Propagates undefined bits from the operands of an instruction to its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import three_axes
from gemmlab.ptx.ir import WIDTHS, Imm, Instruction

ALL, NONE = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
Values = tuple[Any, ...]  # values of the operands that translate.selectors lists


class Taint(NamedTuple):
    """The undefined bits of a register or a value, per lane."""

    origin: np.ndarray  # int32, see undefined.py; 0 if all bits are defined
    bits: np.ndarray  # uint64, mask of the undefined bits


DEFINED = Taint(np.zeros((1, 1, 1), np.int32), np.zeros((1, 1, 1), np.uint64))


def whole(origin: np.ndarray) -> Taint:
    """Taint with all bits undefined wherever `origin` is nonzero."""
    return Taint(origin, np.where(origin > 0, ALL, NONE))


def either(a: Taint | None, b: Taint | None) -> Taint | None:
    """The union of undefined bits."""
    if a is None or b is None:
        return b if a is None else a
    return Taint(np.maximum(a.origin, b.origin), a.bits | b.bits)


def mask_of(width: int) -> np.uint64:
    """The lowest `width` bits set, at most 64."""
    return np.uint64((1 << min(width, 64)) - 1)


def result(i: Instruction, taints: Sequence[Taint | None], values: Values) -> Taint | None:
    """The taint of an arithmetic instruction's result; None if all bits are defined.

    taints: of the operands. values: of the operands that may decide bits, see `Values`.
    """
    if i.root == "selp":
        yes, no, condition = taints
        if yes is not None or no is not None:
            chosen = three_axes(values[0])
            pairs = zip(yes or DEFINED, no or DEFINED, strict=True)
            yes = Taint(*(np.where(chosen, a, b) for a, b in pairs))
        return either(yes, None if condition is None else whole(condition.origin))
    merged = None
    for taint in taints:
        merged = either(merged, taint)
    if merged is None:
        return None
    if i.root == "setp" and values:
        first = either(taints[0], taints[1])
        compared = None if first is None else _one_bit(first)
        return _settled([compared, taints[2]], [None, values[0]], "or" in i.modifiers)
    if i.root in ("and", "or") and values:
        return _settled(taints, values, i.root == "or")
    if i.root in ("xor", "not", "mov", "cvta", "lop3"):
        return merged
    if i.opcode[-1].endswith("x2") and i.root != "setp":
        return _by_halves(merged)
    moved = _moved(i, taints)
    return whole(np.where(merged.bits != 0, merged.origin, 0)) if moved is None else moved


def _by_halves(taint: Taint) -> Taint:
    undefined = np.zeros_like(taint.bits)
    for half in (np.uint64(0xFFFF), np.uint64(0xFFFF0000)):
        undefined |= np.where(taint.bits & half != 0, half, NONE)
    return Taint(taint.origin, undefined)


def _one_bit(taint: Taint) -> Taint:
    return Taint(taint.origin, np.where(taint.bits != 0, np.uint64(1), NONE))


def _settled(taints: Sequence[Taint | None], values: Sequence[Any], by_ones: bool) -> Taint:
    """The result of `and` or `or`: a defined 0, or 1 if `by_ones`, determines the result bit.
    Operands without a value determine nothing."""
    origin: Any = np.int32(0)
    undefined: Any = NONE
    settled: Any = NONE
    for taint, value in zip(taints, values, strict=True):
        known: Any = ALL
        if taint is not None:
            origin, undefined = np.maximum(origin, taint.origin), undefined | taint.bits
            known = ~taint.bits
        if value is not None:
            array = three_axes(value)
            narrow = array if array.dtype == bool else array.view(f"u{array.itemsize}")
            word = narrow.astype(np.uint64)
            settled = settled | known & (word if by_ones else ~word)
    return Taint(np.asarray(origin), undefined & ~settled)


def _moved(i: Instruction, taints: Sequence[Taint | None]) -> Taint | None:
    """The result of an instruction that moves bits by constant distances; None for others."""
    taint = taints[0] or DEFINED
    numbers = [o.value if isinstance(o, Imm) else -1 for o in i.operands[2:]]
    is_signed = i.opcode[-1].startswith("s")
    width = 8 * WIDTHS.get(i.opcode[-1], 8)
    match i.root:
        case "cvt" if not {"f", "b", "t", "e"} & {x[0] for x in i.opcode[-2:]}:
            return _extended(taint, width, is_signed)
        case "shl" if 0 <= numbers[0] < 64:
            return Taint(taint.origin, taint.bits << np.uint64(numbers[0]))
        case "shr" if 0 <= numbers[0] < width:
            long = _extended(taint, width, is_signed)
            if not is_signed:
                return Taint(long.origin, long.bits >> np.uint64(numbers[0]))
            shifted = long.bits.view(np.int64) >> np.int64(numbers[0])
            return Taint(long.origin, shifted.view(np.uint64))
        case "bfe" if min(numbers) >= 0 and numbers[0] + numbers[1] <= width:
            cut = Taint(taint.origin, taint.bits >> np.uint64(numbers[0]))
            return _extended(cut, max(numbers[1], 1), is_signed)
        case "bfi" if min(numbers[1:]) >= 0:
            field, base = mask_of(numbers[2]), taints[1] or DEFINED
            put = (taint.bits & field) << np.uint64(numbers[1])
            kept = base.bits & ~(field << np.uint64(numbers[1]))
            return Taint(np.maximum(taint.origin, base.origin), put | kept)
        case "prmt" if i.modifiers == ("b32",) and numbers[1] >= 0:
            other = taints[1] or DEFINED
            return _permuted(taint, other, numbers[1])
    return None


def _extended(taint: Taint, width: int, is_signed: bool) -> Taint:
    """The lower `width` bits, zero- or sign-extended."""
    low = taint.bits & mask_of(width)
    if is_signed:
        sign = low >> np.uint64(width - 1) & np.uint64(1) != 0
        low = np.where(sign, low | ~mask_of(width), low)
    return Taint(taint.origin, low)


def _permuted(a: Taint, b: Taint, selector: int) -> Taint:
    both = a.bits & mask_of(32) | (b.bits & mask_of(32)) << np.uint64(32)
    undefined = np.zeros_like(both)
    for k in range(4):
        number = selector >> 4 * k & 15
        byte = both >> np.uint64(8 * (number & 7)) & np.uint64(0xFF)
        if number & 8:  # replicate the sign bit
            byte = np.where(byte >> np.uint64(7) != 0, np.uint64(0xFF), NONE)
        undefined |= byte << np.uint64(8 * k)
    return Taint(np.maximum(a.origin, b.origin), undefined)
