"""f16, bf16, packed pairs of them, tf32 and 8-bit floats against rationals, bit for bit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from reference import (
    FORMATS,
    Reference,
    arithmetic,
    larger,
    nan_wins,
    of_sizes,
    rounded,
    smaller,
)

from gemmlab.errors import UnsupportedInstructionError

RNG = np.random.default_rng(8)
LANES = 512
# Parameters of the other formats, as FORMATS of reference.py has them for f16, with the numbers of
# exponent and mantissa bits.
FORMATS |= {"bf16": (8, -133, 3.3895313892515355e38), "tf32": (11, -136, 3.4011621342146535e38)}
FORMATS |= {"e4m3": (4, -9, 448.0), "e5m2": (3, -16, 57344.0)}
FIELDS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "e4m3": (4, 3), "e5m2": (5, 2)}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "tf32": 0x7FFFE000, "e4m3": 0x7F, "e5m2": 0x7F}


def decoded(bits: int, kind: str) -> float:
    """Return the number that a register's bits encode, by the definition of the formats."""
    exponent_bits, mantissa_bits = FIELDS[kind]
    bits >>= 13 if kind == "tf32" else 0
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0
    exponent = bits >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = bits & (1 << mantissa_bits) - 1
    top = (1 << exponent_bits) - 1
    if kind == "e4m3" and exponent == top and mantissa == 7:
        return math.nan
    if kind != "e4m3" and exponent == top:
        return math.copysign(math.nan, sign) if mantissa else sign * math.inf
    bias = (1 << exponent_bits - 1) - 1
    fraction = mantissa if exponent == 0 else mantissa | 1 << mantissa_bits
    return sign * math.ldexp(fraction, max(exponent, 1) - bias - mantissa_bits)


def encoded(value: float, kind: str) -> int:
    """Return the bits of a number that the format can represent."""
    if math.isnan(value):
        return NAN[kind]
    exponent_bits, mantissa_bits = FIELDS[kind]
    sign = int(math.copysign(1, value) < 0) << (exponent_bits + mantissa_bits)
    bias, top = (1 << exponent_bits - 1) - 1, (1 << exponent_bits) - 1
    if math.isinf(value):
        bits = top << mantissa_bits
    else:
        fraction, exponent = math.frexp(abs(value))
        exponent = max(exponent - 1, 1 - bias)
        whole = int(math.ldexp(abs(value), mantissa_bits - exponent))
        bits = (exponent + bias - 1 << mantissa_bits) + whole if fraction else 0
    return (sign | bits) << (13 if kind == "tf32" else 0)


def patterns(kind: str) -> np.ndarray:
    """Return registers with edge values, numbers near 1, and random bits."""
    exponent_bits, mantissa_bits = FIELDS[kind]
    one, top = ((1 << exponent_bits - 1) - 1 << mantissa_bits), (1 << exponent_bits) - 1
    sign = 1 << exponent_bits + mantissa_bits
    infinity = top << mantissa_bits
    edge = [0, 1, one, one + 1, one - 1, infinity - 1, infinity, infinity + 1, 1 << mantissa_bits]
    edge += [(1 << mantissa_bits) - 1, NAN[kind] if kind != "tf32" else infinity | 1]
    near = one + RNG.integers(-(4 << mantissa_bits), 4 << mantissa_bits, LANES)
    anything = RNG.integers(0, 2 * sign, LANES)
    pool = np.concatenate([np.array(edge), near, anything])
    drawn = RNG.choice(pool, LANES) | RNG.choice([0, sign], LANES)
    return drawn.astype({"e4m3": "u1", "e5m2": "u1"}.get(kind, "u2"))


def clamped(reference: Reference, low: float) -> Reference:
    """Apply .relu (low = 0, NaN is kept) or .sat (NaN becomes 0)."""

    def result(*operands: float) -> float:
        x = reference(*operands)
        if low:  # .sat
            return min(x, 1.0) if x > 0 else 0.0
        return x if math.isnan(x) else max(x, 0.0) + 0.0

    return result


def flushed(reference: Reference, kind: str) -> Reference:
    digits, lowest, _ = FORMATS[kind]
    tiny = 2.0 ** (lowest + digits - 1)

    def flush(x: float) -> float:
        return math.copysign(0.0, x) if abs(x) < tiny else x

    return lambda *operands: flush(reference(*map(flush, operands)))


def rows(kind: str) -> list[tuple[str, int, Reference]]:
    add = arithmetic(kind, lambda a, b: a + b, lambda a, b: (a, b))
    sub = arithmetic(kind, lambda a, b: a - b, lambda a, b: (a, -b))
    mul = arithmetic(kind, lambda a, b: a * b, lambda a, b: (a * b,))
    fma = arithmetic(kind, lambda a, b, c: a * b + c, lambda a, b, c: (a * b, c))
    found = [("add", 2, add), ("sub.rn", 2, sub), ("mul", 2, mul), ("fma.rn", 3, fma)]
    found += [("fma.rn.relu", 3, clamped(fma, 0)), ("neg", 1, lambda a: -a), ("abs", 1, abs)]
    for name, function in (("min", smaller), ("max", larger)):
        found += [(name, 2, function), (f"{name}.NaN", 2, nan_wins(function))]
        found += [(f"{name}.xorsign.abs", 2, of_sizes(function))]
    if kind == "f16":
        found += [("add.sat", 2, clamped(add, 1)), ("fma.rn.sat", 3, clamped(fma, 1))]
        found += [("mul.ftz", 2, flushed(mul, kind)), ("fma.rn.ftz", 3, flushed(fma, kind))]
        found += [("max.ftz", 2, flushed(larger, kind))]
    return found


ROWS = [(op, kind, n, f) for kind in ("f16", "bf16") for op, n, f in rows(kind)]


@pytest.mark.parametrize(("opcode", "kind", "count", "reference"), ROWS)
def test_arithmetic(compute, opcode, kind, count, reference):
    operands = [patterns(kind) for _ in range(count)]
    names = ", ".join(f"%{n}" for n in "abc"[:count])
    wanted = [
        encoded(reference(*(decoded(x, kind) for x in row)), kind)
        for row in zip(*(x.tolist() for x in operands), strict=True)
    ]
    [got] = compute(f"{opcode}.{kind} %x, {names};", [("b16", x) for x in operands], ["b16"])
    assert got.tolist() == wanted
    # Packed pairs: the lower half holds one row, the upper half the next.
    pairs = [("b32", x.view("u4")) for x in operands]
    [got] = compute(f"{opcode}.{kind}x2 %x, {names};", pairs, ["b32"])
    assert got.view("u2").tolist() == wanted
    single = [("b32", x.view("u4")[:1]) for x in operands]
    [got] = compute(f"{opcode}.{kind}x2 %x, {names};", single, ["b32"], uniform=True)
    assert set(got.tolist()) == {wanted[0] | wanted[1] << 16}


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_fma_next_to_ties_rounds_once(compute, kind):
    digits = FORMATS[kind][0]
    whole = RNG.integers(1 << digits - 1, 1 << digits, (3, LANES)).astype(float)
    a, b = whole[0], 1 + RNG.choice([1, 3, -1], LANES) * 2.0 ** (1 - digits)
    c = a * 2.0 ** RNG.integers(-digits - 3, 3, LANES) * RNG.choice([1, -1], LANES)
    bits = [np.array([encoded(rounded(v, kind), kind) for v in x], "u2") for x in (a, b, c)]
    fma = arithmetic(kind, lambda a, b, c: a * b + c, lambda a, b, c: (a * b, c))
    exact = [[decoded(v, kind) for v in x.tolist()] for x in bits]
    [got] = compute(f"fma.rn.{kind} %x, %a, %b, %c;", [("b16", x) for x in bits], ["b16"])
    assert got.tolist() == [encoded(fma(*row), kind) for row in zip(*exact, strict=True)]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_a_product_with_the_fill_of_a_tensor_copy_is_zero(compute, kind):
    a, b, c = np.array([0x7FF7, 0x3C00, 0x7FFF], "u2"), patterns(kind)[:3], patterns(kind)[:3]
    b[1] = 0x7FF7
    inputs = [("b16", np.resize(x, 32)) for x in (a, b, c)]
    [got] = compute(f"fma.rn.oob.{kind} %x, %a, %b, %c;", inputs, ["b16"])
    assert got[:3].tolist() == [0, 0, 0x7FFF]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("opcode", "function"), [("ex2.approx", math.exp2), ("tanh.approx", math.tanh)]
)
def test_approximations_stay_near(compute, kind, opcode, function):
    x = RNG.uniform(-6, 6, LANES)
    bits = np.array([encoded(rounded(v, kind), kind) for v in x], "u2")
    name = f"{opcode}.ftz" if (opcode, kind) == ("ex2.approx", "bf16") else opcode
    [got] = compute(f"{name}.{kind} %x, %a;", [("b16", bits)], ["b16"])
    exact = [function(decoded(v, kind)) for v in bits.tolist()]
    values = [decoded(v, kind) for v in got.tolist()]
    np.testing.assert_allclose(values, exact, rtol=2.0 ** (1 - FORMATS[kind][0]))


# Comparisons

ORDER = {
    "eq": lambda a, b: a == b,
    "neu": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "geu": lambda a, b: not a < b,
    "nan": lambda a, b: a != a or b != b,
}


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ORDER)
def test_comparisons(compute, kind, name):
    a, b = patterns(kind), patterns(kind)
    b[::3] = a[::3]
    wanted = [
        ORDER[name](decoded(x, kind), decoded(y, kind))
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    halves, pairs = [("b16", a), ("b16", b)], [("b32", a.view("u4")), ("b32", b.view("u4"))]
    [p] = compute(f"setp.{name}.{kind} %x, %a, %b;", halves, ["pred"])
    assert p.tolist() == wanted
    low, high = compute(f"setp.{name}.{kind}x2 %x|%y, %a, %b;", pairs, ["pred", "pred"])
    assert (low.tolist(), high.tolist()) == (wanted[::2], wanted[1::2])
    one = encoded(1.0, kind)
    [ones] = compute(f"set.{name}.{kind}.{kind} %x, %a, %b;", halves, ["b16"])
    assert ones.tolist() == [one * w for w in wanted]
    [ones] = compute(f"set.{name}.{kind}x2.{kind}x2 %x, %a, %b;", pairs, ["b32"])
    assert ones.view("u2").tolist() == [one * w for w in wanted]
    [mask] = compute(f"set.{name}.u32.{kind} %x, %a, %b;", halves, ["u32"])
    assert mask.tolist() == [0xFFFFFFFF * w for w in wanted]
    [mask] = compute(f"set.{name}.u32.{kind}x2 %x, %a, %b;", pairs, ["u32"])
    assert mask.view("u2").tolist() == [0xFFFF * w for w in wanted]


# Conversions


def singles() -> np.ndarray:
    """Return float32 values near ties of the narrow formats, random ones, and specials."""
    near = []
    for kind in FIELDS:
        digits = FORMATS[kind][0]
        whole = RNG.integers(1 << digits, 2 << digits, 60) | 1  # half a unit in the last place
        scale = RNG.integers(-18 if kind[0] != "b" else -140, 9, 60) - digits
        near.append(np.ldexp(whole.astype(float), scale))
    x = np.concatenate(near).astype("f4")
    x = np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(9e9))])
    edge = [0, 1, np.inf, np.nan, 65504, 65519.996, 65520, 3.4e38, 1e-45, 448, 464, 57344, 61440]
    anything = RNG.integers(0, 2**32, 200, np.uint64).astype("u4").view("f4")
    x = np.concatenate([x, np.array(edge, "f4"), anything])
    return np.concatenate([x, -x])


def narrowed(kind: str, mode: str, *words: str) -> Reference:
    largest = FORMATS[kind][2]

    def reference(x: float) -> float:
        # rna of x is rz of x plus half a unit in the last place
        if mode == "rna" and math.isfinite(x) and x:
            step = Fraction(2) ** max(math.frexp(x)[1] - FORMATS[kind][0], FORMATS[kind][1])
            value = rounded(Fraction(x) + math.copysign(1, x) * step / 2, kind, "rz")
            value = value if abs(x) < largest + float(step) / 2 else math.copysign(math.inf, x)
        else:
            value = rounded(x, kind, mode)
        if "satfinite" in words:
            value = value if math.isnan(value) else max(min(value, largest), -largest)
        if "sat" in words:
            value = clamped(lambda y: y, 1)(value)
        return clamped(lambda y: y, 0)(value) if "relu" in words else value

    return reference


MODES = [(k, m) for k in ("f16", "bf16") for m in ("rn", "rz")]
NARROWING: list[tuple[str, str, tuple[str, ...]]] = [
    (k, m, w) for k, m in MODES for w in ((), ("relu",), ("satfinite",))
]
NARROWING += [(k, m, ()) for k in ("f16", "bf16") for m in ("rm", "rp")]
NARROWING += [("f16", "rn", ("sat",)), ("f16", "rz", ("relu", "satfinite"))]
NARROWING += [("tf32", m, ()) for m in ("rn", "rz", "rna")] + [("tf32", "rna", ("satfinite",))]


@pytest.mark.parametrize(("kind", "mode", "words"), NARROWING)
def test_float32_narrows(compute, kind, mode, words):
    x = singles()
    x = x[~np.isnan(x)] if mode == "rna" else x
    wanted = [encoded(narrowed(kind, mode, *words)(v), kind) for v in x.tolist()]
    register = "b32" if kind == "tf32" else "b16"
    opcode = ".".join(["cvt", mode, *words, kind, "f32"])
    [got] = compute(f"{opcode} %x, %a;", [("f32", x)], [register])
    assert got.tolist() == wanted
    if register == "b16" and mode in ("rn", "rz") and "sat" not in words:
        opcode = ".".join(["cvt", mode, *words, f"{kind}x2", "f32"])
        [got] = compute(f"{opcode} %x, %b, %a;", [("f32", x), ("f32", x[::-1].copy())], ["b32"])
        assert got.tolist() == [
            low | high << 16 for low, high in zip(wanted, wanted[::-1], strict=True)
        ]


def test_ties_away_from_zero_are_an_addition_to_the_bits(compute):
    """The conversion adds to the bits, so a NaN yields its upper bits or a number, as read from
    machine code."""
    nans = np.array([0x7FC00000, 0xFFC01234, 0x7F800001, 0x7F800000], np.uint32)
    [got] = compute("cvt.rna.tf32.f32 %x, %a;", [("f32", nans.view("f4"))], ["b32"])
    assert got.tolist() == [0x7FC00000, 0xFFC00000, 0x7F800000, 0x7F800000]
    [got] = compute("cvt.rna.satfinite.tf32.f32 %x, %a;", [("f32", nans.view("f4"))], ["b32"])
    assert got.tolist() == [0x7FBFE000, 0xFFBFE000, 0x7F7FE000, 0x7F7FE000]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_widen_and_narrow(compute, kind):
    x = patterns(kind)
    values = [decoded(v, kind) for v in x.tolist()]
    for to in ("f32", "f64"):
        [got] = compute(f"cvt.{to}.{kind} %x, %a;", [("b16", x)], [to])
        np.testing.assert_array_equal(got, np.array(values, got.dtype))
    other = {"f16": "bf16", "bf16": "f16"}[kind]
    [got] = compute(f"cvt.rn.{other}.{kind} %x, %a;", [("b16", x)], ["b16"])
    assert got.tolist() == [encoded(rounded(v, other), other) for v in values]
    for mode, round_ in (("rni", round), ("rzi", math.trunc), ("rpi", math.ceil)):
        [got] = compute(f"cvt.{mode}.s16.{kind} %x, %a;", [("b16", x)], ["s16"])
        limit = [max(min(v, 32767), -32768) if v == v else 0 for v in values]
        assert got.tolist() == [round_(v) for v in limit]
        [got] = compute(f"cvt.{mode}.{kind}.{kind} %x, %a;", [("b16", x)], ["b16"])
        wanted = [math.copysign(round_(v), v) if math.isfinite(v) else v for v in values]
        assert got.tolist() == [encoded(v, kind) for v in wanted]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integers_and_float64_narrow_in_one_step(compute, kind, mode):
    digits = FORMATS[kind][0]
    whole = RNG.integers(1 << digits, 2 << digits, 40) | 1
    x = np.concatenate([whole << np.int64(62 - digits), RNG.integers(-(2**63), 2**63 - 1, 40)])
    x = np.concatenate([x, x + 1, x - 1])  # near ties, where float64 would round first
    [got] = compute(f"cvt.{mode}.{kind}.s64 %x, %a;", [("s64", x)], ["b16"])
    assert got.tolist() == [encoded(rounded(Fraction(v), kind, mode), kind) for v in x.tolist()]
    y = np.ldexp(whole.astype(float), RNG.integers(-20, 4, 40) - digits)
    y = np.concatenate([y, np.nextafter(y, 0), np.nextafter(y, 9e9), -y, [0.0, -0.0, np.inf]])
    [got] = compute(f"cvt.{mode}.{kind}.f64 %x, %a;", [("f64", y)], ["b16"])
    assert got.tolist() == [encoded(rounded(v, kind, mode), kind) for v in y.tolist()]


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_eight_bit_floats(compute, kind, relu):
    x = singles()
    reference = narrowed(kind, "rn", "satfinite", *relu.split(".")[1:])
    low = [encoded(reference(v), kind) for v in x.tolist()]
    opcode = f"cvt.rn.satfinite{relu}.{kind}x2"
    [got] = compute(f"{opcode}.f32 %x, %b, %a;", [("f32", x), ("f32", x[::-1].copy())], ["b16"])
    assert got.tolist() == [a | b << 8 for a, b in zip(low, low[::-1], strict=True)]
    halves = patterns("f16")
    wanted = [encoded(reference(decoded(v, "f16")), kind) for v in halves.tolist()]
    [got] = compute(f"{opcode}.f16x2 %x, %a;", [("b32", halves.view("u4"))], ["b16"])
    assert got.view("u1").tolist() == wanted
    all_bytes = np.arange(256, dtype="u1")
    [got] = compute(
        f"cvt.rn{relu}.f16x2.{kind}x2 %x, %a;", [("b16", all_bytes.view("u2"))], ["b32"]
    )
    wide = [decoded(v, kind) for v in range(256)]
    clamp = clamped(lambda v: v, 0) if relu else lambda v: v
    assert got.view("u2").tolist() == [encoded(clamp(v), "f16") for v in wide]


@pytest.mark.parametrize(
    "code",
    [
        "add.sat.bf16 %h1, %h2, %h3;",
        "fma.rz.f16 %h1, %h2, %h3, %h4;",
        "min.rn.f16 %h1, %h2, %h3;",
        "cvt.rn.f16x2.f32 %r1, %f1;",
        "cvt.rn.e4m3x2.u32 %h1, %r1;",
        "setp.lt.e4m3 %p1, %h1, %h2;",
    ],
)
def test_forms_that_do_not_exist(launch, code):
    with pytest.raises(UnsupportedInstructionError, match=code.split()[0].replace(".", r"\.")):
        launch(code)
