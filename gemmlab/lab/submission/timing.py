"""Time a submission against the problem's first baseline in three runs, and compute the score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gemmlab.compile import Artifact, load
from gemmlab.errors import MissingDependencyError
from gemmlab.lab.bench import baselines, worker
from gemmlab.lab.bench.job import Job, Outcome
from gemmlab.lab.bench.kernel_clock import KernelClock
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.record import Record
from gemmlab.lab.bench.results import COMPANY
from gemmlab.lab.bench.roofs import fma_probe
from gemmlab.lab.submission.launching import contender
from gemmlab.lab.submission.steps import status_of
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Shape

RUNS = 3
# The timeout bounds NVBench's sampling on a noisy GPU, so that three runs of two contenders,
# including verification, take well under a minute.
PROTOCOL = Protocol(rounds=3, min_time_s=0.1, timeout_s=1.5)
NAME = "submission"  # the kernel's name among the contenders
# Tolerated excess of the wall clock over the GPU's events, absolute (launch overhead) and relative.
LAUNCH_S, SLACK = 1e-3, 0.25
SHORT_S = 1e-5  # smaller differences between CUPTI and the events are ignored


@dataclass(frozen=True)
class Request:
    """A compiled submission to time on `arch`; `precision` is the class that the judge found."""

    submission: Submission
    arch: str
    precision: str | None

    @property
    def shape(self) -> Shape:
        size = self.submission.problem.measured_size
        return self.submission.timed_shape(size)


def take(request: Request) -> Iterator[dict[str, Any]]:
    """Measure on GPU 0 and yield the score. The process must not have measured anything before."""
    artifact = load(request.submission.ptx, entry=request.submission.entry, arch=request.arch)
    made = jobs(request, artifact)
    yield scored(worker.run(made, PROTOCOL, fma_probe(request.arch), _kernel_clock()))


def jobs(request: Request, artifact: Artifact) -> list[Job]:
    """Return one job per run, each with different inputs."""
    submission, shape = request.submission, dict(request.shape)
    problem = submission.problem
    case = problem.case(shape, submission.layout, problem.families[0], submission.seed)
    kernel = contender(submission, artifact, case, NAME, request.precision)
    return [
        Job(
            problem=problem.name,
            shape=shape,
            layout=submission.layout,
            family=problem.families[0],
            seed=submission.seed + 10_000 + 2 * run,  # seed + 1 is used for the check after timing
            kernels=(kernel,),
            baselines=baselines.names(problem.name)[:1],
            command=f"gemmlab judge {submission.path.name} --seed {submission.seed}",
            precision=request.precision or "ieee",
        )
        for run in range(RUNS)
    ]


def scored(outcome: Outcome) -> dict[str, Any]:
    """Return the runs, and either the score or the status and message of a failure.

    The score is 100 × the submission's best speed / the baseline's best speed.
    """
    answer: dict[str, Any] = {"runs": [asdict(record) for record in outcome.records]}
    if outcome.ended_by is not None:
        message = f"{type(outcome.ended_by).__name__}: {outcome.ended_by}"
        return answer | {"status": status_of(outcome.ended_by), "message": message}
    for refusal in outcome.refusals:
        return answer | {"status": _status(refusal.status), "message": str(refusal)}
    own = [record for record in outcome.records if record.kernel == NAME]
    others = [record for record in outcome.records if record.kernel != NAME]
    if not own or not others:
        return answer | {"status": "not run", "message": "no run completed"}
    for record in own:
        if disagreement := disagree(record):
            company = [warning for warning in record.warnings if COMPANY in warning]
            status = "not run" if company else "impossible time"
            return answer | {"status": status, "message": "; ".join([disagreement, *company])}
    best, baseline = _best(own), _best(others)
    score = 100 * baseline.gpu_median_s / best.gpu_median_s
    compute_type = baseline.details.get("compute_type")
    against = f"{baseline.kernel}, {compute_type}" if compute_type else baseline.kernel
    speed = f"{best.tflops:.4g} TFLOPS" if best.tflops else f"{best.gigabytes_per_second:.4g} GB/s"
    message = f"{speed}, {score:.1f} % of {against}; best of {len(own)} runs each"
    seconds = best.gpu_median_s, baseline.gpu_median_s
    return answer | {"score": score, "best_seconds": seconds, "message": message}


def disagree(record: Record) -> str | None:
    """Describe a contradiction between the clocks of a run; None if they agree.

    CUDA events measure the work between them on one stream. The wall clock measures the launch and
    all the work that it causes, CUPTI all of that work on the GPU.
    """
    events, wall, cupti = record.gpu_mean_s, record.cpu_mean_s, record.cupti_s
    measured = f"{1e6 * events:.4g} µs by CUDA events"
    if not events - SLACK * events <= wall <= events + max(LAUNCH_S, SLACK * events):
        return f"{measured}, {1e6 * wall:.4g} µs by the wall clock"
    if cupti is not None and cupti > events + max(SHORT_S, SLACK * events):
        return f"{measured}, {1e6 * cupti:.4g} µs by CUPTI"
    return None


def _kernel_clock() -> KernelClock | None:
    try:
        return KernelClock()
    except MissingDependencyError:
        return None


def _best(records: Sequence[Record]) -> Record:
    return min(records, key=lambda record: record.gpu_median_s)


def _status(refused: str) -> str:
    return "not run" if refused in ("skipped", "not timed") else refused
