"""The instruction table: the types, operands and semantics of each arithmetic PTX instruction.

A row is a `Form`: the types it exists for, a signature with one letter per result and operand, and
the result as a NumPy expression of the operands {0}, {1}, … . emit/ handles loads, stores, control
flow and the few instructions whose form depends on more than one type (mov, cvt, setp).

Letters: T the instruction's type, U and S the unsigned and signed type of its width, W the type of
twice its width, I uint32, P predicate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from gemmlab.emulator.arithmetic import numerics
from gemmlab.ptx.ir import WIDTHS

DTYPES: dict[str, np.dtype] = {"pred": np.dtype(bool), "f16": np.dtype("f2")}
DTYPES |= {f"f{b}": np.dtype(f"f{b // 8}") for b in (32, 64)}
DTYPES |= {f"{k}{b}": np.dtype(f"u{b // 8}") for k in "ub" for b in (8, 16, 32, 64)}
DTYPES |= {f"s{b}": np.dtype(f"i{b // 8}") for b in (8, 16, 32, 64)}

INT = "u16 s16 u32 s32 u64 s64"
BITS = "b16 b32 b64"
WORDS = "b32 b64"
SHIFTS = "u16 u32 u64 s16 s32 s64"


@dataclass(frozen=True)
class Form:
    """A row of the table. `mode`: the modifiers that select it; `optional`: further modifiers it
    accepts."""

    types: tuple[str, ...]
    signature: str  # "T=TT": letters of the result and operands
    expression: str
    mode: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()

    @property
    def result(self) -> str:
        return self.signature.split("=")[0]

    @property
    def operands(self) -> str:
        return self.signature.split("=")[1]


def dtype_of(letter: str, ptx_type: str) -> np.dtype:
    """Return the NumPy type of a signature letter for an instruction of type `ptx_type`."""
    own = DTYPES[ptx_type]
    match letter:
        case "T":
            return own
        case "U":
            return np.dtype(f"u{own.itemsize}")
        case "S":
            return np.dtype(f"i{own.itemsize}")
        case "W":
            return np.dtype(f"{own.kind}{2 * own.itemsize}")
        case "I":
            return np.dtype("u4")
        case "P":
            return np.dtype(bool)
    raise ValueError(letter)


def _form(types: str, signature: str, expression: str, mode: str = "", optional: str = "") -> Form:
    words = frozenset(mode.split()), frozenset(optional.split())
    return Form(tuple(types.split()), signature, expression, *words)


def _directed(signature: str, expression: str, wide: str, optional: str = "ftz sat") -> list[Form]:
    """Return rows for the directed rounding modes: of float32 with their optional modifiers, and of
    float64 using the exact operation `wide` on rationals."""
    modes = ("rz", "rm", "rp")
    rows = [
        _form("f32", signature, expression.replace("MODE", repr(mode)), mode, optional)
        for mode in modes
    ]
    operands = ", ".join(f"{{{k}}}" for k in range(len(signature.split("=")[1])))
    call = f"doubles.directed64({wide!r}, MODE, {operands})"
    return rows + [_form("f64", signature, call.replace("MODE", repr(m)), m) for m in modes]


def _extreme(name: str) -> list[Form]:
    """Return rows for min or max of floats. With .NaN a NaN operand is the result; .xorsign.abs
    compares absolute values."""
    function = f"n.{name}imum"
    sizes = f"partial(n.of_sizes, {function})"
    return [
        _form("f32", "T=TT", f"n.either_nan({sizes}, {{0}}, {{1}})", "NaN xorsign abs", "ftz"),
        _form("f32", "T=TT", f"n.of_sizes({function}, {{0}}, {{1}})", "xorsign abs", "ftz"),
        _form("f32", "T=TT", f"n.either_nan({function}, {{0}}, {{1}})", "NaN", "ftz"),
        _form("f32", "T=TT", f"{function}({{0}}, {{1}})", optional="ftz"),
        _form("f64", "T=TT", f"doubles.propagate({function}({{0}}, {{1}}), {{1}}, {{0}})"),
    ]


def _saturated(sign: str) -> Form:
    """add or sub of signed 32-bit integers with .sat."""
    exact = f"{{0}}.astype(np.int64) {sign} {{1}}.astype(np.int64)"
    return _form("s32", "T=TT", f"n.clamp({exact}, np.int32)", "sat")


def _saturated_product(upper_half: str) -> Form:
    """mad or mad24 of signed 32-bit integers with .hi.sat."""
    exact = f"{upper_half}.astype(np.int64) + {{2}}.astype(np.int64)"
    return _form("s32", "T=TTT", f"n.clamp({exact}, np.int32)", "hi sat")


def _forms24(signature: str, plus: str) -> list[Form]:
    """Return rows for mul24 or mad24: the low 32 bits of a product of 24-bit integers or, with .hi,
    the upper 32 of its 48 bits."""
    a, b = "packed.low24({0})", "packed.low24({1})"
    wide = f"({a}.astype(np.int64) * {b}.astype(np.int64)) >> np.int64(16)"
    return [
        *([_saturated_product(f"({wide}).astype(np.int32)")] if plus else []),
        _form("u32 s32", signature, f"{a} * {b}{plus}", "lo"),
        _form("u32 s32", signature, f"({wide}).astype({{0}}.dtype){plus}", "hi"),
    ]


# Sums and low products have the same bits for signed and unsigned types.
FORMS: dict[str, list[Form]] = {
    "add": [
        *_directed("T=TT", "n.fma32_directed({0}, np.float32(1), {1}, MODE)", "add"),
        _saturated("+"),
        _form(INT, "U=UU", "{0} + {1}"),
        _form("f32", "T=TT", "n.add32({0}, {1})", optional="rn ftz sat"),
        _form("f64", "T=TT", "doubles.propagate({0} + {1}, {1}, {0})", optional="rn"),
    ],
    "sub": [
        *_directed("T=TT", "n.fma32_directed({0}, np.float32(1), -{1}, MODE)", "sub"),
        _saturated("-"),
        _form(INT, "U=UU", "{0} - {1}"),
        _form("f32", "T=TT", "n.sub32({0}, {1})", optional="rn ftz sat"),
        _form("f64", "T=TT", "doubles.propagate({0} - {1}, {1}, {0})", optional="rn"),
    ],
    "mul": [
        *_directed("T=TT", "n.mul32_directed({0}, {1}, MODE)", "mul"),
        _form(INT, "U=UU", "{0} * {1}", "lo"),
        _form(INT, "T=TT", "n.multiply_high({0}, {1})", "hi"),
        _form("u16 s16 u32 s32", "W=WW", "{0} * {1}", "wide"),
        _form("f32", "T=TT", "n.mul32({0}, {1})", optional="rn ftz sat"),
        _form("f64", "T=TT", "doubles.propagate({0} * {1}, {1}, {0})", optional="rn"),
    ],
    "mad": [
        *_directed("T=TTT", "n.fma32_directed({0}, {1}, {2}, MODE)", "fma"),
        _saturated_product("n.multiply_high({0}, {1})"),
        _form(INT, "U=UUU", "{0} * {1} + {2}", "lo"),
        _form(INT, "T=TTT", "n.multiply_high({0}, {1}) + {2}", "hi"),
        _form("u16 s16 u32 s32", "W=WWW", "{0} * {1} + {2}", "wide"),
        _form("f32", "T=TTT", "n.fma32({0}, {1}, {2})", "rn", "ftz sat"),
        _form("f64", "T=TTT", "doubles.fused({0}, {1}, {2})", "rn"),
    ],
    "fma": [
        *_directed("T=TTT", "n.fma32_directed({0}, {1}, {2}, MODE)", "fma"),
        _form("f32", "T=TTT", "n.fma32({0}, {1}, {2})", "rn", "ftz sat"),
        _form("f64", "T=TTT", "doubles.fused({0}, {1}, {2})", "rn"),
    ],
    "div": [
        *_directed("T=TT", "doubles.directed32('div', MODE, {0}, {1})", "div", "ftz"),
        _form(INT, "T=TT", "n.divide({0}, {1})"),
        *(_form("f32", "T=TT", "n.div32({0}, {1})", x, "ftz") for x in ("rn", "approx", "full")),
        _form("f64", "T=TT", "doubles.propagate({0} / {1}, {0}, {1})", "rn"),
    ],
    "rem": [_form(INT, "T=TT", "n.remainder({0}, {1})")],
    "abs": [
        _form("s16 s32 s64", "T=T", "np.abs({0})"),
        _form("f32", "T=T", "n.canonical32(np.abs({0}))", optional="ftz"),
        _form("f64", "T=T", "doubles.quiet(np.abs, {0})"),
    ],
    "neg": [
        _form("s16 s32 s64", "U=U", "~{0} + {0}.dtype.type(1)"),
        _form("f32", "T=T", "n.canonical32(-{0})", optional="ftz"),
        _form("f64", "T=T", "doubles.quiet(np.negative, {0})"),
    ],
    "min": [
        _form("s32", "T=TT", "np.maximum(np.minimum({0}, {1}), np.int32(0))", "relu"),
        _form(INT, "T=TT", "np.minimum({0}, {1})"),
        *_extreme("min"),
    ],
    "max": [
        _form("s32", "T=TT", "np.maximum(np.maximum({0}, {1}), np.int32(0))", "relu"),
        _form(INT, "T=TT", "np.maximum({0}, {1})"),
        *_extreme("max"),
    ],
    "sad": [_form(INT, "T=TTT", "np.maximum({0}, {1}) - np.minimum({0}, {1}) + {2}")],
    "rcp": [
        *_directed("T=T", "doubles.directed32('rcp', MODE, {0})", "rcp", "ftz"),
        *(_form("f32", "T=T", "n.reciprocal({0})", x, "ftz") for x in ("rn", "approx")),
        _form("f64", "T=T", "doubles.upper_half(1.0 / {0})", "approx ftz"),
        _form("f64", "T=T", "1.0 / {0}", "rn"),
    ],
    "sqrt": [
        *_directed("T=T", "doubles.directed32('sqrt', MODE, {0})", "sqrt", "ftz"),
        *(_form("f32", "T=T", "n.sqrt32({0})", x, "ftz") for x in ("rn", "approx")),
        _form("f64", "T=T", "np.sqrt({0})", "rn"),
    ],
    "rsqrt": [
        _form("f32", "T=T", "n.rsqrt({0})", "approx", "ftz"),
        _form("f64", "T=T", "doubles.upper_half(1.0 / np.sqrt({0}))", "approx ftz"),
        _form("f64", "T=T", "1.0 / np.sqrt({0})", "approx"),
    ],
    "ex2": [_form("f32", "T=T", "n.exp2({0})", "approx", "ftz")],
    "lg2": [_form("f32", "T=T", "n.log2({0})", "approx", "ftz")],
    "sin": [_form("f32", "T=T", "n.sine({0})", "approx", "ftz")],
    "cos": [_form("f32", "T=T", "n.cosine({0})", "approx", "ftz")],
    "tanh": [_form("f32", "T=T", "n.tangent_h({0})", "approx")],
    "copysign": [_form("f32 f64", "T=TT", "np.copysign({1}, {0})")],
    "and": [_form(BITS, "T=TT", "{0} & {1}"), _form("pred", "P=PP", "{0} & {1}")],
    "or": [_form(BITS, "T=TT", "{0} | {1}"), _form("pred", "P=PP", "{0} | {1}")],
    "xor": [_form(BITS, "T=TT", "{0} ^ {1}"), _form("pred", "P=PP", "{0} ^ {1}")],
    "not": [_form(BITS, "T=T", "~{0}"), _form("pred", "P=P", "~{0}")],
    "cnot": [_form(BITS, "T=T", "({0} == 0).astype({0}.dtype)")],
    "lop3": [_form("b32", "T=TTTI", "n.logic3({0}, {1}, {2}, {3})")],
    "shl": [_form(BITS, "T=TI", "n.shift_left({0}, {1})")],
    "shr": [_form(BITS + " " + SHIFTS, "T=TI", "n.shift_right({0}, {1})")],
    "shf": [
        _form("b32", "T=TTI", f"n.funnel({{0}}, {{1}}, {{2}}, {left}, {wrap})", f"{side} {mode}")
        for side, left in (("l", True), ("r", False))
        for mode, wrap in (("wrap", True), ("clamp", False))
    ],
    "bfe": [_form("u32 s32 u64 s64", "T=TII", "n.extract({0}, {1}, {2})")],
    "bfi": [_form(WORDS, "T=TTII", "n.insert({0}, {1}, {2}, {3})")],
    "mul24": _forms24("T=TT", ""),
    "mad24": _forms24("T=TTT", " + {2}"),
    "bmsk": [
        _form("b32", "T=TT", f"packed.mask_of({{0}}, {{1}}, {mode == 'wrap'})", mode)
        for mode in ("clamp", "wrap")
    ],
    "szext": [
        _form("u32 s32", "T=TI", f"packed.resize({{0}}, {{1}}, {mode == 'wrap'})", mode)
        for mode in ("clamp", "wrap")
    ],
    "fns": [_form("b32", "T=TTS", "packed.find_set({0}, {1}, {2})")],
    "popc": [_form(WORDS, "I=T", "np.bitwise_count({0}).astype(np.uint32)")],
    "clz": [_form(WORDS, "I=T", "n.count_leading_zeros({0})")],
    "brev": [_form(WORDS, "T=T", "n.reverse_bits({0})")],
    "bfind": [
        _form("u32 s32 u64 s64", "I=T", "n.find_leading({0}, shift=True)", "shiftamt"),
        _form("u32 s32 u64 s64", "I=T", "n.find_leading({0})"),
    ],
    "prmt": [
        *(
            _form("b32", "T=TTT", f"n.permute({{0}}, {{1}}, n.selector({{2}}, {name!r}))", name)
            for name in numerics.SELECTORS
        ),
        _form("b32", "T=TTT", "n.permute({0}, {1}, {2})"),
    ],
    "selp": [
        _form(f"{BITS} {INT} f32 f64", "T=TTP", "select({2}, {0}, {1})"),
    ],
    "testp": [
        _form("f32 f64", "P=T", expression, mode)
        for mode, expression in (
            ("finite", "np.isfinite({0})"),
            ("infinite", "np.isinf({0})"),
            ("number", "~np.isnan({0})"),
            ("notanumber", "np.isnan({0})"),
            ("normal", "np.isfinite({0}) & ~n.is_subnormal({0})"),  # includes zeros
            ("subnormal", "n.is_subnormal({0})"),
        )
    ],
}

# Comparisons of setp and set. The unordered ones ("…u") are true if an operand is NaN.
COMPARISONS = {
    "eq": "{0} == {1}",
    "ne": "({0} < {1}) | ({0} > {1})",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "lo": "{0} < {1}",
    "ls": "{0} <= {1}",
    "hi": "{0} > {1}",
    "hs": "{0} >= {1}",
    "equ": "~(({0} < {1}) | ({0} > {1}))",
    "neu": "{0} != {1}",
    "ltu": "~({0} >= {1})",
    "leu": "~({0} > {1})",
    "gtu": "~({0} <= {1})",
    "geu": "~({0} < {1})",
    "num": "({0} == {0}) & ({1} == {1})",
    "nan": "({0} != {0}) | ({1} != {1})",
}
INTEGER_NE = "{0} != {1}"


@cache
def find_form(root: str, modifiers: tuple[str, ...]) -> tuple[Form, str] | None:
    """Return the row for an opcode and its type, or None if the table has none."""
    types = [m for m in modifiers if m in WIDTHS]
    others = frozenset(m for m in modifiers if m not in WIDTHS)
    for form in FORMS.get(root, ()):
        fits = len(types) == 1 and types[0] in form.types
        if fits and form.mode <= others and others - form.mode <= form.optional:
            return form, types[0]
    return None
