"""Problems and results in FlashInfer-Bench's schema: writing, reading, and errors."""

import json
from pathlib import Path

import pytest
from kernels import LOOP, TF32, gemm, rounded

from gemmlab import problems
from gemmlab.cli.app import main
from gemmlab.errors import InputError
from gemmlab.lab.submission import flashinfer
from gemmlab.lab.submission.steps import Judgement, Step

GEMM = problems.find("gemm")
KEEPING = gemm(before="__device__ float kept;", store="c[row * n + col] = kept = sum;")


@pytest.mark.parametrize("name", ["gemm", "transpose", "sum", "vector-add"])
def test_problems_round_trip(name):
    problem = problems.find(name)
    result = flashinfer.definition(problem)
    assert flashinfer.read_definition(json.dumps(result)) is problem
    tensors = {**result["inputs"], **result["outputs"]}
    assert all(set(tensor["shape"]) <= result["axes"].keys() for tensor in tensors.values())
    assert "def run(" in result["reference"]
    lines = flashinfer.workloads(problem)
    shapes = flashinfer.read_workloads(flashinfer.lines(lines), problem)
    assert shapes == [line["workload"]["axes"] for line in lines] and shapes
    assert len({line["workload"]["uuid"] for line in lines}) == len(lines)
    assert all(line["solution"] is line["evaluation"] is None for line in lines)


def test_a_bare_workload_is_read_too():
    assert flashinfer.read_workloads('{"uuid": "1", "axes": {"m": 1, "n": 2, "k": 3}}\n', GEMM) == [
        {"m": 1, "n": 2, "k": 3}
    ]


@pytest.mark.parametrize(
    "read",
    [
        lambda: flashinfer.definition(problems.find("histogram")),
        lambda: flashinfer.read_definition('{"name": "rmsnorm"}'),
        lambda: flashinfer.read_definition('{"name": "gemm", "axes": {}}'),
        lambda: flashinfer.read_definition("[]"),
        lambda: flashinfer.read_workloads('{"axes": {"m": 1}}', GEMM),
        lambda: flashinfer.read_workloads('{"axes": {"m": 1, "n": "2", "k": 3}}', GEMM),
        lambda: flashinfer.read_workloads("{", GEMM),
        lambda: flashinfer.read_solution("{}"),
        lambda: flashinfer.read_solution(
            '{"name": "x", "definition": "gemm", "spec": {"entry_point": "../x.cu::f"},'
            ' "sources": [{"path": "../x.cu", "content": ""}]}'
        ),
        lambda: flashinfer.read_solution(  # the definition would be executed
            '{"name": "x", "definition": "evil.py", "spec": {"entry_point": "x.cu::f"},'
            ' "sources": [{"path": "x.cu", "content": ""}]}'
        ),
    ],
)
def test_invalid_files_are_refused(read):
    with pytest.raises(InputError):
        read()


def test_a_solution_round_trips(judge):
    file = judge.file(gemm())
    result = flashinfer.solution(GEMM, file, file.read_text())
    spec = result["spec"]  # FlashInfer-Bench reads language, SOL-ExecBench languages
    assert (spec["language"], spec["languages"]) == ("cuda", ["cuda_cpp"])
    assert spec["target_hardware"] == ["LOCAL"]
    found = flashinfer.read_solution(json.dumps(result))
    assert (found.name, found.definition, found.entry) == ("kernel", "gemm", "gemm")
    assert found.text == gemm()


@pytest.mark.parametrize(
    ("name", "directive", "message"),
    [
        ("k.cu", "", "k.cu has no problem=gemm: a solution must begin with a line //! gemmlab"),
        ("k.cu", "//! gemmlab block=32 entry=f", "k.cu has no problem=gemm"),
        ("k.cu", "//! gemmlab problem=gemm block=32", "k.cu has no entry=, the kernel"),
        ("k.cu", "//! gemmlab problem=sum entry=f", "k.cu solves sum, not gemm"),
        ("k.cu", "//! gemmlab problem=gemm entry=f layout=row,col,col", "has layout course"),
        ("k.ptx", "//! gemmlab problem=gemm entry=f", r"must be CUDA C\+\+ \(.cu\) or Python"),
    ],
)
def test_a_file_without_a_complete_directive_is_no_solution(name, directive, message):
    with pytest.raises(InputError, match=message):
        flashinfer.solution(GEMM, Path(name), f"{directive}\n__global__ void f() {{}}\n")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (gemm(LOOP.replace("i < k", "i + 1 < k")), "INCORRECT_NUMERICAL"),
        (rounded(TF32), "INCORRECT_NUMERICAL"),
        (gemm("float sum = x;"), "COMPILE_ERROR"),
        (gemm(first=""), "RUNTIME_ERROR"),
        (
            gemm(before="__device__ float kept;", store="c[row * n + col] = kept = sum;"),
            "REWARD_HACK",
        ),
    ],
)
def test_failures_have_the_schemas_status_and_fields(judge, text, status):
    [result] = flashinfer.traces(judge(text))
    evaluation = result["evaluation"]
    assert evaluation["status"] == status and evaluation["performance"] is None
    assert (evaluation["correctness"] is not None) == (status == "INCORRECT_NUMERICAL")
    assert result["solution"] == "kernel" and set(result["workload"]["axes"]) == {"m", "n", "k"}
    json.loads(flashinfer.lines([result]))


def test_an_untimed_pass_gives_workloads(judge):
    lines = flashinfer.traces(judge(gemm()))
    assert lines and all(line["evaluation"] is None for line in lines)


def test_a_timed_pass_has_correctness_and_performance(judge):
    passed = judge(gemm())
    passed.score, passed.best_seconds = 50.0, (2e-3, 1e-3)
    passed.runs = [{"shape": {"m": 64, "n": 64, "k": 64}, "machine": {"gpu": "Fake"}}]
    [result] = flashinfer.traces(passed)
    assert result["evaluation"]["status"] == "PASSED"
    assert result["evaluation"]["performance"] == {
        "latency_ms": 2.0,
        "reference_latency_ms": 1.0,
        "speedup_factor": 0.5,
    }
    assert 0 < result["evaluation"]["correctness"]["max_relative_error"] < 1e-6


def test_nan_and_infinity_are_strings():
    result = flashinfer.lines([{"a": float("inf"), "b": [float("nan")], "c": 1.0}])
    assert json.loads(result) == {"a": "Infinity", "b": ["NaN"], "c": 1.0}


def test_a_file_without_a_problem_has_no_trace():
    failed = Judgement("x.cu", steps=[Step("directive", "bad directive")])
    with pytest.raises(InputError):
        flashinfer.traces(failed)


@pytest.mark.slow
def test_the_commands(judge, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def gemmlab(*args):
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        out = capsys.readouterr()
        return ended.value.code or 0, out.out, out.err

    assert gemmlab("new", "gemm") == (0, "gemm.cu\n", "")
    code, _, err = gemmlab("new", "gemm")
    assert code == 2 and "gemm.cu already exists" in err
    code, _, err = gemmlab("new", "gemm", "--lang", "c")
    assert code == 2 and "choose cu, cute" in err
    assert gemmlab("export", "gemm", "-o", "problem", "--solution", "gemm.cu")[0] == 0
    judge("")  # installs the replacement of process.run
    solution, work = "problem/solution.json", "problem/workload.jsonl"
    *lines, last = [json.loads(line) for line in (tmp_path / work).read_text().splitlines()[:4]]
    last["workload"]["axes"] = {"m": 7, "n": 70, "k": 9}  # not one of the judge's shapes
    (tmp_path / work).write_text("\n".join(map(json.dumps, [*lines, last])))
    options = ("--emulated", "--workload", work, "--trace", "trace.jsonl", "--json")
    code, out, err = gemmlab("judge", solution, *options)
    result = json.loads(out)
    assert code == 0 and result["verdict"] == "pass" and result["file"] == "gemm.cu"
    assert "emulator: pass" in err
    shapes = [tuple(trial["shape"].values()) for trial in result["steps"][-1]["trials"]]
    assert (7, 70, 9) in shapes
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert {line["definition"] for line in lines} == {"gemm"}
    code, out, _ = gemmlab("judge", "gemm.cu", "--emulated", "args=a,b,c,n,m,k")
    assert code == 1 and "verdict: out of bounds" in out
    assert gemmlab("judge", "nothing.cu")[0] == 2
    assert gemmlab("judge", "problem")[0] == 2
