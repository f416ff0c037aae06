"""Floating-point arithmetic, comparisons and conversions against rationals, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from machine import sample
from reference import (
    FORMATS,
    LANES,
    RNG,
    Reference,
    add,
    bits_of,
    check,
    div,
    fma,
    larger,
    mul,
    nan_wins,
    of_sizes,
    reciprocal,
    result_bits,
    rounded,
    smaller,
    sub,
)

# Floating point


def root(type_: str, mode: str = "rn") -> Reference:
    def reference(a: float) -> float:
        if not a > 0 or math.isinf(a):
            return math.nan if not a >= 0 and a != 0 else a
        # With 200 more bits, the integer square root rounds like the exact one.
        scaled = Fraction(a) * 4**1300
        whole = math.isqrt(math.floor(scaled))
        odd = Fraction(whole) + (Fraction(1, 2) if whole * whole != scaled else 0)
        return rounded(odd / 2**1300, type_, mode)

    return reference


def flushed(reference: Reference) -> Reference:
    def flush(x: float) -> float:
        return math.copysign(0.0, x) if 0 < abs(x) < 2.0**-126 else x

    return lambda *operands: flush(reference(*map(flush, operands)))


def saturated(reference: Reference) -> Reference:
    return lambda *operands: min(x, 1.0) if (x := reference(*operands)) > 0 else 0.0


def normal(a: float, type_: str) -> bool:
    """testp.normal, which includes zeros."""
    return math.isfinite(a) and (
        a == 0 or abs(a) >= float(np.finfo(f"f{int(type_[1:]) // 8}").tiny)
    )


def float_rows() -> list[tuple[str, str, Reference]]:
    rows: list[tuple[str, str, Reference]] = []
    for t in ("f32", "f64"):
        two = f"{t} {t} {t}"
        rows += [
            (f"add.{t}", two, add(t)),
            (f"sub.rn.{t}", two, sub(t)),
            (f"mul.{t}", two, mul(t)),
            (f"div.rn.{t}", two, div(t)),
            (f"fma.rn.{t}", f"{two} {t}", fma(t)),
            (f"mad.rn.{t}", f"{two} {t}", fma(t)),
            (f"rcp.rn.{t}", f"{t} {t}", reciprocal(t)),
            (f"sqrt.rn.{t}", f"{t} {t}", root(t)),
            (f"min.{t}", two, smaller),
            (f"max.{t}", two, larger),
            (f"abs.{t}", f"{t} {t}", abs),
            (f"neg.{t}", f"{t} {t}", lambda a: -a),
            (f"copysign.{t}", two, lambda a, b: math.copysign(b, a)),
            (f"testp.finite.{t}", f"pred {t}", math.isfinite),
            (f"testp.notanumber.{t}", f"pred {t}", math.isnan),
            (f"testp.normal.{t}", f"pred {t}", lambda a, t=t: normal(a, t)),
            (f"testp.subnormal.{t}", f"pred {t}", lambda a, t=t: a * 0 == 0 and not normal(a, t)),
        ]
        if t == "f32":
            rows += [
                ("add.ftz.f32", two, flushed(add(t))),
                ("mul.ftz.f32", two, flushed(mul(t))),
                ("fma.rn.ftz.f32", f"{two} f32", flushed(fma(t))),
                ("add.sat.f32", two, saturated(add(t))),
                ("fma.rn.sat.f32", f"{two} f32", saturated(fma(t))),
            ]
            for name, function in (("min", smaller), ("max", larger)):
                rows.append((f"{name}.NaN.f32", two, nan_wins(function)))
                rows.append((f"{name}.xorsign.abs.f32", two, of_sizes(function)))
                rows.append((f"{name}.NaN.xorsign.abs.f32", two, of_sizes(nan_wins(function))))
        for mode in ("rz", "rm", "rp"):
            rows += [
                (f"div.{mode}.{t}", two, div(t, mode)),
                (f"rcp.{mode}.{t}", f"{t} {t}", reciprocal(t, mode)),
                (f"sqrt.{mode}.{t}", f"{t} {t}", root(t, mode)),
                (f"add.{mode}.{t}", two, add(t, mode)),
                (f"sub.{mode}.{t}", two, sub(t, mode)),
                (f"mul.{mode}.{t}", two, mul(t, mode)),
                (f"fma.{mode}.{t}", f"{two} {t}", fma(t, mode)),
            ]
    return rows


@pytest.mark.parametrize(("opcode", "signature", "reference"), sample(float_rows()))
def test_floats(compute, opcode, signature, reference):
    check(compute, opcode, signature, reference)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_fma_of_near_ties_is_exact(compute, type_):
    """Products near a tie of the sum, where double rounding would show."""
    digits = FORMATS[type_][0]
    kind = np.dtype(f"f{int(type_[1:]) // 8}").type
    n = 512
    a = RNG.integers(1 << (digits - 1), 1 << digits, n, np.uint64).astype(kind)
    b = (1 + RNG.choice([1, 3, -1], n) * 2.0 ** (1 - digits)).astype(kind)
    c = (a * kind(2.0) ** RNG.integers(-2, digits + 2, n) * RNG.choice([1, -1], n)).astype(kind)
    [got] = compute(f"fma.rn.{type_} %x, %a, %b, %c;", [(type_, x) for x in (a, b, c)], [type_])
    wanted = [fma(type_)(*row) for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    assert result_bits(got, type_) == [bits_of(x, type_) for x in wanted]


A, B = 0x7FF0000000000123, 0xFFF8000000000456  # a signalling NaN and a quiet one
QUIET = A | 1 << 51


@pytest.mark.parametrize(
    ("opcode", "operands", "wanted"),
    [
        ("add.f64", (A, B), B),  # result of an H200
        ("add.f64", (A, 0), QUIET),
        ("mul.rn.f64", (B, A), QUIET),
        ("div.rn.f64", (A, B), QUIET),
        ("min.f64", (A, B), B),
        ("fma.rn.f64", (A, B, A), B),
        ("fma.rn.f64", (B, 0, A), QUIET),
        ("fma.rz.f64", (B, 0, A), QUIET),
        ("neg.f64", (A,), QUIET),
        ("abs.f64", (B,), B),
        # The product overflows although the exact result is finite.
        ("fma.rn.f64", (0x7FEFFFFFFFFFFFFF, 0x4340000000000000, 0xFFF << 52), 0xFFF << 52),
    ],
)
def test_float64_keeps_the_nan_of_an_operand(compute, opcode, operands, wanted):
    inputs = [("b64", np.full(32, x, np.uint64)) for x in operands]
    names = ", ".join(f"%{n}" for n in "abc"[: len(operands)])
    [got] = compute(f"{opcode} %x, {names};", inputs, ["b64"])
    assert set(got.tolist()) == {wanted}


@pytest.mark.parametrize(
    ("opcode", "reference", "low", "high", "tolerance"),
    [
        ("ex2.approx.ftz.f32", np.exp2, -20, 20, 2**-22),
        ("lg2.approx.ftz.f32", np.log2, 2, 1000, 2**-22),
        ("sin.approx.f32", np.sin, 0.1, 3, 2**-20),
        ("cos.approx.f32", np.cos, 0, 1.4, 2**-20),
        ("tanh.approx.f32", np.tanh, -4, 4, 2**-11),
        ("rsqrt.approx.f32", lambda x: x**-0.5, 0.01, 1000, 2**-22),
        ("rcp.approx.ftz.f32", np.reciprocal, 0.01, 1000, 2**-23),
        ("sqrt.approx.f32", np.sqrt, 0, 1000, 2**-23),
    ],
)
def test_approximations_stay_inside_the_error_that_ptx_states(
    compute, opcode, reference, low, high, tolerance
):
    x = RNG.uniform(low, high, LANES).astype(np.float32)
    [got] = compute(f"{opcode} %x, %a;", [("f32", x)], ["f32"])
    np.testing.assert_allclose(got, reference(x.astype(float)), rtol=tolerance)


# Comparisons

UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
ORDER: dict[str, Reference] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def comparison(name: str) -> Reference:
    def reference(a: float, b: float) -> bool:
        nan = a != a or b != b
        if name in ("num", "nan"):
            return nan == (name == "nan")
        if name in UNORDERED:
            return nan or ORDER[UNORDERED[name]](a, b)
        return not nan and ORDER[name](a, b)

    return reference


UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
COMPARISONS = {
    **dict.fromkeys(("f32", "f64"), [*ORDER, *UNORDERED, "num", "nan"]),
    **dict.fromkeys(("u16", "u64"), [*ORDER, *UNSIGNED]),
    **dict.fromkeys(("s32", "s64"), [*ORDER]),
}


@pytest.mark.parametrize(
    ("type_", "name"), [(type_, name) for type_, names in COMPARISONS.items() for name in names]
)
def test_setp(compute, type_, name):
    reference = comparison(UNSIGNED.get(name, name))
    check(compute, f"setp.{name}.{type_}", f"pred {type_} {type_}", reference)


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
@pytest.mark.parametrize("negated", ["", "!"])
@pytest.mark.parametrize("guard", ["", "@%p1 ", "@!%x "])
def test_setp_combines_and_gives_two_predicates(compute, combine, negated, guard):
    a, b, c = (RNG.integers(0, 3, LANES) for _ in range(3))
    x, y = compute(
        "setp.ne.s32 %p1, %c, 0; setp.eq.s32 %p2, %c, 2; setp.eq.s32 %x, %c, 1; mov.pred %y, %p2;"
        f"{guard}setp.lt.{combine}.s32 %x|%y, %a, %b, {negated}%p2;",
        [("s32", v) for v in (a, b, c)],
        ["pred", "pred"],
    )
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[combine]
    third = (c == 2) ^ bool(negated)
    on = {"": c >= 0, "@%p1 ": c != 0, "@!%x ": c != 1}[guard]
    np.testing.assert_array_equal(x, np.where(on, join(a < b, third), c == 1))
    np.testing.assert_array_equal(y, np.where(on, join(a >= b, third), c == 2))


@pytest.mark.parametrize(
    ("opcode", "signature", "reference"),
    [
        ("set.lt.u32.f32", "u32 f32 f32", lambda a, b: -(a < b)),
        ("set.ge.s32.s32", "s32 s32 s32", lambda a, b: -(a >= b)),
        ("set.gt.f32.u32", "f32 u32 u32", lambda a, b: float(a > b)),
    ],
)
def test_set(compute, opcode, signature, reference):
    check(compute, opcode, signature, reference)


# Conversions

ROUND: dict[str, Callable[[float], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


def to_integer(type_: str, mode: str, source: str) -> Reference:
    bits, signed = int(type_[1:]), type_[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def reference(x: float) -> int:
        if math.isnan(x):
            return 0 if source != "f64" and bits < 64 else 1 << bits - 1
        if math.isinf(x):
            return low if x < 0 else high
        return min(max(ROUND[mode](x), low), high)

    return reference


def to_integral(mode: str) -> Reference:
    round_ = ROUND[mode]
    return lambda x: math.copysign(float(round_(x)), x) if math.isfinite(x) else x


def clamp(type_: str) -> Reference:
    info = np.iinfo(f"{'i' if type_[0] == 's' else 'u'}{int(type_[1:]) // 8}")
    return lambda x: min(max(x, int(info.min)), int(info.max))


def conversion_rows() -> list[tuple[str, str, Reference]]:
    integers = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    rows: list[tuple[str, str, Reference]] = []
    for to in integers:
        for source in integers:
            if to != source:
                rows.append((f"cvt.{to}.{source}", f"{to} {source}", lambda x: x))
                rows.append((f"cvt.sat.{to}.{source}", f"{to} {source}", clamp(to)))
    for source in ("f32", "f64"):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            for t in ("u8", "s16", "u32", "s32", "u64", "s64"):
                rows.append(
                    (f"cvt.{mode}.{t}.{source}", f"{t} {source}", to_integer(t, mode, source))
                )
            rows.append((f"cvt.{mode}.{source}.{source}", f"{source} {source}", to_integral(mode)))
    for to in ("f16", "f32", "f64"):
        for mode in ("rn", "rz", "rm", "rp"):
            for t in ("u16", "s32", "u64", "s64"):
                rows.append(
                    (
                        f"cvt.{mode}.{to}.{t}",
                        f"{to} {t}",
                        lambda x, to=to, mode=mode: rounded(Fraction(x), to, mode),
                    )
                )
    for to, source in (("f32", "f64"), ("f16", "f32")):
        for mode in ("rn", "rz", "rm", "rp"):
            rows.append(
                (
                    f"cvt.{mode}.{to}.{source}",
                    f"{to} {source}",
                    lambda x, to=to, mode=mode: rounded(x, to, mode),
                )
            )
    for to, source in (("f32", "u8"), ("f32", "s64"), ("f64", "s32"), ("f16", "u16")):
        rows.append((f"cvt.rn.sat.{to}.{source}", f"{to} {source}", lambda x: min(max(x, 0), 1)))
    rows += [
        ("cvt.f64.f32", "f64 f32", lambda x: x),
        ("cvt.f32.f16", "f32 f16", lambda x: x),
        ("cvt.sat.f32.f32", "f32 f32", saturated(lambda x: x)),
        ("cvt.ftz.f32.f32", "f32 f32", flushed(lambda x: x)),
        ("cvt.rn.ftz.f32.f64", "f32 f64", lambda x: flushed(lambda y: y)(rounded(x, "f32"))),
        ("cvt.rzi.ftz.s32.f32", "s32 f32", to_integer("s32", "rzi", "f32")),
    ]
    return rows


@pytest.mark.parametrize("opcode", ["neg.f32", "abs.f32", "neg.ftz.f32", "cvt.ftz.f32.f32"])
def test_what_is_an_addition_of_zero_gives_the_canonical_nan(compute, opcode):
    nans = np.array([0x7FC00001, 0xFF800001], np.uint32).view("f4")
    [got] = compute(f"{opcode} %x, %a;", [("f32", nans)], ["b32"])
    assert got.tolist() == [0x7FFFFFFF] * 2


@pytest.mark.parametrize(("opcode", "signature", "reference"), sample(conversion_rows()))
def test_conversions(compute, opcode, signature, reference):
    check(compute, opcode, signature, reference)
