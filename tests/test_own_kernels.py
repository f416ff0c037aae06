"""A user's own kernel file, explained, shown and loaded like a rung."""

import json
from pathlib import Path

import numpy as np
import pytest

import gemmlab
from gemmlab.cli.app import main
from gemmlab.errors import CompileError, DTypeError, InputError, LaunchError
from gemmlab.lab.submission import start

GATHER = """\
// Every fourth element of x.
//! gemmlab args=x:f32[4*n],y:f32[n]=zeros,n n=1024 block=256 grid=ceil_div(n,256)
extern "C" __global__ void gather(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[4 * i];
}
"""


def write(name, text):
    Path(name).write_text(text)
    return name


def test_a_file_without_a_problem_is_explained_with_its_accesses_and_advice(command):
    told = command("explain", write("gather.cu", GATHER), "--gpu", "A100")
    assert "gather.cu: Every fourth element of x. n = 1,024" in told and "A100" in told
    assert "lanes 16 bytes apart: 25.0% of the bytes moved are used" in told
    assert "global store y, 32 lanes of 4 bytes (gather.cu:5): 4 sectors" in told
    assert "FLOPs 1.02k" in told and "minimum traffic 20.5kB" in told
    assert "1. uncoalesced loads: 16 sectors per request instead of 4" in told
    assert "the lane that accesses it, 0 to 9 and a to v (10 to 31)" in told
    assert "occupancy" in told and "Minimum time of a launch" not in told.partition("Work")[0]


@pytest.mark.slow
def test_options_and_words_describe_the_launch_of_a_file_without_a_directive(command):
    bare = "\n".join(line for line in GATHER.splitlines() if "//!" not in line)
    file = write("gather.cu", bare)
    assert "grid=… block=… args=…" in command("explain", file, code=2)
    sizes = ["--block", "64", "--grid", "ceil_div(n,64)", "--args", "x:f32[4*n],y:f32[n]=zeros,n"]
    told = json.loads(command("explain", file, "n=640", *sizes, "--json"))
    assert told["geometry"]["grid"] == [10, 1, 1] and told["shape"] == {"n": 640}
    assert told["counted"]["totals"]["global load"]["sectors"] == 640 // 2
    assert "is for kernel files" in command("explain", "naive", "grid=1", code=2)
    assert "names no problem" in command("explain", file, "--size", "8", code=2)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["cu", "cute"])
def test_a_starter_is_explained_like_the_naive_rung(command, language):
    file = write(f"kernel{start.LANGUAGES[language]}", start.text("gemm", language))
    own, rung = (
        json.loads(command("explain", name, "--size", "64", "--json")) for name in (file, "naive")
    )
    for key in ("flops", "least_bytes"):
        assert own["work"][key] == rung["work"][key]
    sectors = [found["counted"]["totals"]["global load"]["sectors"] for found in (own, rung)]
    assert sectors[0] == sectors[1]
    assert own["problem"] == "gemm" and own["occupancy"]["fraction"] == 1.0
    assert any(sentence.startswith("no reuse") for sentence in own["advice"])


def test_ptx_of_another_compiler_is_explained(command):
    """Triton and Numba write PTX; its parameters may have neither names nor types."""
    text = gemmlab.load(GATHER).ptx
    words = ["args=x:f32[4*n],y:f32[n],n", "n=64", "block=64", "grid=1"]
    told = command("explain", write("gather.ptx", text), *words)
    assert "global load x, 32 lanes of 4 bytes" in told


TENSOR_CORES = """\
#include <mma.h>
//! gemmlab args=a:f32[1024],b:f32[1024],c:f32[1024] grid=2 block=64
extern "C" __global__ void f(const float* a, const float* b, float* c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 8, precision::tf32, row_major> fa;
  fragment<matrix_b, 16, 16, 8, precision::tf32, row_major> fb;
  fragment<accumulator, 16, 16, 8, float> fc;
  fill_fragment(fc, 0.0f);
  for (int i = 0; i < 5; ++i) {
    load_matrix_sync(fa, a + 8 * i, 64);
    load_matrix_sync(fb, b + 8 * i, 64);
    mma_sync(fc, fa, fb, fc);
  }
  int warp = 2 * blockIdx.x + threadIdx.x / 32;
  store_matrix_sync(c + 256 * warp, fc, 16, mem_row_major);
}
"""


def test_matrix_products_are_counted_below_the_peak_of_their_type(command):
    file = write("products.cu", TENSOR_CORES)
    told = json.loads(command("explain", file, "--gpu", "H200", "--json"))
    assert told["work"]["flops"] == 4 * 5 * 2 * 16 * 16 * 8  # warps, steps
    assert (told["peak"], told["peak_tflops"]) == ("TF32 peak of tensor cores", 989.5 / 2)
    assert "not its roof" in command("explain", file, "--gpu", "L40S")  # its peak is not known


@pytest.mark.slow
def test_a_wrong_result_is_said(command):
    file = write("kernel.cu", start.text("gemm", "cu").replace("sum += ", "sum -= "))
    assert "wrong answer: " in command("explain", file, "--size", "32")


@pytest.mark.slow
def test_a_large_shape_is_counted_at_a_smaller_one(command):
    file = write("kernel.cu", start.text("vector-add", "cu"))
    told = json.loads(command("explain", file, "--size", str(2**25), "--json"))
    assert told["shape"] == {"n": 2**25} and told["counted"]["shape"] == {"n": 2**22}
    assert "Counted at 4194304" in " ".join(told["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kernel.cu", "kernel.py"])
def test_a_file_is_shown_emulated_and_loaded(command, name):
    text = start.text("gemm", "cute" if name.endswith(".py") else "cu")
    write(name, text)
    told = command("show", name)
    assert "sgemm" in told and "float32 *a, float32 *b, float32 *c, int32 m" in told
    assert "block=32,8" in told and "registers" in told
    assert ".version" in command("show", name, "--ptx")
    assert "One thread computes" in command("show", name, "--source")
    assert "pass: largest error" in command("emulate", name, "m=33", "n=20", "k=9")
    kernel, again = gemmlab.load(name), gemmlab.load(text)
    assert kernel.signature == again.signature and kernel.parameters == again.parameters
    a, b = np.ones((2, 16, 16), np.float32)
    c = np.zeros((16, 16), np.float32)
    gemmlab.emulate(kernel, grid=(1, 2), block=(32, 8), args=[a, b, c, 16, 16, 16])
    assert (c == 16).all()


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (
            lambda args: [args[0].astype(np.float64), *args[1:]],
            DTypeError,
            "not an array of float64",
        ),
        (lambda args: args[:2], LaunchError, "takes 3 arguments, 2 were given"),
        (lambda args: [*args[:2], args[0]], LaunchError, "a number, not an array"),
        (lambda args: [*args[:2], 2.5], LaunchError, "an integer, not 2.5"),
        (lambda args: [args[0], 2.5, args[2]], LaunchError, "an array, not 2.5"),
    ],
)
def test_wrong_arguments_are_refused_with_the_signature(change, error, why):
    args = [np.ones(64, np.float32), np.ones(16, np.float32), 16]
    kernel = gemmlab.load(GATHER)
    with pytest.raises(error, match=why) as refused:
        gemmlab.emulate(kernel, grid=1, block=32, args=change(args))
    assert "the kernel is gather(float32 *x, float32 *y, int32 n)" in str(refused.value)


def test_errors_of_a_python_file_are_typed(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("#! gemmlab block=32 args=x:f32[8]\nraise SystemExit(3)\n")
    with pytest.raises(CompileError, match="cannot be executed"):
        gemmlab.load(path)
    path.write_text("#! gemmlab block=32\n")
    with pytest.raises(InputError, match="types of its arguments"):
        gemmlab.load(path)


@pytest.mark.slow
def test_two_files_are_compared_by_counters_bounds_resources_and_lines(command):
    before = write("before.cu", start.text("gemm", "cu"))
    old, new = "a[(long long)row * k + i]", "a[(long long)row * k + i] * 1.5f"
    after = write("after.cu", start.text("gemm", "cu").replace(old, new))
    sizes = ["m=32", "n=32", "k=32"]
    told = command("compare", before, after, *sizes, code=1)  # it was right and is not
    assert "verdict: pass → wrong answer" in told and "problem: gemm shape: 32×32×32" in told
    assert "PTX instructions" in told and "least time in µs" in told
    assert "after.cu:12" in told and "* 1.5f" in told
    assert "No counter" in command("compare", before, before, *sizes)
    assert "shared wavefronts" in command("compare", "naive", "shared", *sizes)


@pytest.mark.slow
def test_the_json_of_commands_is_compared(command, tmp_path, capsys):
    file = write("gather.cu", GATHER)
    both = {"emulate": ["--json", "--lines"], "explain": ["--json"]}
    for name, options in both.items():
        with pytest.raises(SystemExit):
            main([name, file, *options])
        Path(f"{name}.json").write_text(capsys.readouterr().out)
    assert "No counter" in command("compare", "emulate.json", "explain.json")
    write("wide.cu", GATHER.replace("4 * i", "i").replace("2 * ", ""))
    told = command("compare", "emulate.json", "wide.cu")
    assert "global load sectors 512 128 ×0.25 gather.cu:5 512 before" in told
    assert "cannot compare a kernel" in command("compare", file, str(tmp_path), code=2)
    assert "cannot be read" in command("compare", file, "missing.json", code=2)


@pytest.mark.slow
@pytest.mark.usefixtures("judged_here")
def test_the_json_of_the_judge_is_compared(command, capsys):
    text = start.text("transpose", "cu")
    for name, source in (("before", text), ("after", text.replace("32", "64"))):
        write(f"{name}.cu", source)
        with pytest.raises(SystemExit):
            main(["judge", f"{name}.cu", "--emulated", "--json"])
        Path(f"{name}.json").write_text(capsys.readouterr().out)
    assert "No counter" in command("compare", "before.json", "before.json")
    assert "before.cu → after.cu" in command("compare", "before.json", "after.json")


@pytest.mark.slow
def test_a_climb_has_the_bound_on_any_gpu_and_what_sets_it(command):
    climb = ["climb", "--size", "32", "--rungs", "naive,shared", "--device", "emulated"]
    h200, t4 = command(*climb), command(*climb, "--gpu", "T4")
    assert "at least: a launch on H200" in h200 and "at least: a launch on T4" in t4
    naive = [told.partition("naive pass ")[2].split()[:2] for told in (h200, t4)]
    assert naive[0] != naive[1] and all(how in ("issue", "L1", "FP32") for _, how in naive)
    assert "no GPU 'H9'" in command(*climb, "--gpu", "H9", code=2)
