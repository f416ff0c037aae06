"""Three timed runs of a submission against the problem's first baseline, and the score."""

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
# Three runs of two contenders, with what the judge computes, in well under a minute: noise may keep
# NVBench sampling to the last.
PROTOCOL = Protocol(rounds=3, min_time_s=0.1, timeout_s=1.5)
NAME = "submission"  # of the kernel among the contenders
# By how much the wall may show more time than the GPU's events: the launch, and then some.
LAUNCH_S, SLACK = 1e-3, 0.25
SHORT_S = 1e-5  # less than this between the GPU's two clocks means nothing


@dataclass(frozen=True)
class Request:
    """`precision` is the class that the submission was found to be in."""

    submission: Submission
    arch: str
    precision: str | None

    @property
    def shape(self) -> Shape:
        size = self.submission.problem.measured_size
        return self.submission.timed_shape(size)


def take(request: Request) -> Iterator[dict[str, Any]]:
    """Measure on GPU 0; needs a process that has measured nothing before."""
    artifact = load(request.submission.ptx, entry=request.submission.entry, arch=request.arch)
    made = jobs(request, artifact)
    yield scored(worker.run(made, PROTOCOL, fma_probe(request.arch), _kernel_clock()))


def jobs(request: Request, artifact: Artifact) -> list[Job]:
    """One for each run, each with inputs of its own."""
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
            seed=submission.seed + 10_000 + 2 * run,  # the next one is judged after timing
            kernels=(kernel,),
            baselines=baselines.names(problem.name)[:1],
            command=f"gemmlab judge {submission.path.name} --seed {submission.seed}",
            precision=request.precision or "ieee",
        )
        for run in range(RUNS)
    ]


def scored(outcome: Outcome) -> dict[str, Any]:
    """The score, 100 × the best speed of the submission / the best of the baseline."""
    told: dict[str, Any] = {"runs": [asdict(record) for record in outcome.records]}
    if outcome.ended_by is not None:
        words = f"{type(outcome.ended_by).__name__}: {outcome.ended_by}"
        return told | {"status": status_of(outcome.ended_by), "message": words}
    for refusal in outcome.refusals:
        return told | {"status": _status(refusal.status), "message": str(refusal)}
    own = [record for record in outcome.records if record.kernel == NAME]
    others = [record for record in outcome.records if record.kernel != NAME]
    if not own or not others:
        return told | {"status": "not run", "message": "no run came to its end"}
    for record in own:
        if disagreement := disagree(record):
            company = [warning for warning in record.warnings if COMPANY in warning]
            status = "not run" if company else "impossible time"
            return told | {"status": status, "message": "; ".join([disagreement, *company])}
    best, baseline = _best(own), _best(others)
    score = 100 * baseline.gpu_median_s / best.gpu_median_s
    compute_type = baseline.details.get("compute_type")
    against = f"{baseline.kernel}, {compute_type}" if compute_type else baseline.kernel
    speed = f"{best.tflops:.4g} TFLOPS" if best.tflops else f"{best.gigabytes_per_second:.4g} GB/s"
    message = f"{speed}, {score:.1f} % of {against}; the best of {len(own)} runs each"
    seconds = best.gpu_median_s, baseline.gpu_median_s
    return told | {"score": score, "best_seconds": seconds, "message": message}


def disagree(record: Record) -> str | None:
    """How the clocks of a run contradict each other, or None.

    The GPU's events see what lies between them on one stream; the wall clock, all that a launch
    causes, and the launch; CUPTI, all that a launch causes on the GPU.
    """
    events, wall, cupti = record.gpu_mean_s, record.cpu_mean_s, record.cupti_s
    told = f"{1e6 * events:.4g} µs by the GPU's events"
    if not events - SLACK * events <= wall <= events + max(LAUNCH_S, SLACK * events):
        return f"{told}, {1e6 * wall:.4g} µs by the wall clock"
    if cupti is not None and cupti > events + max(SHORT_S, SLACK * events):
        return f"{told}, {1e6 * cupti:.4g} µs by CUPTI"
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
