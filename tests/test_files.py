"""`gemmlab emulate FILE`: a user's file, called by its directive."""

import json
from pathlib import Path

import numpy as np
import pytest
from machine import needs_native

from gemmlab.cli.app import main
from gemmlab.compile.directive import parse
from gemmlab.lab import kernel_file
from gemmlab.lab.directives import Directive
from gemmlab.report import listing

GATHER = """\
//! gemmlab args=x:f32[4*n],y:f32[n]=zeros,n n=1000 block=256 grid=ceil_div(n,256)
extern "C" __global__ void gather(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[4 * i];
}
"""
SGEMM = """\
//! gemmlab problem=gemm args=m,n,k,1.0f,a,b,0.0f,c layout=row,row,row m=33 n=20 k=9
//! gemmlab block=16,16 grid=ceil_div(n,16),ceil_div(m,16)
extern "C" __global__ void sgemm(int M, int N, int K, float alpha, const float* A, const float* B,
                                 float beta, float* C) {
  int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = alpha * sum;
}
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="kernel.cu"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def run_command(capsys, *args):
    with pytest.raises(SystemExit) as ended:
        main(["emulate", *map(str, args)])
    return ended.value.code, *capsys.readouterr()


def test_a_file_runs_as_it_says(write):
    done = kernel_file.run(write(GATHER), Directive())
    x, y, n = done.call.args
    np.testing.assert_array_equal(y, x[::4])
    assert (n, done.call.grid, done.verdict) == (1000, (4, 1, 1), None)
    assert done.run.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 4000 * 4 // 32


def test_lines_of_a_file_are_found_in_each_folder(write, tmp_path, monkeypatch):
    """The same text under the same relative name: PTX contains the absolute path."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        write(GATHER, f"{name}/kernel.cu")
        (first, *_) = kernel_file.run(Path("kernel.cu"), Directive()).run.by_source_line()
        assert first.startswith(str(tmp_path / name / "kernel.cu"))


def test_options_take_the_place_of_words(write):
    done = kernel_file.run(write(GATHER), parse(["n=10", "block=32"]))
    assert (done.call.args[2], done.call.grid, done.call.block) == (10, (1, 1, 1), (32, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("edit", ["", "alpha * sum->2 * sum", "row * K + k->k * M + row"])
def test_a_problem_is_judged(write, capsys, edit):
    code, out, _ = run_command(capsys, write(SGEMM.replace(*edit.split("->")) if edit else SGEMM))
    assert code == (1 if edit else 0)
    assert ("wrong answer" if edit else "pass: largest error") in out


@pytest.mark.slow
def test_json_holds_lines_that_add_up(write, capsys):
    code, out, err = run_command(capsys, write(SGEMM), "--json", "--lines")
    told = json.loads(out)
    assert (code, err, told["verdict"], told["grid"]) == (0, "", "pass", [2, 3, 1])
    for lines in (told["ptx_lines"], told["source_lines"]):
        for name in next(iter(lines.values())):
            assert sum(line[name] for line in lines.values()) == told["counters"][name]


@pytest.mark.slow
@needs_native
def test_the_tier_is_told_and_changes_nothing_else(write, capsys):
    path = write(SGEMM)
    told = []
    for tier in ("numpy", "native"):
        told.append(json.loads(run_command(capsys, path, "--json", "--lines", "--tier", tier)[1]))
        assert told[-1].pop("tier") == tier
    assert told[0] == told[1]
    assert run_command(capsys, path, "--tier", "native")[1].splitlines()[0].endswith("native tier")


def test_a_listing_begins_with_the_hottest_line(write, capsys):
    path = write(SGEMM)
    lines = listing.source_lines(kernel_file.run(path, Directive()).run.by_source_line())
    assert lines[0].text.startswith("for (int k = 0")
    assert lines[0].place == "kernel.cu:8"
    _, out, _ = run_command(capsys, path, "--lines")
    table = out.split("text", 1)[1].strip().splitlines()
    assert "for (int k = 0" in table[0] and "kernel.cu:8" in table[0]
    _, out, _ = run_command(capsys, path, "--lines", "--ptx")
    assert "ld.global" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["n=1/0"], 2, "divides by zero"),
        (["blok=3"], 2, "did you mean 'block'"),
        (["block=2000"], 2, "1024"),
        (["entry=f"], 2, "no entry"),
        (["args=x:f32[4],y:f32[4]"], 2, "takes 3 arguments, 2 were given"),
        (["args=x:f32[n],y:f32[n],n"], 4, "out"),
        (["problem=gem"], 2, "gemm"),
        (["--order", "sideways"], 2, "order"),
        (["--tier", "fast"], 2, "auto, numpy, native"),
        (["--check", ""], 2, "the checks are all, uninitialized"),
        (["--ptx"], 2, "--ptx requires --lines"),
        (["--tier", "native", "--order", "reversed"], 2, "need the NumPy tier"),
    ],
)
def test_what_is_wrong_is_one_message(write, capsys, words, code, message):
    got, out, err = run_command(capsys, write(GATHER), *words)
    assert (got, out) == (code, "")
    assert err.startswith("gemmlab: ") and message in err and "Traceback" not in err


def test_a_word_that_means_nothing_is_an_error_for_a_problem_too(write, capsys):
    code, out, err = run_command(capsys, write(SGEMM), "bogus=3")
    assert (code, out) == (
        2,
        "",
    ) and "sets bogus, but does not use it; valid words: problem" in err
    assert err.rstrip().endswith("sizes: m, n, k")


def test_a_negative_seed_is_refused(write, capsys):
    code, out, err = run_command(capsys, write(GATHER), "--seed", "-1")
    assert (code, out) == (2, "") and "'--seed'" in err and "Traceback" not in err


def test_a_missing_file_and_one_without_a_directive(write, capsys):
    assert run_command(capsys, "nowhere.cu")[0] == 2
    code, _, err = run_command(capsys, write(GATHER.partition("\n")[2]))
    assert code == 2 and "does not give the grid and block of gather(float32 *x, " in err


def test_json_of_a_launch_that_was_stopped_has_no_counters(write, capsys):
    words = ["args=x:f32[3*n],y:f32[n]=zeros,n", "--check", "all", "--json"]
    code, out, _ = run_command(capsys, write(GATHER), *words)
    told = json.loads(out)
    assert code == 4 and told["counters"] is None
    assert told["findings"][-1]["kind"] == "out of bounds"


def test_a_budget_that_runs_out_in_straight_code(write, capsys):
    code, _, err = run_command(capsys, write(GATHER), "--max-instructions", "5")
    assert code == 4 and "more than 5 instructions (max_instructions) (and" in err


SCALED = """
//! gemmlab problem=gemm args=m,n,k,a,b,0.0,c block=16,16 grid=2,2 m=32 n=32 k=8
__global__ void sgemm(int m, int n, int k, const float* a, const float* b, float beta, float* c) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum + beta * c[row * n + col];
}
"""


def test_a_kernel_that_multiplies_its_output_by_zero_needs_finite_numbers_there(tmp_path):
    file = tmp_path / "scaled.cu"
    file.write_text(SCALED)
    run = kernel_file.run(file, Directive())
    assert run.verdict is not None and run.verdict.status == "wrong answer"
    run = kernel_file.run(file, Directive(output="finite"), check="all")
    assert run.verdict is not None and run.verdict.passed and not run.run.findings
