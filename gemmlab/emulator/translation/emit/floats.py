"""Python for comparisons, conversions, and the arithmetic of 16-bit floats."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.formats import BITS
from gemmlab.emulator.arithmetic.halves import ONE
from gemmlab.emulator.translation import isa
from gemmlab.emulator.translation.emit.instructions import Emitters
from gemmlab.emulator.translation.translator import BOOL, Translator
from gemmlab.ptx.ir import WIDTHS, Instruction, Operand, Vector

PAIRS = ("f16x2", "bf16x2")
HALVES = ("f16", "bf16", *PAIRS)
JOINS = {"and": "&", "or": "|", "xor": "^"}

# Comparisons


def set_predicate(t: Translator, i: Instruction) -> None:
    """setp.cmp[.bool][.ftz].type p[|q], a, b[, [!]c]. q is the negated comparison. For packed
    halves, p is the comparison of the lower halves and q that of the upper ones."""
    comparison, *words, type_ = i.modifiers
    result = _compare(t, i, comparison, type_, i.operands[1], i.operands[2])
    combine = next((w for w in words if w != "ftz"), None)
    targets = i.operands[0].items if isinstance(i.operands[0], Vector) else (i.operands[0],)
    if (len(targets) > 1 and type_ in ONE) or (len(targets) != 2 and type_ in PAIRS):
        t.unsupported("packed halves have one predicate each")
    t.line(f"c = {result}")
    if type_ in PAIRS:
        t.line("c, nc = c[..., 0], c[..., 1]")
    else:
        t.line("nc = ~c" if len(targets) > 1 else "pass")
    combined = _combine(t, i, combine)
    for target, value in zip(targets, ("c", "nc"), strict=False):
        t.assign(i, target, f"{value}{combined}", BOOL)


def _combine(t: Translator, i: Instruction, combine: str | None) -> str:
    """Return the boolean operation that combines a comparison with the last operand."""
    if (combine is not None) != (len(i.operands) == 4):
        t.unsupported()
    return f" {JOINS[combine]} ({t.value(i.operands[3], BOOL)})" if combine else ""


def set_value(t: Translator, i: Instruction) -> None:
    """set.cmp[.bool][.ftz].dtype.stype d, a, b[, [!]c]. d is all ones or 1.0 if the comparison
    holds."""
    comparison, *words, to, type_ = i.modifiers
    condition = _compare(t, i, comparison, type_, i.operands[1], i.operands[2])
    combined = _combine(t, i, next((w for w in words if w != "ftz"), None))
    if combined:
        condition = f"({condition}){f'{combined}[..., None]' if type_ in PAIRS else combined}"
    dtype = isa.DTYPES["b32" if to in PAIRS else "b16" if to in ONE else to]
    if to in ONE or to in PAIRS:
        value = f"halves.choose({condition}, {to!r})"
    elif type_ in PAIRS:  # all ones per half
        value = f"formats.merge(np.where({condition}, np.uint16(65535), np.uint16(0)))"
        dtype = np.dtype("u4")
    else:
        yes = dtype.type(1) if dtype.kind == "f" else ~dtype.type(0)
        value = f"select({condition}, {t.constant(yes)}, {t.constant(dtype.type(0))})"
    t.assign(i, i.operands[0], value, dtype)


def _compare(
    t: Translator, i: Instruction, comparison: str, type_: str, a: Operand, b: Operand
) -> str:
    template = isa.COMPARISONS[comparison]
    if type_ in HALVES:
        bits = isa.DTYPES["b32" if type_ in PAIRS else "b16"]
        x, y = (f"halves.comparable({t.value(o, bits)}, {type_!r}, ftz)" for o in (a, b))
        return template.format(x, y).replace("ftz", str("ftz" in i.modifiers))
    dtype = isa.DTYPES[type_]
    if dtype.kind != "f" and comparison == "ne":
        template = isa.INTEGER_NE
    x, y = t.value(a, dtype), t.value(b, dtype)
    if "ftz" in i.modifiers:
        x, y = f"n.flush({x})", f"n.flush({y})"
    return template.format(x, y)


# Conversions

INTEGRAL = ("rni", "rzi", "rmi", "rpi")


def convert(t: Translator, i: Instruction) -> None:
    """cvt[.rounding][.ftz][.relu][.sat | .satfinite].to.from d, a[, b]"""
    words = [m for m in i.modifiers if m not in WIDTHS and m.removesuffix("x2") not in BITS]
    types = [m for m in i.modifiers if m in WIDTHS or m.removesuffix("x2") in BITS]
    rounding = next((w for w in words if w.startswith("r") and w != "relu"), "")
    left = set(words) - {rounding}
    to, source = types
    is_float = source[0] == "f" or source.removesuffix("x2") in BITS
    if to.endswith("x2"):
        _convert_pair(t, i, to, source, rounding, left)
        return
    if len(i.operands) != 2:
        t.unsupported()
    # ptxas ignores .ftz in conversions to f16.
    value = _source(t, i.operands[1], source, "ftz" in left and to != "f16")
    if to in BITS:
        if rounding in INTEGRAL:
            value = f"n.ROUND_TO_INTEGER[{rounding!r}]({value})"
            rounding = ""
        t.assign(i, i.operands[0], _narrow(value, to, rounding, left), np.dtype(BITS[to]))
        return
    dtype = isa.DTYPES[to]
    kind = f"{t.dtype(dtype)}.type"
    if dtype.kind == "f" and is_float:
        if rounding in INTEGRAL:
            value = f"n.ROUND_TO_INTEGER[{rounding!r}]({value})"
        # bf16 to f32 only shifts bits
        elif source != to and (source, to, left) != ("bf16", "f32", set()):
            value = f"n.to_float({value}, {kind}, {rounding or 'rn'!r})"
        if "sat" in left:
            value = f"n.saturate({value})"
        elif "ftz" in left and to == "f32":
            value = f"n.flush({value})"
    elif is_float:
        value = f"n.to_integer({value}, {kind}, {rounding!r})"
    elif dtype.kind == "f":
        value = f"n.to_float({value}, {kind}, {rounding or 'rn'!r})"
        value = f"n.saturate({value})" if "sat" in left else value
    elif "sat" in left:
        value = f"n.clamp({value}, {kind})"
    else:
        value = f"{value}.astype({t.dtype(dtype)})"
    t.assign(i, i.operands[0], value, dtype)


def _source(t: Translator, operand: Operand, type_: str, ftz: bool) -> str:
    """Return a source operand as an expression in a type that NumPy computes in."""
    if type_ in BITS:
        return f"formats.widen({t.value(operand, np.dtype(BITS[type_]))}, {type_!r})"
    value = t.value(operand, isa.DTYPES[type_])
    return f"n.canonical32(n.flush({value}))" if ftz and type_ == "f32" else value


def _narrow(value: str, to: str, rounding: str, words: set[str]) -> str:
    kept = sorted(words & {"relu", "sat", "satfinite"})
    return f"formats.narrow({value}, {to!r}, {rounding or 'rn'!r}, {kept!r})"


def _convert_pair(
    t: Translator, i: Instruction, to: str, source: str, rounding: str, words: set[str]
) -> None:
    """cvt.….f16x2.f32 d, a, b, where a yields the upper half and b the lower; or a conversion of a
    packed pair, half by half."""
    single = to.removesuffix("x2")
    width = 2 * np.dtype(BITS[single]).itemsize
    if source == "f32" and len(i.operands) == 3:
        upper, lower = (_source(t, o, source, "ftz" in words) for o in i.operands[1:])
        halves = [_narrow(x, single, rounding, words) for x in (lower, upper)]
        value = f"formats.join({', '.join(halves)})"
    elif source.endswith("x2") and len(i.operands) == 2:
        inner = source.removesuffix("x2")
        bits = t.value(i.operands[1], np.dtype(f"u{2 * np.dtype(BITS[inner]).itemsize}"))
        parts = f"formats.widen(formats.split({bits}), {inner!r})"
        value = f"formats.merge({_narrow(parts, single, rounding, words)})"
    else:
        t.unsupported()
    t.assign(i, i.operands[0], value, np.dtype(f"u{width}"))


# Arithmetic of f16 and bf16

FLUSHABLE = {"rn", "ftz", "sat"}
ARITHMETIC: dict[str, tuple[int, set[str]]] = {  # operands, modifiers
    "add": (2, FLUSHABLE),
    "sub": (2, FLUSHABLE),
    "mul": (2, FLUSHABLE),
    "fma": (3, {*FLUSHABLE, "relu", "oob"}),
    "neg": (1, {"ftz"}),
    "abs": (1, {"ftz"}),
    "min": (2, {"ftz", "NaN", "xorsign", "abs"}),
    "max": (2, {"ftz", "NaN", "xorsign", "abs"}),
    "ex2": (1, {"approx", "ftz"}),
    "tanh": (1, {"approx"}),
}
NEEDED = {"fma": {"rn"}, "ex2": {"approx"}, "tanh": {"approx"}}


def compute_halves(t: Translator, i: Instruction) -> None:
    """An operation of ARITHMETIC on f16, bf16, or packed pairs of them."""
    *words, type_ = i.modifiers
    count, allowed = ARITHMETIC[i.root]
    if type_.startswith("bf16"):
        allowed = allowed - {"ftz", "sat"} | ({"ftz"} if i.root == "ex2" else set())
    needed = NEEDED.get(i.root, set())
    pair = {"xorsign", "abs"} & {*words}
    if {*words} - allowed or needed - {*words} or len(pair) == 1 or len(i.operands) != 1 + count:
        t.unsupported()
    if {"relu", "sat"} <= {*words}:
        t.unsupported()
    dtype = isa.DTYPES["b32" if type_ in PAIRS else "b16"]
    values = ", ".join(t.value(o, dtype) for o in i.operands[1:])
    kept = sorted(set(words) - {"rn", "approx", "abs"})
    result = f"halves.compute({i.root!r}, {type_!r}, {kept!r}, {values})"
    t.assign(i, i.operands[0], result, dtype)


EMITTERS: Emitters = {
    "setp": (set_predicate, {3, 4}),
    "set": (set_value, {3, 4}),
    "cvt": (convert, {2, 3}),
}
EMITTERS |= {
    f"{root}.{type_}": (compute_halves, {1 + count})
    for root, (count, _) in ARITHMETIC.items()
    for type_ in HALVES
}
