"""Python for integer instructions with a carry, with two types, or on parts of a register."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.translation import isa
from gemmlab.emulator.translation.emit.instructions import Emitters, from_table
from gemmlab.emulator.translation.translator import BOOL, U32, Translator
from gemmlab.ptx.ir import Imm, Instruction, Reg, Vector

# The carry flag of the condition code register. Subtraction adds the complement, so sub.cc and
# subc.cc set it if there is no borrow; 128-bit divisions read it with addc.
CARRY = Reg("CC.CF", "pred")
WORDS = ("u32", "s32")
EXTENDED = (*WORDS, "u64", "s64")
SELECTED = (*(f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64)), "f32", "f64")
PAIRS = ("u16x2", "s16x2")


def extended(t: Translator, i: Instruction) -> None:
    """add, sub, mad with .cc, which write the carry; addc, subc, madc, which read it."""
    words = {*i.modifiers[:-1]} - {"lo", "hi", "cc"}
    if words or i.opcode[-1] not in EXTENDED:
        t.unsupported()
    dtype = isa.DTYPES[i.opcode[-1]]
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
    t.line("s, c = x - y, x >= y" if is_difference else "s = x + y; c = s < x")
    if i.root.endswith("c"):
        carry = f"({'~' if is_difference else ''}{t.value(CARRY, BOOL)})"
        t.line(f"k = {carry}.astype({t.dtype(bits)})")
        t.line("s, c = s - k, c & (s >= k)" if is_difference else "s = s + k; c = c | (s < k)")
    t.assign(i, i.operands[0], "s", bits)
    if "cc" in i.modifiers:
        t.assign(i, CARRY, "c", BOOL)


def dot_product(t: Translator, i: Instruction) -> None:
    """dp4a.atype.btype d, a, b, c; dp2a.lo.atype.btype, dp2a.hi.…"""
    *_, a, b = ("", "", *i.modifiers)
    if a not in WORDS or b not in WORDS:
        t.unsupported()
    values = ", ".join(t.value(o, U32) for o in i.operands[1:])
    signed = a == "s32", b == "s32"
    which = f", {2 * (i.name == 'dp2a.hi')}" if i.root == "dp2a" else ""
    t.assign(i, i.operands[0], f"packed.dot{i.root[2]}({values}, {signed}{which})", U32)


def absolute_difference(t: Translator, i: Instruction) -> None:
    """vabsdiff4.dtype.atype.btype[.add] d, a, b, c; vabsdiff2 is the same on halves."""
    types, words = i.modifiers[:3], i.modifiers[3:]
    if len(types) != 3 or set(types) - {*WORDS} or words not in ((), ("add",)):
        t.unsupported()
    values = ", ".join(t.value(o, U32) for o in i.operands[1:])
    signed = types[1] == "s32", types[2] == "s32"
    how = f"{32 // int(i.root[-1])}, {signed}, {bool(words)}"
    t.assign(i, i.operands[0], f"packed.differences({values}, {how})", U32)


def on_halves(t: Translator, i: Instruction) -> None:
    """add, min, max of .u16x2 or .s16x2, min and max of .s16x2 with .relu"""
    *words, type_ = i.modifiers
    if words not in ([], ["relu"]) or (words and (i.root == "add" or type_ != "s16x2")):
        t.unsupported()
    values = ", ".join(t.value(o, U32) for o in i.operands[1:])
    function = {"add": "np.add", "min": "np.minimum", "max": "np.maximum"}[i.root]
    result = f"packed.halves({function}, {type_ == 's16x2'}, {values})"
    if words:
        zero = t.constant(np.uint32(0))
        result = f"packed.halves(np.maximum, True, {result}, {zero})"
    t.assign(i, i.operands[0], result, U32)


def convert_and_pack(t: Translator, i: Instruction) -> None:
    """cvt.pack.sat.type.s32 d, a, b. For types of at most 8 bits: cvt.pack.sat.type.s32.b32 d, a,
    b, c, where c supplies the upper bits."""
    _, sat, to, *rest = (*i.modifiers, "", "")
    width = {"2": 2, "4": 4, "8": 8, "16": 16}.get(to[1:], 0)
    expected = ["s32"] if width == 16 else ["s32", "b32"]
    is_known = sat == "sat" and to[:1] in ("u", "s") and width and rest == [*expected, "", ""]
    if not is_known or len(i.operands) != 2 + len(expected):
        t.unsupported()
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    values = [t.value(o, U32) for o in i.operands[1:]]
    a, b, c = [*values, values[-1]][:3]
    t.assign(i, i.operands[0], f"packed.pack({a}, {b}, {c}, {low}, {high}, {width})", U32)


def logic(t: Translator, i: Instruction) -> None:
    """lop3.{and,or}.b32 d|p, a, b, c, table, [!]q. p is (d != 0) combined with q."""
    if not isinstance(i.operands[4], Imm):
        t.unsupported("the table must be a constant")
    match i.modifiers, i.operands[0]:
        case ("b32",), _:
            from_table(t, i)
        case (("and" | "or") as operation, "b32"), Vector((target, predicate)) if i.operands[5:]:
            a, b, c, table = (t.value(o, U32) for o in i.operands[1:5])
            t.line(f"x = n.logic3({a}, {b}, {c}, {table})")
            symbol = {"and": "&", "or": "|"}[operation]
            q = t.value(i.operands[5], BOOL)
            t.line(f"c = (x != {t.constant(np.uint32(0))}) {symbol} ({q})")
            t.assign(i, target, "x", U32)
            t.assign(i, predicate, "c", BOOL)
        case _:
            t.unsupported()


def select_by_sign(t: Translator, i: Instruction) -> None:
    """slct.dtype.ctype d, a, b, c. d is a if c ≥ 0, else b; .ftz applies to c."""
    *words, type_, sign = ("", "", *i.modifiers)
    flush = "ftz" in words
    if type_ not in SELECTED or sign not in ("s32", "f32") or (flush and sign != "f32"):
        t.unsupported()
    dtype, own = isa.DTYPES[type_], isa.DTYPES[sign]
    a, b = (t.value(o, dtype) for o in i.operands[1:3])
    c = t.value(i.operands[3], own)
    condition = f"{f'n.flush({c})' if flush else c} >= {t.constant(own.type(0))}"
    t.assign(i, i.operands[0], f"select({condition}, {a}, {b})", dtype)


EMITTERS: Emitters = {
    "dp4a": (dot_product, {4}),
    "dp2a.lo": (dot_product, {4}),
    "dp2a.hi": (dot_product, {4}),
    "vabsdiff4": (absolute_difference, {4}),
    "vabsdiff2": (absolute_difference, {4}),
    "cvt.pack": (convert_and_pack, {3, 4}),
    "lop3": (logic, {5, 6}),
    "slct": (select_by_sign, {4}),
}
EMITTERS |= {f"{root}.{t}": (on_halves, {3}) for root in ("add", "min", "max") for t in PAIRS}
EMITTERS |= dict.fromkeys(("add.cc", "sub.cc", "addc", "subc"), (extended, {3}))
EMITTERS |= dict.fromkeys(("mad.lo.cc", "mad.hi.cc", "madc.lo", "madc.hi"), (extended, {4}))
