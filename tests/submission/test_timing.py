"""The judge's GPU steps on a fake GPU: trials, three timed runs, and the score."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inline import in_this_process
from kernels import BF16, TF32, gemm, rounded
from rich.console import Console

from gemmlab.compile.artifact import Artifact
from gemmlab.core.figures import seconds
from gemmlab.devices import cuda
from gemmlab.errors import DeviceError
from gemmlab.lab.bench import baselines, machine, worker
from gemmlab.lab.bench.baselines import blas
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.record import Record
from gemmlab.lab.directives import read
from gemmlab.lab.submission import cases, process, tasks, timing
from gemmlab.lab.submission.steps import OVER_RESULT, Judgement, status_of
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Shapes
from gemmlab.report.judgement import print_judgement

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from fakes import FakeGpu, FakeSensors, install
from test_measuring import NumpyProduct

SIZES = "m=33 n=20 k=17"


@pytest.fixture
def submission(judge):
    def make(text, extra=SIZES):
        text = text.replace("layout=row", f"layout=row {extra}")
        artifact = judge.artifact(text)
        own = Submission(judge.file(text), read(text), "sm_90a", 3)
        return replace(own, ptx=artifact.ptx, entry=artifact.entry)

    return make


@pytest.fixture
def timed(monkeypatch):
    """Time a submission on the fake GPU and return the task's answer."""
    for module, name in ((machine, "LEAST_S"), (machine, "PAUSE_S"), (worker, "RESETTLE_S")):
        monkeypatch.setattr(module, name, 0.0)

    def measured(jobs, protocol, probe, clock):
        device: Any = FakeGpu({jobs[0].kernels[0].artifact.origin: 5e-4})

        def library(*args):
            product = NumpyProduct(device)
            product.details = {"compute_type": blas.COMPUTE_TYPES[args[-1]]}
            return [product]

        monkeypatch.setattr(baselines, "make", library)
        install(monkeypatch, device)
        protocol, probe = Protocol(rounds=2), Artifact("fma_peak", "", device.arch, ())
        sensors: Any = FakeSensors()
        return worker.Measurement(device, sensors, jobs, protocol, probe, clock).take()

    monkeypatch.setattr(worker, "run", measured)

    def take(submission, precision="ieee"):
        [result] = timing.take(timing.Request(submission, "sm_90a", precision))
        return result

    return take


@pytest.mark.slow
def test_the_score_is_the_best_of_three_runs_with_different_inputs(submission, timed):
    result = timed(submission(gemm()))
    assert result["score"] == pytest.approx(200, rel=0.02) and "% of cublas" in result["message"]
    own = [run for run in result["runs"] if run["kernel"] == timing.NAME]
    assert len(own) == len({run["seed"] for run in own}) == 3
    assert own[0]["shape"] == {"m": 33, "n": 20, "k": 17}
    assert result["best_seconds"][0] == pytest.approx(5e-4, rel=0.01)
    out = Console(file=io.StringIO(), width=100, record=True)
    print_judgement(out, Judgement("kernel.cu", score=result["score"], runs=result["runs"]))
    lines = out.export_text().splitlines()
    [heading] = [i for i, line in enumerate(lines) if line.startswith("Timed at 33×20×17")]
    headings, *rows = lines[heading + 1 : heading + 5]
    assert headings.split() == ["run", "kernel", "TFLOPS", "cublas", "TFLOPS", "of", "cublas"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    times = [run["gpu_median_s"] for run in own]
    assert [row.split()[1] for row in rows] == [seconds(time) for time in times]
    assert all(row.endswith("%") for row in map(str.rstrip, rows))


@pytest.mark.slow
def test_kernels_with_additional_arguments_are_timed(submission, timed):
    text = gemm(store="c[row * n + col] = alpha * sum + 0.0f * c[row * n + col];")
    text = text.replace("int n, int k)", "int n, int k, float alpha)")
    text = text.replace("args=a,b,c,m,n,k", "args=a,b,c,m,n,k,1.0 output=finite")
    assert timed(submission(text))["score"] > 0


@pytest.mark.slow
def test_a_wrong_result_has_no_score(submission, timed):
    result = timed(submission(gemm(store="c[row * n + col] = sum * 1.01f;")))
    assert result["status"] == "wrong answer" and "score" not in result


@pytest.mark.parametrize(("precision", "text"), [("tf32", rounded(TF32)), ("bf16", rounded(BF16))])
@pytest.mark.slow
def test_a_cheaper_class_is_scored_against_cublas_in_that_class(submission, timed, precision, text):
    result = timed(submission(text), precision)
    assert result["score"] > 0 and blas.COMPUTE_TYPES[precision] in result["message"]
    assert {run["precision"] for run in result["runs"]} == {precision, "ieee"}  # NumPy's is
    assert timed(submission(text), "ieee")["status"] == "wrong answer"


TRICKS = {
    # Each detects the timing loop by what the previous launch left in memory.
    "finds its work done, at the timed shape": gemm(
        first="  if (!inside || m == 33 && fabsf(c[row * n + col]) < 1e30f) return;\n"
    ),
    "finds it done where it looks, a few times in a tile": gemm(
        first="""
  bool done = m == 33;
  for (int j = 0; done && j < 16; ++j) {
    int x = min(blockIdx.x * blockDim.x + j, n - 1), y = min(blockIdx.y * blockDim.y + j, m - 1);
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += a[y * k + i] * b[i * n + x];
    done = c[y * n + x] == sum;
  }
  done = __syncthreads_and(done);
  if (!inside || done) return;
"""
    ),
    "keeps its result in an array of its own": gemm(
        first="""
  if (!inside) return;
  if (kept[row * n + col] != 0) { c[row * n + col] = kept[row * n + col]; return; }
""",
        store="c[row * n + col] = kept[row * n + col] = sum;",
    )
    .replace("int n, int k)", "int n, int k, float* kept)")
    .replace("args=a,b,c,m,n,k", "args=a,b,c,m,n,k,kept:f32[m*n]=zeros"),
}


LEAVES_IT = [name for name in TRICKS if "finds" in name]


@pytest.mark.parametrize("name", LEAVES_IT)
@pytest.mark.slow
def test_a_kernel_that_skips_completed_work_has_no_score(submission, timed, name):
    result = timed(submission(TRICKS[name]))
    assert (
        result["status"] == "forbidden" and "keeps old contents of its output" in result["message"]
    )


@pytest.mark.slow
def test_arrays_of_the_directive_are_refilled_before_each_launch(submission, timed, monkeypatch):
    found, launch = [], FakeGpu.prepare

    def watched(self, artifact, grid, block, args, smem=0):
        run = launch(self, artifact, grid, block, args, smem)
        own = args[-1] if len(args) == 7 else None

        def checked():
            if own is not None:
                found.append(bool(own.buffer.data[own.offset : own.offset + own.nbytes].any()))
            run()

        return checked

    monkeypatch.setattr(FakeGpu, "prepare", watched)
    timed(submission(TRICKS["keeps its result in an array of its own"]))
    assert len(found) > 10 and not any(found)


def test_an_error_that_ends_the_runs_is_the_verdict(submission, timed, monkeypatch):
    def broken(_):
        raise DeviceError("an illegal memory access")

    monkeypatch.setattr(FakeSensors, "read", broken)
    result = timed(submission(gemm()))
    assert result["status"] == "not run" and result["message"].endswith("an illegal memory access")


@pytest.mark.slow
def test_the_clocks_must_agree(submission, timed):
    result = timed(submission(gemm()))
    run = Record(**result["runs"][-1])
    events = run.gpu_mean_s
    cases: tuple[tuple[dict[str, Any], str | None], ...] = (
        ({"cpu_mean_s": 1.02 * events}, None),
        ({"cpu_mean_s": 0.5 * events}, "wall"),
        ({"cpu_mean_s": 40 * events}, "wall"),
        ({"cupti_s": 0.9 * events}, None),
        ({"cupti_s": 2 * events}, "CUPTI"),
    )
    for clocks, named in cases:
        found = timing.disagree(replace(run, **clocks))
        assert found is None if named is None else named in str(found)


def test_trials_on_a_gpu_include_large_shapes_and_every_family(submission, monkeypatch):
    large = Shapes(((9, 8, 7),), ((40, 30, 20),), (16, 16, 16))
    monkeypatch.setattr(cases, "SHAPES", {"gemm": large})
    monkeypatch.setattr(cuda, "CudaDevice", lambda: FakeGpu({}))
    result = list(tasks.try_on_gpu(submission(gemm())))
    assert result[0]["device"] == "cuda:0 Fake"
    trials = [answer["trial"] for answer in result if "trial" in answer]
    assert all(trial["precision"] == "ieee" for trial in trials)
    seen = {trial["family"] for trial in trials if trial["shape"]["m"] == 40}
    assert len(seen) == 9
    assert trials[-1]["purpose"] == OVER_RESULT


@pytest.mark.slow
def test_clocks_that_disagree_on_a_shared_gpu_are_no_accusation(submission, timed, monkeypatch):
    monkeypatch.setattr(timing, "disagree", lambda record: "1 µs by one clock, 2 µs by another")
    assert timed(submission(gemm()))["status"] == "impossible time"
    reading = replace(FakeSensors().read(), others=2)
    monkeypatch.setattr(FakeSensors, "read", lambda self: reading)
    result = timed(submission(gemm()))
    assert result["status"] == "not run" and "other processes on the GPU: 2" in result["message"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("CUDA_ERROR_ILLEGAL_ADDRESS: While executing", "out of bounds"),
        ("CUDA_ERROR_MISALIGNED_ADDRESS: While executing", "misaligned"),
        ("CUDA_ERROR_LAUNCH_FAILED: An exception", "crashed"),
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device", "not run"),
    ],
)
def test_errors_of_the_driver_have_a_status(error, status):
    assert status_of(DeviceError(f"running gemm on cuda:0: {error}")) == status


@pytest.mark.parametrize(("on_gpu", "verdict"), [(True, "pass"), (False, "unsupported")])
def test_an_instruction_that_the_emulator_lacks_is_tried_on_a_gpu(
    judge, monkeypatch, on_gpu, verdict
):
    result = {
        "emulate": process.TaskResult([], "unsupported", "no such instruction"),
        "try_on_gpu": process.TaskResult([{"arch": "sm_90a"}])
        if on_gpu
        else process.TaskResult([], "not run", "no GPU"),
        "time_on_gpu": process.TaskResult([{"score": 50.0}]),
    }

    def run(task, request, limits):
        return result.get(task) or in_this_process(task, request, limits)

    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(cuda, "has_driver", lambda: True)
    found = judge(gemm(), apart=True, gpu=True)
    assert (found.verdict, found.score) == (verdict, 50.0 if on_gpu else None)
