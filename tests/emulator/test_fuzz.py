"""Damaged PTX ends soon, with a result or with one of gemmlab's errors."""

import contextlib
import random
import re

import numpy as np
import pytest
from forms import FORMS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snippets import HEADER, ptx

from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.emulator import run
from gemmlab.errors import GemmlabError, LaunchError, PtxSyntaxError, UnsupportedInstructionError
from gemmlab.kernels import ladder

NAMES = ("naive", "shared", "sum:warp-shuffle", "histogram:shared-atomics")
SIZES = {"gemm": (5, 4, 3), "sum": (70,), "histogram": (70,)}
WORDS = re.compile(r"[.%$\w:]+|[^\s\w]")
STRANGE = [
    "",
    "0",
    "-1",
    "4294967296",
    "0f7FC00000",
    "%r0",
    "%p1",
    "[%rd1]",
    "{",
    "}",
    ";",
    ",",
    "@",
]
STRANGE += [".v4", ".f64", ".pred", ".shared", "bar.sync", "bra", "ret", "%tid.x", "$L", '"', "/*"]


def launched(name):
    """Return the PTX of a rung and the arguments of a small launch."""
    rung = ladder.find(name)
    problem = problems.find(rung.problem)
    shape = dict(zip(problem.axes, SIZES[rung.problem], strict=True))
    case = problem.case(shape, rung.layout, problem.families[0], 0)
    values = dict(case.buffers) | dict(case.scalars)
    values[case.output] = np.zeros(case.output_size, case.output_dtype)
    args = [
        np.copy(values[p.name]) if p.kind != "scalar" else values[p.name]
        for p in problem.parameters
    ]
    grid, block, smem = rung.geometry(rung.config, shape)
    artifact = compile_rung(rung)
    return artifact.ptx, (artifact.entry, grid, block, args, smem)


CASES = {name: launched(name) for name in NAMES}


@st.composite
def damaged(draw):
    """Return the text of a rung with one to three faults."""
    name = draw(st.sampled_from(NAMES))
    lines = CASES[name][0].splitlines()
    start = next(k for k, line in enumerate(lines) if ".entry" in line)
    for _ in range(draw(st.integers(1, 3))):
        start = min(start, len(lines) - 1)  # a cut may have shortened the text
        at = draw(st.integers(draw(st.sampled_from([0, start])), len(lines) - 1))
        other = draw(st.integers(start, len(lines) - 1))
        match draw(st.sampled_from(["delete", "double", "swap", "cut", "word", "word", "word"])):
            case "delete":
                lines[at] = ""
            case "double":
                lines[at] += "\n" + lines[at]
            case "swap":
                lines[at], lines[other] = lines[other], lines[at]
            case "cut":
                lines[at] = lines[at][: len(lines[at]) // 2]
                lines = lines[: at + 1] if draw(st.booleans()) else lines
            case "word":
                words = WORDS.findall(lines[at])
                if words:
                    new = draw(st.sampled_from(STRANGE + WORDS.findall(lines[other])))
                    lines[at] = lines[at].replace(draw(st.sampled_from(words)), new, 1)
    return name, "\n".join(lines)


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(damaged(), st.sampled_from([None, "races"]))
@pytest.mark.slow
def test_damaged_text_gives_typed_errors_only(case, check):
    name, text = case
    entry, grid, block, args, smem = CASES[name][1]
    args = [np.copy(x) if isinstance(x, np.ndarray) else x for x in args]
    with contextlib.suppress(GemmlabError):
        run(text, entry, grid, block, args, smem, check=check, max_instructions=2000)


# Operands of every kind: registers of each width, numbers, vectors, addresses, names.
OPERANDS = """
%p1 !%p2 %h1 %r3 %q2 %f1 %g1 %z1 0 -1 16 65536 0x1FFFFFFFFFFFFFFFF 0f3F800000 0d3FF0000000000000 1.5
{%r1,%r2} {%r1,%r2,%r3,%r4} {%q1} {} {%p1,%p2} {1,2} [%q1] [%r1] [s] [p] [gv] [loc] [fn] [0] [%h1]
[%q1,{%r1,%r2}] [%q1,{}] [%r1+3] [%p1] %tid.x %clock64 %foo _ s p gv loc fn L nothing %r1|%p1
%r1|%r2 %p1|%p2
"""
SPLIT = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,])+")
KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.global .align 16 .b8 gv[64];
.func fn() {{ ret; }}
.entry k(.param .u64 p) {{
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %q<8>; .reg .f32 %f<16>;
.reg .f64 %g<8>; .reg .b128 %z<2>; .shared .align 128 .b8 s[1024]; .local .align 16 .b8 loc[64];
ld.param.u64 %q1, [p]; mov.u32 %r5, %tid.x; mov.u32 %r1, s; setp.eq.u32 %p1, %r5, 0;
{}; L: ret; }}
"""


def strange_instructions(count):
    """Return instructions with one operand or modifier missing, duplicated or replaced."""
    chance = random.Random(14)
    for _ in range(count):
        form = chance.choice(FORMS)
        words, operands = list(form.words), [x.strip() for x in SPLIT.findall(form.operands)]
        items, new = operands, OPERANDS.split()
        if chance.random() < 0.3:
            items, new = words, [*chance.choice(FORMS).words, "u32"]
        at = chance.randrange(len(items) + 1)
        match chance.choice(["delete", "double", "replace", "replace", "replace"]):
            case "delete":
                del items[at : at + 1]
            case "double":
                items[at:at] = items[at : at + 1]
            case "replace":
                items[at : at + 1] = [chance.choice(new)]
        guard = chance.choice(["", "", "@%p1 "])
        yield f"{guard}{'.'.join([form.name, *words])} {', '.join(operands)}"


@pytest.mark.parametrize(("check", "count"), [(None, 500), ("all", 100)])
@pytest.mark.slow
def test_strange_operands_give_typed_errors_only(check, count):
    for line in strange_instructions(count):
        args = [np.zeros(256, np.uint32)]
        try:
            run(KERNEL.format(line), "k", (1, 1, 1), (32, 1, 1), args, check=check)
        except GemmlabError:
            pass
        except Exception as error:
            raise AssertionError(line) from error


def test_a_float_where_16_bits_belong():
    with pytest.raises(UnsupportedInstructionError, match="unknown combination"):
        run(ptx("mov.f16 %f3, 0f437F0000; ret;"), "k", (1, 1, 1), (32, 1, 1), [])
    with pytest.raises(UnsupportedInstructionError, match="a float operand of 4 bytes, expected 2"):
        run(ptx("mov.b16 %h3, 0f437F0000; ret;"), "k", (1, 1, 1), (32, 1, 1), [])


@pytest.mark.parametrize(
    "text",
    [
        ptx("ret;", module=".global .b8 huge[1152921504606846976];"),
        ptx(".local .b8 huge[1099511627776]; mov.u64 %q0, huge; ret;"),
        ptx(".shared .b8 huge[1099511627776]; mov.u64 %q0, huge; ret;"),
    ],
    ids=["global", "local", "shared"],
)
def test_huge_variables_are_refused(text):
    with pytest.raises(LaunchError, match="bytes"):
        run(text, "k", (1, 1, 1), (32, 1, 1), [])


def test_a_membermask_has_32_bits():
    with pytest.raises(PtxSyntaxError, match=r"%q0 is \.b64"):
        run(ptx("bar.warp.sync %q0; ret;"), "k", (1, 1, 1), (32, 1, 1), [])


def test_deep_nesting_a_bare_load_and_an_array_of_floats():
    for inside in ("{" * 5000 + "}" * 5000, f"mov.b32 %r1, {'(' * 5000};"):
        with pytest.raises(PtxSyntaxError, match="nested too deeply"):
            run(ptx(f"{inside} ret;"), "k", (1, 1, 1), (32, 1, 1), [])
    with pytest.raises(UnsupportedInstructionError, match="ld needs a type"):
        run(ptx("ld %r1, [%q1]; ret;"), "k", (1, 1, 1), (32, 1, 1), [])
    text = ptx("ret;", ["f32"]).replace("p0", "p0[2]")
    with pytest.raises(LaunchError, match="takes bytes"):
        run(text, "k", (1, 1, 1), (32, 1, 1), [1.0])


@pytest.mark.parametrize("text", ["", "\0", HEADER, HEADER + ".visible .entry k(", "{" * 5000])
def test_hardly_any_text(text):
    with pytest.raises(GemmlabError):
        run(text, "k", (1, 1, 1), (32, 1, 1), [])
