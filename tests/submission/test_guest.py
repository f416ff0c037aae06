"""A kernel file as a contender of `gemmlab bench`."""

import pytest
from inline import in_this_process
from kernels import TF32, gemm, rounded

from gemmlab import problems
from gemmlab.errors import CompileError, InputError
from gemmlab.kernels import ladder
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.session import BenchPlan
from gemmlab.lab.submission import process
from gemmlab.lab.submission.guest import guest

GEMM = problems.find("gemm")
SHAPE = {"m": 33, "n": 20, "k": 17}


@pytest.fixture
def made(judge, monkeypatch):
    """Make the job for a file and rungs; returns it with the refusals."""
    monkeypatch.setattr(process, "run", in_this_process)

    def make(text, *rungs, shape=SHAPE):
        guests = [guest(judge.file(text))]
        found = [ladder.find(name) for name in rungs]
        plan = BenchPlan(GEMM, found, [shape], "normal", 0, None, guests)
        plan.check()
        return plan.job(shape, Protocol(), "sm_90a")

    return make


def test_a_file_is_timed_with_rungs_as_its_directive_says(made):
    job, refusals = made(gemm(), "naive")
    naive, own = job.kernels
    assert not refusals and (naive.name, own.name) == ("naive", "kernel.cu")
    assert own.geometry == ((2, 3, 1), (16, 16, 1), 0)
    assert own.args == ("a", "b", "c", "m", "n", "k")
    assert (own.precision, job.precision) == ("ieee", "ieee")
    assert "gemm:naive" in job.command and "kernel.cu --shape 33,20,17" in job.command


def test_a_cheaper_class_is_measured_in_that_class(made):
    job, _ = made(rounded(TF32).replace("layout=row", "layout=row precision=tf32"))
    assert job.precision == job.kernels[0].precision == "tf32"


def test_a_shape_that_a_file_does_not_accept_is_skipped(made):
    job, [refusal] = made(gemm().replace("layout=row", "layout=row multiple=16,16,8"))
    assert not job.kernels and (refusal.status, refusal.failed) == ("skipped", False)
    assert "multiples of 16,16,8" in refusal.message
    job, [refusal] = made(gemm().replace("layout=row", "layout=row equal=m,n"))
    assert not job.kernels and refusal.message.endswith("only accepts equal m, n")


def test_a_forbidden_kernel_is_not_timed(made):
    with pytest.raises(CompileError, match=r"kernel.cu: forbidden: gemm keeps kept"):
        made(gemm(before="__device__ float kept;", store="c[row * n + col] = kept = sum;"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("layout=row", "layout=row,col,col"), "course"),
        (("problem=gemm", "problem=sum"), "for sum"),
        (("grid=", "hgrid="), "kernel.cu: "),
    ],
)
def test_files_that_do_not_match_the_rungs_are_refused(made, change, message):
    with pytest.raises(InputError, match=message):
        made(gemm().replace(*change), "naive")


def test_another_layout_is_refused(judge):
    with pytest.raises(InputError, match="has layout row, not course"):
        guest(judge.file(gemm()), "course")
