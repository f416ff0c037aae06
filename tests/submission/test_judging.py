"""The judge on correct, imprecise, wrong and dishonest kernel files, from file to verdict."""

import io
import re

import pytest
from inline import in_this_process
from kernels import BF16, BF16_CUT, FP16, HEAD, LOOP, TF32, TF32_CUT, gemm, in_parts, rounded
from machine import sample
from rich.console import Console

from gemmlab import problems
from gemmlab.compile.directive import parse
from gemmlab.lab.submission import cases, judging, process, start
from gemmlab.lab.submission.judging import Options
from gemmlab.lab.submission.steps import Judgement, Step
from gemmlab.report import judgement


def test_a_correct_kernel_passes_with_class_counters_and_advice(judge):
    found = judge(gemm())
    assert found.verdict == "pass" and found.precision == "ieee", found.steps[-1].message
    assert [step.name for step in found.steps] == ["directive", "compile", "checks", "emulator"]
    requests = found.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]
    assert requests == 2 * 32 * 32 * 32 // 32
    assert found.advice[0].startswith("no reuse: ")
    assert found.score is None


@pytest.mark.slow
def test_every_case_and_judgement_has_different_inputs(judge):
    first, second = (judge(gemm(), seed=None) for _ in range(2))
    seeds = [trial.seed for trial in first.steps[-1].trials[:-2]]
    assert len(set(seeds)) == len(seeds) and first.seed != second.seed
    assert {trial.family for trial in first.steps[-1].trials} > {"wide", "cancellation", "special"}


PRECISION = {
    "TF32": (rounded(TF32), "tf32"),
    "TF32, cut off": (rounded(TF32_CUT), "tf32"),
    "float16": (rounded(FP16), "fp16"),
    "bfloat16": (rounded(BF16), "bf16"),
    "bfloat16, cut off": (rounded(BF16_CUT), "bf16"),
    "bfloat16 in two parts": (in_parts("0xffff0000"), "x3"),
}


@pytest.mark.parametrize("name", PRECISION)
@pytest.mark.slow
def test_a_cheaper_class_does_not_pass_as_float32(judge, name):
    text, wanted = PRECISION[name]
    found = judge(text)
    assert (found.verdict, found.precision) == ("low precision", wanted)
    assert f"this is {wanted}" in found.steps[-1].message


@pytest.mark.slow
def test_a_declared_class_passes_in_that_class(judge):
    found = judge(rounded(TF32), "precision=tf32")
    assert (found.verdict, found.precision) == ("pass", "tf32")
    assert judge(rounded(BF16), "precision=tf32").verdict == "low precision"
    assert judge(rounded(BF16), "precision=fp16").verdict == "low precision"


@pytest.mark.slow
def test_options_override_the_directive(judge):
    """Even if they give a default."""
    half = rounded(FP16).replace("layout=row", "layout=row precision=fp16")
    assert judge(half).verdict == "pass"
    assert judge(half, "precision=ieee").verdict == "low precision"
    scaled = SCALED.replace("layout=row", "layout=row output=finite")
    assert judge(scaled, "output=nan").verdict == "wrong answer"


@pytest.mark.slow
def test_timed_sizes_do_not_change_the_test_cases(judge):
    """A correct kernel passes, and a grid that covers too little fails."""
    found = judge(gemm(), "m=8", "n=8", "k=8")
    assert found.verdict == "pass", found.steps[-1]
    plain = judge(gemm())
    assert [t.shape for t in found.steps[-1].trials] == [t.shape for t in plain.steps[-1].trials]
    ragged = gemm().replace("ceil_div(n,16)", "n/16")
    assert judge(ragged, "n=64").verdict == "unwritten output"


SCALED = gemm(store="c[row * n + col] = 1.0f * sum + 0.0f * c[row * n + col];")

TILED = """
  __shared__ float sb[16][16];
  int tx = threadIdx.x, ty = threadIdx.y;
  float sum = 0;
  for (int t = 0; t < k; t += 16) {
    sb[ty][tx] = col < n && t + ty < k ? b[(t + ty) * n + col] : 0.0f;
    __syncthreads();
    for (int i = 0; i < min(16, k - t); ++i) sum += a[min(row, m - 1) * k + t + i] * sb[i][tx];
    BARRIER
  }
  if (!inside) return;
"""

WRONG = {
    "a barrier is missing": (gemm(TILED.replace("BARRIER", ""), first=""), "race"),
    "the last term is missing": (gemm(LOOP.replace("i < k", "i < k - 1")), "wrong answer"),
    "wrong stride": (gemm(LOOP.replace("i * n", "i * m")), "out of bounds"),
    "no bounds": (gemm(first=""), "out of bounds"),
    "no column below the edge": (
        gemm(first="  if (row >= m || col + 1 >= n) return;\n"),
        "unwritten output",
    ),
    "an input is changed that others read": (
        gemm(store="c[row * n + col] = sum; if (row == 0 && col == 0) ((float*)b)[k * n - 1] = 0;"),
        "race",
    ),
    "adds to what was there": (gemm(store="c[row * n + col] += sum;"), "wrong answer"),
    "all NaN": (gemm(store="c[row * n + col] = nanf(0);"), "wrong answer"),
    "multiplies what was there by 0": (SCALED, "wrong answer"),
    "a barrier that too few reach": (
        gemm(first='  asm volatile("bar.sync 1, 512;");\n  if (!inside) return;\n'),
        "deadlock",
    ),
    "misaligned": (
        gemm(LOOP.replace("a[row * k + i]", "((float2*)(a + row * k + i))->x")),
        "misaligned",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.slow
def test_a_wrong_kernel_fails_for_the_right_reason(judge, name):
    text, status = WRONG[name]
    found = judge(text)
    assert found.verdict == status, found.steps[-1]
    if status == "wrong answer":
        verdict = next(t.verdict for t in found.steps[-1].trials if t.precision is None)
        assert verdict.wrong_count and verdict.worst and verdict.first[0].index == (0, 0)


@pytest.mark.slow
def test_a_kernel_that_requests_float16_is_fp16_at_best(judge):
    """It was not tried beyond float16's range, so it must not rank in a class that includes it."""
    for text in (gemm(), rounded(TF32), rounded(FP16)):
        found = judge(text, "precision=fp16")
        assert (found.verdict, found.precision) == ("pass", "fp16")


@pytest.mark.slow
def test_messages_name_arguments_and_give_hints(judge):
    found = judge(gemm(first=""), "args=a,b,c,m,n,k")
    assert re.search(
        r"\[\d+\] at line \d+, \d+ bytes past the end of [abc] \(", found.steps[-1].message
    )
    dynamic = gemm(
        first="  extern __shared__ float s[]; s[threadIdx.x] = 0; __syncthreads();\n",
        store="if (inside) c[row * n + col] = sum + s[0];",
    )
    found = judge(dynamic)
    assert found.verdict == "out of bounds" and "smem=…" in found.steps[-1].message
    assert "smem" not in judge(gemm(first="")).steps[-1].message
    late = judge(gemm(store="c[row * n + col] = k == 1 ? nanf(0) : sum;"))
    assert late.verdict == "wrong answer" and "finite" not in late.steps[-1].message


@pytest.mark.slow
def test_printf_and_assert_are_judged(judge):
    text = gemm(store='assert(m > 0); printf("%d\\n", row); c[row * n + col] = sum;')
    assert judge(text).verdict == "pass"
    failing = gemm(first="  assert(row < m - 1);\n  if (!inside) return;\n")
    found = judge(failing)
    assert found.verdict == "emulation error" and "kernel.cu:" in found.steps[-1].message


@pytest.mark.slow
def test_a_kernel_that_reads_its_output_gets_a_hint_and_passes_with_it(judge):
    assert "needs output=finite" in judge(SCALED).steps[-1].message
    assert judge(SCALED, "output=finite").verdict == "pass"


# Tricks of a kernel file, and the status that each gets.
SABOTAGE = {
    "keeps a result from launch to launch": (
        gemm(before="__device__ float kept[4];", store="c[row * n + col] = kept[0] = sum;"),
        "forbidden",
    ),
    "keeps a result in managed memory": (
        gemm(before="__managed__ float kept;", store="c[row * n + col] = kept = sum;"),
        "forbidden",
    ),
    "counts its launches": (
        gemm(
            before="__device__ int launches = 1;",
            first="  if (!inside || launches++ > 3) return;\n",
        ),
        "forbidden",
    ),
    "leaves what looks done": (
        gemm(first="  if (!inside || fabsf(c[row * n + col]) < 1e30f) return;\n"),
        "forbidden",
    ),
    "calls a library": (
        gemm(
            before='extern "C" __device__ void cublasSgemm(const float*);',
            store="c[row * n + col] = sum; cublasSgemm(a);",
        ),
        "compile error",
    ),
    "launches another kernel": (
        gemm(
            before='extern "C" __device__ int cudaLaunchDevice(void*);',
            store="c[row * n + col] = sum; cudaLaunchDevice(c);",
        ),
        "compile error",
    ),
    "writes next to its output": (
        gemm(store="c[row * n + col] = sum; c[m * n] = 1;"),
        "out of bounds",
    ),
    "looks next to its input": (
        gemm(LOOP + "  if (inside) sum += a[m * k] * 0;\n"),
        "out of bounds",
    ),
    "computes in TF32": (rounded(TF32), "low precision"),
    "knows the inputs of tests": (
        gemm(LOOP + "  if (m == 18 && fabsf(a[0]) > 1e-20f && row == 3) sum *= 1.001f;\n"),
        "wrong answer",
    ),
    "writes zeros": (gemm("  float sum = 0;\n"), "wrong answer"),
    "writes nothing": (gemm(store=";"), "unwritten output"),
    "does half of the work": (
        gemm(first="  if (!inside || row % 2) return;\n"),
        "unwritten output",
    ),
}


@pytest.mark.parametrize("name", sample(SABOTAGE))
def test_a_trick_is_caught(judge, name):
    text, status = SABOTAGE[name]
    found = judge(text)
    assert found.verdict == status, found.steps[-1]


BAD = {
    "no directive": ("__global__ void f() {}", (), "bad directive", "problem=…"),
    "no grid": (gemm().replace("grid=", "hgrid="), (), "bad directive", "grid"),
    "unknown word": (gemm(), ("layuot=row",), "bad directive", "did you mean 'layout'"),
    "unused word": (gemm(), ("tile=16",), "bad directive", "sets tile, but does not use it"),
    "division by zero": (gemm(), ("grid=n/(m-m)",), "bad directive", "divides by zero"),
    "an unknown name": (gemm(), ("grid=q",), "bad directive", "unknown size 'q'"),
    "no such problem": (gemm(), ("problem=fft",), "bad directive", "no problem named 'fft'"),
    "no such class": (gemm(), ("precision=half",), "bad directive", "ieee, x3, tf32"),
    "nothing to time": (gemm(), ("m=0",), "bad directive", "a positive multiple of 1"),
    "timed between multiples": (gemm(), ("n=100", "multiple=1,8,1"), "bad directive", "n=100"),
    "no such axis": (gemm(), ("equal=m,q",), "bad directive", "equal=q is no axis"),
    "timed unequal": (gemm(), ("equal=m,n", "m=64", "n=32"), "bad directive", "m=64, n=32"),
    "multiples of nothing": (gemm(), ("multiple=0,1,1",), "bad directive", "must be positive"),
    "no such entry": (gemm(), ("entry=sgemm",), "no entry", "no entry 'sgemm'"),
    "no C++": (HEAD + "int main(", (), "compile error", "does not compile"),
    "too few arguments": (gemm(), ("args=a,b,c,m,n",), "launch refused", "takes 6 arguments"),
    "an array for a number": (
        gemm(),
        ("args=a,b,c,m,n,a",),
        "launch refused",
        "a in args= is an array",
    ),
    "no output": (gemm(), ("args=a,b,a,m,n,k",), "bad directive", "does not include the output"),
    "too many threads": (gemm(), ("block=64,64",), "launch refused", "4096 threads"),
    "too much shared memory": (
        gemm(
            first="  __shared__ float tile[20000]; tile[row] = m; __syncthreads();\n",
            store="if (inside) c[row * n + col] = sum + 0 * tile[col];",
        ),
        (),
        "launch refused",
        "a block may have 49152",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_gets_a_verdict(judge, name):
    text, words, status, message = BAD[name]
    found = judge(text, *words)
    assert found.verdict == status, found.steps[-1]
    assert message in found.steps[-1].message


@pytest.mark.parametrize(
    ("number", "shown"), [(1, "a word"), (2, "2. a word"), (90, "and 60 more lines")]
)
def test_a_long_message_is_printed_below_the_table(number, shown):
    """All of it up to a screenful, then the number of omitted lines."""
    lines = [f"{i}. {40 * 'a word '}" for i in range(1, number + 1)]
    step = Step("compile", "compile error", "\n".join(lines if number > 1 else ["a word"]))
    out = Console(width=100, record=True, file=io.StringIO())
    judgement.print_judgement(out, Judgement("kernel.cu", steps=[step]))
    text = out.export_text()
    assert shown in text
    assert ("more lines" in text) == (number > judgement.LINES)
    assert text.count("a word") < 40 * (judgement.LINES + 2)


SHALLOW = """
  __shared__ float sb[32][16];
  int tx = threadIdx.x, ty = threadIdx.y;
  float sum = 0;
  for (int t = 0; t < k; t += 32) {
    for (int i = ty; i < 32; i += 16)
      sb[i][tx] = col < n && t + i < k ? b[(t + i) * n + col] : 0.0f;
    __syncthreads();
    for (int i = 0; i < min(32, k - t); ++i) sum += a[min(row, m - 1) * k + t + i] * sb[i][tx];
  }
  if (!inside) return;
"""


@pytest.mark.slow
def test_every_axis_is_long_once(judge, monkeypatch):
    """The other axes are short to save time. Only a second tile reveals a missing barrier."""
    for name, shapes in cases.SHAPES.items():
        axes = range(len(problems.find(name).axes))
        for axis in axes:
            others = [other for other in axes if other != axis]
            long = [s for s in shapes.small if s[axis] > 128 and all(s[i] < 10 for i in others)]
            assert long, (name, axis)
    monkeypatch.setattr(cases, "families", lambda submission: ["normal"])
    monkeypatch.setattr(process, "run", in_this_process)
    found = judging.judge_file(
        judge.file(gemm(SHALLOW, first="")), parse([]), Options(gpu=False, seed=1)
    )
    assert found.verdict == "race", found.steps[-1]


@pytest.mark.slow
def test_ptx_and_templates(judge):
    template = gemm().replace('extern "C" __global__', "template <int U> __global__")
    found = judge(template.replace("entry=gemm", "entry=gemm<2>"))
    assert found.verdict == "pass" and "gemmILi2E" in found.entry
    ptx = judge.artifact(gemm()).ptx
    lines = HEAD + "\n".join(line for line in ptx.splitlines() if not line.startswith("//"))
    assert judge(lines, suffix=".ptx").verdict == "pass"


@pytest.mark.slow
def test_only_the_multiples_that_a_kernel_accepts_are_tried(judge):
    text = gemm(first="", loop=LOOP).replace("layout=row", "layout=row multiple=16,16,8")
    found = judge(text)
    assert found.verdict == "pass"
    shapes = [trial.shape for trial in found.steps[-1].trials]
    assert all(s["m"] % 16 == s["n"] % 16 == s["k"] % 8 == 0 for s in shapes)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["equal=m,n,k", "equal=m,n,k multiple=16,1,8", "equal=m,n"])
def test_a_kernel_of_square_matrices_is_called_with_equal_sizes_only(judge, words):
    """It takes n for every size: right on squares, out of bounds elsewhere."""
    text = gemm(LOOP.replace("i < k", "i < n").replace("* k", "* n"))
    assert judge(text).verdict == "out of bounds"
    found = judge(text.replace("layout=row", f"layout=row {words}"))
    assert found.verdict == ("pass" if "k" in words else "out of bounds")
    shapes = [tuple(trial.shape.values()) for trial in found.steps[-1].trials]
    assert all(m == n for m, n, _ in shapes)
    if "k" in words:
        step = 16 if "multiple" in words else 1
        assert all(m == k and m % step == 0 for m, _, k in shapes) and len(set(shapes)) >= 2


@pytest.mark.slow
def test_a_directive_may_define_arrays_and_numbers(judge):
    text = gemm(store="c[row * n + col] = alpha * sum + spare[0];").replace(
        "int k)", "int k, float alpha, const float* spare)"
    )
    words = "args=a,b,c,m,n,k,1.0,spare:f32[n]=zeros"
    assert judge(text, words).verdict == "pass"


@pytest.mark.parametrize("problem", ["gemm", "transpose", "sum", "histogram", "vector-add"])
@pytest.mark.parametrize("language", start.LANGUAGES)
@pytest.mark.slow
def test_starter_files_pass(judge, problem, language):
    suffix = start.LANGUAGES[language]
    found = judge(start.text(problem, language), suffix=suffix)
    assert found.verdict == "pass", found.steps[-1]
