"""Arithmetic on the native tier against the NumPy tier: bits and counters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from both_tiers import both
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import needs_native
from snippets import STORAGE, ptx

from gemmlab.emulator.translation import isa
from gemmlab.emulator.translation.emit import floats
from gemmlab.ptx.modifiers import read_opcode

RNG = np.random.default_rng(11)
pytestmark = needs_native

KINDS = {"b": "b", "u": "b", "s": "b", "f": "f"}


def register(type_: str) -> str:
    """Return the register type for an operand type."""
    return type_ if type_ == "pred" or type_[0] == "f" else f"b{type_[1:]}"


def drawn(type_: str, count: int) -> np.ndarray:
    """Return random bits, small numbers and edge values."""
    width = int(type_[1:]) // 8
    raw = RNG.integers(0, 256, (count, width), np.uint8).view(f"u{width}").reshape(count)
    small = RNG.integers(0, 70, count).astype(f"u{width}")
    values = np.where(RNG.random(count) < 0.5, raw, small).astype(f"u{width}")
    values[:3] = 0, 1, np.iinfo(values.dtype).max
    if type_[0] != "f":
        return values
    real = values.view(f"f{width}").copy()
    edges = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 2.5], real.dtype)
    normal = RNG.standard_normal(count).astype(real.dtype)
    return np.where(RNG.random(count) < 0.5, normal, RNG.choice([*edges, *real], count)).astype(
        real.dtype
    )


TYPES = ("b16", "b32", "b64", "f32", "f64")


def arithmetic(operations: Sequence[tuple[str, str, Sequence[str], str]]) -> None:
    """Run many instructions on two warps. An operation is (opcode, result type, operand types,
    further operands as text)."""
    lanes = 64
    inputs = [drawn(t, 3 * lanes) for t in TYPES]
    results = {t: sum(register(op[1]) == t for op in operations) for t in (*TYPES, "pred")}
    outputs = [
        np.zeros(max(results[t], 1) * lanes, STORAGE["u32" if t == "pred" else t][2])
        for t in results
    ]
    body = [".reg .u32 %tid; .reg .b64 %base, %at; .reg .pred %pa, %pb, %pc, %px;"]
    body.append("mov.u32 %tid, %tid.x;")
    for n, type_ in enumerate(TYPES):
        width = int(type_[1:]) // 8
        body.append(f".reg .{type_} %{type_}a, %{type_}b, %{type_}c, %{type_}x;")
        body.append(f"ld.param.u64 %base, [p{n}]; mad.wide.u32 %at, %tid, {width}, %base;")
        for k, name in enumerate("abc"):
            body.append(f"ld.global.{type_} %{type_}{name}, [%at+{k * lanes * width}];")
    for k, name in enumerate("abc"):
        body.append(f"and.b32 %r1, %b32{name}, 1; setp.eq.u32 %p{name}, %r1, {k % 2};")
    place = dict.fromkeys(results, 0)
    for opcode, result, types, more in operations:
        target = register(result)
        sources = [
            f"%{'p' if t == 'pred' else register(t)}{n}" for t, n in zip(types, "abc", strict=False)
        ]
        destination = "%px" if target == "pred" else f"%{target}x"
        body.append(f"{opcode} {', '.join([destination, *sources, *filter(None, [more])])};")
        if target == "pred":
            body.append("selp.u32 %r1, 1, 0, %px;")
        width = outputs[list(results).index(target)].itemsize
        body.append(f"ld.param.u64 %base, [p{len(TYPES) + list(results).index(target)}];")
        body.append(f"mad.wide.u32 %at, %tid, {width}, %base;")
        stored = "b32 [%at+{}], %r1" if target == "pred" else f"{target} [%at+{{}}], %{target}x"
        body.append(f"st.global.{stored.format(place[target] * lanes * width)};")
        place[target] += 1
    text = ptx("\n".join([*body, "ret;"]), ["u64"] * (len(inputs) + len(outputs)))
    both(text, [*inputs, *outputs], block=(lanes, 1, 1))


def operation(root: str, form: isa.Form, type_: str, extra: str = "") -> tuple[Any, ...]:
    size = type_ if type_ == "pred" else int(type_[1:])
    wide = type_ if type_ == "pred" else f"{type_[0]}{2 * size}"
    letters = {"T": type_, "U": type_, "S": type_, "W": wide, "I": "u32", "P": "pred"}
    sources = [
        type_ if letter == "W" and k < 2 else letters[letter]
        for k, letter in enumerate(form.operands)
    ]
    more = ""
    if root == "lop3":
        sources, more = sources[:3], "0x96"
    if root in ("selp", "bfi"):  # four operands, or a predicate after two
        sources, more = (sources[:2], "%pc") if root == "selp" else (sources[:3], "7")
    side = form.mode & {"l", "r"}  # part of the name, so it comes first
    words = [root, *side, *sorted(form.mode - side), *filter(None, [extra]), type_]
    return ".".join(words), letters[form.result], sources, more


ROWS = [
    operation(root, form, type_, extra)
    for root, forms in isa.FORMS.items()
    for form in forms
    for type_ in form.types
    for extra in ("", *sorted(form.optional))
    if type_ in {"pred", *STORAGE} and not (type_ == "f64" and form.mode & {"rz", "rm", "rp"})
]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.slow
def test_every_row_of_the_instruction_table(part: int) -> None:
    arithmetic(ROWS[part::4])


def conversions() -> list[tuple[Any, ...]]:
    found = []
    for to, source in itertools.permutations(("u16", "s32", "u32", "s64", "u64", "f32", "f64"), 2):
        reals = to[0] == "f", source[0] == "f"
        modes = {
            (True, True): ["rn", "rz", "rm", "rp"] if to == "f32" else [""],
            (True, False): ["rn", "rz", "rm", "rp"],
            (False, True): ["rni", "rzi", "rmi", "rpi"],
            (False, False): ["", "sat"],
        }[reals]
        for mode in modes:
            opcode = ".".join(["cvt", *filter(None, [mode]), to, source])
            found.append((opcode, to, [source], ""))
    return found


def test_conversions() -> None:
    arithmetic(conversions())


def test_comparisons() -> None:
    rows = [
        (f"setp.{comparison}.{type_}", "pred", [type_, type_], "")
        for comparison in isa.COMPARISONS
        for type_ in ("u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64")
        if not read_opcode(("setp", comparison, type_)).problem
    ]
    arithmetic(rows)


def halves() -> list[tuple[Any, ...]]:
    words = {"fma": "rn", "ex2": "approx", "tanh": "approx"}
    found = []
    for type_ in floats.HALVES:
        register = "b32" if type_.endswith("x2") else "b16"
        for root, (count, _) in floats.ARITHMETIC.items():
            ftz = "ftz" if (root, type_[:4]) == ("ex2", "bf16") else ""
            opcode = ".".join([root, *filter(None, [words.get(root, ""), ftz]), type_])
            found.append((opcode, register, [register] * count, ""))
    for to, rounding in itertools.product(("f16", "bf16"), ("rn", "rz", "rn.relu")):
        found.append((f"cvt.{rounding}.{to}.f32", "b16", ["f32"], ""))
        found.append((f"cvt.{rounding}.{to}x2.f32", "b32", ["f32", "f32"], ""))
        found.append((f"cvt.f32.{to}", "f32", ["b16"], ""))
    found += [(f"cvt.rzi.{to}.f16", to, ["b16"], "") for to in ("s32", "u16", "s64")]
    return [*found, ("cvt.rna.tf32.f32", "b32", ["f32"], "")]


def test_halves() -> None:
    arithmetic(halves())


def test_choices_between_constants() -> None:
    body = """ld.param.u64 %q0, [p0]; mov.u32 %r0, %tid.x; mad.wide.u32 %q1, %r0, 8, %q0;
        mov.pred %p1, 1; selp.u32 %r1, 3, 4, %p1; st.global.u32 [%q1], %r1;
        setp.eq.u32 %p2, %r0, 5; selp.f32 %f1, 0f3F800000, 0f40000000, %p2;
        st.global.f32 [%q1+4], %f1; ret;"""
    both(ptx(body, ["u64"]), [np.zeros(64, np.uint32)])


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
def test_shuffles_of_constants(mode: str) -> None:
    body = f"""ld.param.u64 %q0, [p0]; mov.u32 %r0, %tid.x; mad.wide.u32 %q1, %r0, 8, %q0;
        shfl.sync.{mode}.b32 %r1|%p1, 7, 5, 31, -1; selp.u32 %r2, 1, 0, %p1;
        st.global.v2.u32 [%q1], {{%r1, %r2}}; ret;"""
    both(ptx(body, ["u64"]), [np.zeros(64, np.uint32)])


@pytest.mark.slow
@settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(st.sampled_from(ROWS), min_size=5, max_size=40), st.randoms())
def test_random_programs(operations: list[tuple[Any, ...]], random: Random) -> None:
    """Instructions that use each other's results, some of them guarded."""
    lanes = 96
    inputs = [drawn(t, 3 * lanes) for t in TYPES]
    moves: dict[str, list[str]] = {"ld": [], "st": []}
    for n, type_ in enumerate(TYPES):
        width = int(type_[1:]) // 8
        where = f"ld.param.u64 %base, [p{n}]; mad.wide.u32 %at, %tid, {width}, %base;"
        for k in range(3):
            at, name = f"[%at+{k * lanes * width}]", f"%{type_}_{k}"
            moves["ld"].append(f"{where} ld.global.{type_} {name}, {at};")
            moves["st"].append(f"{where} st.global.{type_} {at}, {name};")
    body = [f".reg .{t} %{t}_<3>;" for t in TYPES]
    body += [".reg .u32 %tid; .reg .b64 %base, %at; .reg .pred %pa, %pb, %pc;"]
    body += ["mov.u32 %tid, %tid.x;", *moves["ld"], "and.b32 %r1, %b32_0, 1;"]
    body += ["setp.eq.u32 %pa, %r1, 1; setp.lt.s32 %pb, %b32_1, %b32_2; not.pred %pc, %pa;"]

    def pick(type_: str) -> str:
        if type_ == "pred":
            return random.choice(["%pa", "%pb", "%pc"])
        return f"%{register(type_)}_{random.randrange(3)}"

    for opcode, result, types, more in operations:
        guard = random.choice(["", "", "@%pa ", "@!%pb "])
        operands = [pick(result), *map(pick, types), *filter(None, [more])]
        body.append(f"{guard}{opcode} {', '.join(operands)};")
    text = ptx("\n".join([*body, *moves["st"], "ret;"]), ["u64"] * len(inputs))
    both(text, inputs, block=(lanes, 1, 1))
