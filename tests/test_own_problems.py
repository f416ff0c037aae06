"""Users' own problems: a Python file, judged, explained and refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmlab import problems
from gemmlab.errors import InputError, UnknownNameError
from gemmlab.problems.arrays import ArrayProblem

PAGE = (Path(__file__).parent.parent / "docs" / "problems.md").read_text()
PROBLEM, KERNEL = (
    PAGE.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "cuda")
)


@pytest.fixture(autouse=True)
def files(tmp_path):
    (tmp_path / "scale.py").write_text(PROBLEM)
    (tmp_path / "scale.cu").write_text(KERNEL)


@pytest.mark.slow
def test_the_example_of_the_page_is_judged_emulated_and_explained(command):
    told = command("judge", "--problem", "scale.py", "scale.cu", "--emulated")
    assert "scale-rows, takes x, s, y, m, n" in told and "verdict: pass" in told
    emulated = command("emulate", "scale.cu", "problem=scale.py", "m=5", "n=6", "--check", "all")
    assert "pass: largest error" in emulated and "no findings" in emulated
    told = json.loads(command("explain", "scale.cu", "problem=scale.py", "--size", "64", "--json"))
    assert (told["problem"], told["work"]["flops"]) == ("scale-rows", 64 * 64)
    assert told["work"]["least_bytes"] == 4 * (64 * 64 * 2 + 64)


@pytest.mark.slow
@pytest.mark.usefixtures("judged_here")
def test_a_wrong_kernel_fails(command):
    Path("scale.cu").write_text(KERNEL.replace("* s[i]", "* s[0]"))
    told = command("judge", "--problem", "scale.py", "scale.cu", "--emulated", code=1)
    assert "verdict: wrong answer" in told and "got" in told


def test_a_submission_cannot_choose_what_is_executed(command):
    Path("scale.cu").write_text(KERNEL.replace("gemmlab block", "gemmlab problem=scale.py block"))
    Path("scale.py").write_text("raise SystemExit('executed')")
    told = command("judge", "scale.cu", "--emulated", code=1)
    assert "given on the command line" in told and "executed" not in told


@pytest.mark.usefixtures("command")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("problem = 3", "lacks name, axes"),
        ("", "defines no `problem`"),
        ("import sys; sys.exit(4)", "cannot be executed: SystemExit: 4"),
        (
            PROBLEM.replace("s[:, None]", "s[None]").replace(
                '"m,n", "s": "m"', '"m,n", "s": "2*m"'
            ),
            "has shape",
        ),
        (PROBLEM.replace("x * s[:, None]", "x / 0 if 0 else undefined"), "NameError"),
        (PROBLEM.replace('"m,n"', '"m,q"'), "unknown size 'q'"),
        (PROBLEM.replace("scale-rows", "gemm"), "use another name"),
    ],
)
def test_mistakes_in_a_problem_are_named_before_any_kernel_runs(text, why):
    Path("scale.py").write_text(text)
    with pytest.raises(InputError, match=why):
        problems.find("scale.py")


@pytest.mark.usefixtures("command")
def test_a_missing_file_is_named():
    with pytest.raises(UnknownNameError, match=r"no file other\.py"):
        problems.find("other.py")


@pytest.mark.usefixtures("command")
def test_a_reference_may_be_torchs():
    pytest.importorskip("torch")
    text = PROBLEM.replace("x * s[:, None]", "torch.from_numpy(x) * torch.from_numpy(s)[:, None]")
    Path("scale.py").write_text(f"import torch\n{text}")
    case = problems.find("scale.py").case({"m": 3, "n": 4}, "row", "normal", 0)
    expected = case.buffers["x"].reshape(3, 4) * case.buffers["s"][:, None].astype(float)
    np.testing.assert_allclose(case.reference(), expected)


def test_types_families_and_traffic_can_be_ones_own():
    problem = ArrayProblem(
        name="count",
        axes=("n",),
        inputs={"x": "n+1"},
        output={"y": "2"},
        reference=lambda x: np.array([x.sum(), x.size]),
        bound=lambda n: n / 2,
        operations=lambda n: n,
        traffic=lambda n: 10 * n,
        dtypes={"x": "uint8", "y": "uint32"},
        draws={"ones": lambda rng, shape: np.ones(shape)},
    )
    case = problem.case({"n": 4}, "row", "ones", 0)
    assert case.buffers["x"].dtype == np.uint8 and case.reference().tolist() == [5, 5]
    assert (problem.min_bytes({"n": 4}), problem.bound_u({"n": 4})) == (40, 2)
    assert problem.families == ("ones",) and case.output_dtype == "uint32"


@pytest.mark.parametrize("name", ["softmax", "layernorm", "scan", "conv2d", "attention"])
def test_references_are_torchs(name):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    problem = problems.find(name)
    case: Any = problem.case(dict.fromkeys(problem.axes, 9), "row", "normal", 0)
    inputs = {key: torch.from_numpy(x.astype(np.float64)) for key, x in case.inputs.items()}
    functions: dict[str, Any] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x, gamma, beta: functional.layer_norm(x, x.shape[-1:], gamma, beta),
        "scan": lambda x: torch.cumsum(x, -1),
        "conv2d": lambda x, weights: functional.conv2d(
            x[None, None], weights[None, None], padding=2
        )[0, 0],
        "attention": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
    }
    expected = functions[name](**inputs)
    np.testing.assert_allclose(case.reference(), expected.numpy(), rtol=1e-12, atol=1e-12)
    rounded = case.reference().astype(np.float32)
    from gemmlab.lab.judge.judge import compare

    bound = problem.bound_u(case.shape)
    assert compare(rounded, case.reference(), case.magnitude(), bound).passed
    rounded.flat[3] *= 1.001
    assert not compare(rounded, case.reference(), case.magnitude(), bound).passed
