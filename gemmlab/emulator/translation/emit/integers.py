"""Python for integer instructions with a carry, with two types, or on parts of a register."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gemmlab.emulator.ptx.ir import Instruction, Reg
from gemmlab.emulator.translation import isa
from gemmlab.emulator.translation.emit.instructions import BOOL, U32, Emitters

if TYPE_CHECKING:
    from gemmlab.emulator.translation.translate import Translator

CARRY = Reg("CC.CF", "pred")  # the carry of the condition code register; a borrow of sub and subc
WORDS = ("u32", "s32")
PAIRS = ("u16x2", "s16x2")


def extended(t: Translator, i: Instruction) -> None:
    """add, sub, mad with .cc, which leaves a carry behind; addc, subc, madc, which take it in."""
    dtype = isa.DTYPES[i.modifiers[-1]]
    bits = np.dtype(f"u{dtype.itemsize}")
    *factors, last = i.operands[1:]
    if len(factors) == 2:
        a, b = (t.value(o, dtype) for o in factors)
        first = f"n.multiply_high({a}, {b})" if "hi" in i.modifiers else f"{a} * {b}"
        first = f"({first}).view({t.dtype(bits)})"
    else:
        first = t.value(factors[0], bits)
    t.line(f"x, y = {first}, {t.value(last, bits)}")
    is_difference = i.root.startswith("sub")
    t.line("s, c = x - y, x < y" if is_difference else "s = x + y; c = s < x")
    if i.root.endswith("c"):
        t.line(f"k = {t.value(CARRY, BOOL)}.astype({t.dtype(bits)})")
        t.line("s, c = s - k, c | (s < k)" if is_difference else "s = s + k; c = c | (s < k)")
    t.assign(i, i.operands[0], "s", bits)
    if "cc" in i.modifiers:
        t.assign(i, CARRY, "c", BOOL)


def dot_product(t: Translator, i: Instruction) -> None:
    """dp4a.atype.btype d, a, b, c; dp2a.lo.atype.btype, dp2a.hi.…"""
    *half, a, b = i.modifiers
    halves = [["lo"], ["hi"]] if i.root == "dp2a" else [[]]
    if a not in WORDS or b not in WORDS or half not in halves:
        t.unsupported("no such form of it")
    values = ", ".join(t.value(o, U32) for o in i.operands[1:])
    signed = a == "s32", b == "s32"
    which = f", {2 * (half == ['hi'])}" if half else ""
    t.assign(i, i.operands[0], f"packed.dot{i.root[2]}({values}, {signed}{which})", U32)


def absolute_difference(t: Translator, i: Instruction) -> None:
    """vabsdiff4.dtype.atype.btype[.add] d, a, b, c; vabsdiff2 the same on halves"""
    types, words = i.modifiers[:3], i.modifiers[3:]
    if len(types) != 3 or set(types) - {*WORDS} or words not in ((), ("add",)):
        t.unsupported("no such form of it")
    values = ", ".join(t.value(o, U32) for o in i.operands[1:])
    signed = types[1] == "s32", types[2] == "s32"
    how = f"{32 // int(i.root[-1])}, {signed}, {bool(words)}"
    t.assign(i, i.operands[0], f"packed.differences({values}, {how})", U32)


def on_halves(t: Translator, i: Instruction) -> None:
    """add, min, max of .u16x2 or .s16x2, the last two with .relu"""
    values = ", ".join(t.value(o, U32) for o in i.operands[1:])
    function = {"add": "np.add", "min": "np.minimum", "max": "np.maximum"}[i.root]
    result = f"packed.halves({function}, {'s16x2' in i.modifiers}, {values})"
    if "relu" in i.modifiers:
        zero = t.constant(np.uint32(0))
        result = f"packed.halves(np.maximum, True, {result}, {zero})"
    t.assign(i, i.operands[0], result, U32)


def convert_and_pack(t: Translator, i: Instruction) -> None:
    """cvt.pack.sat.type.s32 d, a, b; of types of 8 bits and less cvt.pack.sat.type.s32.b32 d, a, b,
    c, whose bits go above"""
    to, *rest = i.modifiers[2:]
    width = int(to[1:]) if to[1:].isdigit() else 0
    expected = ["s32"] if width == 16 else ["s32", "b32"]
    if width not in (2, 4, 8, 16) or rest != expected or len(i.operands) != 2 + len(expected):
        t.unsupported("no such form of it")
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    values = [t.value(o, U32) for o in i.operands[1:]]
    a, b, c = [*values, values[-1]][:3]
    t.assign(i, i.operands[0], f"packed.pack({a}, {b}, {c}, {low}, {high}, {width})", U32)


def select_by_sign(t: Translator, i: Instruction) -> None:
    """slct.dtype.ctype d, a, b, c: a where c is not negative, else b; .ftz is that of c"""
    *words, type_, sign = i.modifiers
    if type_ not in isa.DTYPES or sign not in ("s32", "f32") or set(words) - {"ftz"}:
        t.unsupported("no such form of it")
    dtype, own = isa.DTYPES[type_], isa.DTYPES[sign]
    a, b = (t.value(o, dtype) for o in i.operands[1:3])
    c = t.value(i.operands[3], own)
    condition = f"{f'n.flush({c})' if words else c} >= {t.constant(own.type(0))}"
    t.assign(i, i.operands[0], f"select({condition}, {a}, {b})", dtype)


EMITTERS: Emitters = {
    "dp4a": (dot_product, {4}),
    "dp2a": (dot_product, {4}),
    "vabsdiff4": (absolute_difference, {4}),
    "vabsdiff2": (absolute_difference, {4}),
    "cvt.pack.sat": (convert_and_pack, {3, 4}),
    "slct": (select_by_sign, {4}),
}
EMITTERS |= {f"{root}.{t}": (on_halves, {3}) for root in ("add", "min", "max") for t in PAIRS}
EMITTERS |= {
    f"{root}.{words}": (on_halves, {3})
    for root in ("min", "max")
    for words in ("relu.s16x2", "s16x2.relu")
}
EMITTERS |= {
    f"{root}.{words}": (extended, {count})
    for type_ in ("u32", "s32", "u64", "s64")
    for root, count, words in (
        *((root, 3, f"cc.{type_}") for root in ("add", "sub", "addc", "subc")),
        *((root, 3, type_) for root in ("addc", "subc")),
        *((root, 4, f"{half}.cc") for root in ("mad", "madc") for half in ("lo", "hi")),
        *(("madc", 4, f"{half}.{type_}") for half in ("lo", "hi")),
    )
}
