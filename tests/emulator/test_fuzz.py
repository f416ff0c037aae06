"""Damaged PTX: whatever it says, the answer is a result or one of gemmlab's own errors, soon."""

import contextlib
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snippets import HEADER, ptx

from gemmlab import ladder, problems
from gemmlab.compile.cute import compile_rung
from gemmlab.emulator import run
from gemmlab.errors import GemmlabError, LaunchError, PtxSyntaxError

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
    """The PTX of a rung and a launch of it on very few numbers."""
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
    """The text of a rung with one to three faults."""
    name = draw(st.sampled_from(NAMES))
    lines = CASES[name][0].splitlines()
    start = next(k for k, line in enumerate(lines) if ".entry" in line)
    for _ in range(draw(st.integers(1, 3))):
        start = min(start, len(lines) - 1)  # a cut may have left less
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
def test_damaged_text_gives_typed_errors_only(case, check):
    name, text = case
    entry, grid, block, args, smem = CASES[name][1]
    args = [np.copy(x) if isinstance(x, np.ndarray) else x for x in args]
    with contextlib.suppress(GemmlabError):
        run(text, entry, grid, block, args, smem, check=check, max_instructions=2000)


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


@pytest.mark.parametrize("text", ["", "\0", HEADER, HEADER + ".visible .entry k(", "{" * 5000])
def test_hardly_any_text(text):
    with pytest.raises(GemmlabError):
        run(text, "k", (1, 1, 1), (32, 1, 1), [])
