"""The rungs of the ladders and their baselines, like `gemmlab bench`. Minutes of GPU time.

    python -m benchmarks ladder FOLDER [gemm sum:vectorized,fixed-order …]

Rungs after a colon are measured alone, beside the baselines. Together the cases are one run, in a
new folder, which has the results of a case as soon as it is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu import Gpu
from benchmarks.measurement import check_name
from gemmlab import problems
from gemmlab.kernels import ladder
from gemmlab.lab.bench import record, session
from gemmlab.lab.bench.job import Outcome, Refusal
from gemmlab.lab.bench.protocol import Protocol

PROTOCOL = Protocol(rounds=5, min_time_s=0.05, timeout_s=0.75)
VECTORS = [(2**20,), (10_000_001,), (2**26,)]
# Rungs that share a kernel.
SAME = {"vector-add": ("managed", "managed-prefetch", "async-stream")}


@dataclass(frozen=True)
class Group:
    problem: str
    sizes: Sequence[tuple[int, ...]]
    layout: str = "row"
    family: str = "normal"
    baselines: tuple[str, ...] | None = None  # None: those that are installed

    def plan(self, chosen: str = "") -> session.BenchPlan:
        """The measurement of all rungs, or of those whose names are `chosen`, separated by commas.

        Raises UnknownNameError.
        """
        problem = problems.find(self.problem)
        same = SAME.get(self.problem, ())
        rungs = [rung for rung in ladder.rungs(self.problem) if rung.name not in same]
        rungs = [rung for rung in rungs if rung.launches is None]  # only single launches
        if chosen:
            rungs = [ladder.find(name, self.layout, self.problem) for name in chosen.split(",")]
        return session.BenchPlan(
            problem=problem,
            rungs=[ladder.in_layout(rung, self.layout) for rung in rungs],
            shapes=[dict(zip(problem.axes, size, strict=True)) for size in self.sizes],
            family=self.family,
            seed=0,
            baselines=self.baselines,
        )


GROUPS = {
    "gemm": Group("gemm", [(n, n, n) for n in (512, 1024, 2048, 4096)]),
    "gemm-ragged": Group("gemm", [(1000,) * 3, (333, 777, 555), (4097, 4095, 4093)]),
    "gemm-skinny": Group("gemm", [(64, 8192, 8192), (8192, 64, 8192)]),
    "gemm-large": Group("gemm", [(8192,) * 3], baselines=("cublas", "torch")),
    "gemm-course": Group(
        "gemm", [(n, n, n) for n in (2048, 4096)], "course", baselines=("cublas",)
    ),
    "gemm-course-large": Group("gemm", [(8192,) * 3], "course", baselines=("cublas",)),
    "gemm-course-ragged": Group("gemm", [(4097, 4095, 4093)], "course", baselines=("cublas",)),
    "transpose": Group("transpose", [(1024, 1024), (5000, 3000), (8192, 8192)]),
    "sum": Group("sum", [(2**20,), (2**26,)]),
    "histogram": Group("histogram", [(2**20,), (2**28,)], family="uniform"),
    "histogram-single": Group("histogram", [(2**28,)], family="single"),
    "histogram-text": Group("histogram", [(2**28,)], family="text"),
    "vector-add": Group("vector-add", VECTORS),
}


@dataclass(frozen=True)
class Ladder:
    """Groups of cases, whose record is a folder of `gemmlab bench`."""

    parts: Mapping[str, Group]
    pages: Mapping[str, Any] = field(default_factory=dict)  # they show the folders

    def run(self, target: Path, chosen: Sequence[str], gpu: Gpu) -> int:
        """Return the exit code: 0 if every case has a record. Raises GemmlabError."""
        plans = []
        for word in chosen or self.parts:
            part, _, rungs = word.partition(":")
            plans.append(check_name("part", part, self.parts).plan(rungs))
        record.check_new(target)
        arch = gpu.device.arch
        jobs = []
        for plan in plans:
            for shape in plan.shapes:
                job, refused = plan.job(shape, PROTOCOL, arch)
                jobs.append(job)
                _tell(refused)

        def keep(found: Outcome) -> None:
            record.write(target, found.records)
            _tell(found.refusals)

        outcome = session.measure_jobs(jobs, PROTOCOL, arch, keep)
        if outcome.ended_by is not None:
            print(f"ended early: {str(outcome.ended_by) or 'interrupted'}", file=sys.stderr)
        return int(outcome.ended_by is not None or any(one.failed for one in outcome.refusals))


def _tell(refusals: Sequence[Refusal]) -> None:
    for refusal in refusals:
        print(refusal, file=sys.stderr)


MEASUREMENT = Ladder(GROUPS)
