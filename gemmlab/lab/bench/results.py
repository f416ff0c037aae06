"""Turn samples and verdicts into records, or into refusals with a reason."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gemmlab import problems
from gemmlab.errors import ImplausibleTimeError
from gemmlab.lab.bench import baselines, roofs
from gemmlab.lab.bench.circumstances import Circumstances
from gemmlab.lab.bench.contenders import Contender
from gemmlab.lab.bench.job import Job, Refusal
from gemmlab.lab.bench.machine import Reading
from gemmlab.lab.bench.nvbench import Sampled, Samples
from gemmlab.lab.bench.record import Record
from gemmlab.lab.bench.statistics import Spread, pooled, warnings

COMPANY = "other processes on the GPU"  # a warning


@dataclass
class Entry:
    """One contender in one case, with what has been measured so far."""

    job: Job
    contender: Contender
    refusal: Refusal | None = None
    max_error_u: float | None = None  # the largest error so far, in u·magnitude
    launch_s: float = 0.0  # approximate time of one launch
    rotation_bytes: int = 0
    cupti_s: float | None = None
    turns: list[int] = field(default_factory=list)  # indices of its steps
    readings: list[Reading] = field(default_factory=list)  # one after each step

    def refuse(self, status: str, message: str) -> None:
        if self.refusal is None:
            self.refusal = Refusal(self.contender.name, self.job.case, status, message)

    def samples(self, sampled: Samples) -> list[Sampled]:
        """Return the samples of this contender's steps."""
        return [one for turn in self.turns if (one := sampled[turn]) is not None]


def result(
    entry: Entry, entries: Sequence[Entry], sampled: Samples, circumstances: Circumstances
) -> Record | Refusal:
    """Return the record of one contender, or its refusal. `entries`: all contenders of its case."""
    found = entry.samples(sampled)
    if not found:
        entry.refuse("not run", "no sample within the time limit")
    elif entry.refusal is None:
        try:
            return _record(entry, found, entries, sampled, circumstances)
        except ImplausibleTimeError as error:
            entry.refuse("impossible time", str(error))
    assert entry.refusal is not None
    return entry.refusal


def _record(
    entry: Entry,
    found: Sequence[Sampled],
    entries: Sequence[Entry],
    sampled: Samples,
    circumstances: Circumstances,
) -> Record:
    """Raises ImplausibleTimeError."""
    job, contender = entry.job, entry.contender
    problem = problems.find(job.problem)
    flops, min_bytes = problem.flops(job.shape), problem.min_bytes(job.shape)
    gpu = Spread.of(np.concatenate([one.gpu_s for one in found]))
    cpu = pooled([one.cpu for one in found])
    batches = sum(one.batch_samples for one in found)
    batch_s = sum(one.batch_samples * one.batch_mean_s for one in found) / max(batches, 1)
    limits = roofs.Limits(
        circumstances.datasheet, flops, circumstances.machine["l2_bytes"], contender.precision
    )
    limits.check(gpu.median, min_bytes)
    if batches:
        limits.check(batch_s, 0)  # L2 may still hold operands of an earlier launch
    protocol = circumstances.protocol
    return Record(
        kernel=contender.name,
        title=contender.title,
        problem=job.problem,
        shape=dict(job.shape),
        layout=job.layout,
        family=job.family,
        seed=job.seed,
        flops=flops,
        min_bytes=min_bytes,
        precision=contender.precision,
        max_error_u=entry.max_error_u,
        bound_u=problem.bound_u(job.shape),
        samples=gpu.samples,
        gpu_mean_s=gpu.mean,
        gpu_median_s=gpu.median,
        gpu_p10_s=gpu.p10,
        gpu_p90_s=gpu.p90,
        gpu_noise_percent=gpu.noise_percent,
        round_medians_s=[float(np.median(one.gpu_s)) for one in found],
        cpu_mean_s=cpu.mean,
        cpu_noise_percent=cpu.noise_percent,
        batch_samples=batches,
        batch_mean_s=batch_s if batches else None,
        sm_mhz=_mean([float(mhz) for one in found for mhz in one.sm_mhz]),
        temperature_c=_mean([reading.temperature_c for reading in entry.readings]),
        power_w=_mean([reading.power_w for reading in entry.readings]),
        warnings=[*warnings(gpu, protocol), *_company(entry.readings)],
        baseline=_baseline(entries, sampled),
        details=contender.details,
        command=job.command,
        rotation_bytes=entry.rotation_bytes,
        interleaved=[other.contender.name for other in entries],
        date=circumstances.date,
        protocol=asdict(protocol)
        | {
            "nvbench": importlib.metadata.version("cuda-bench"),
            "cold": "L2 flushed before each sample",
        },
        machine=circumstances.machine,
        versions=circumstances.versions,
        cupti_s=entry.cupti_s,
    )


def _baseline(entries: Sequence[Entry], sampled: Samples) -> dict[str, Any] | None:
    """Return the problem's reference and its time in the same rounds; None if it has none."""
    known = {entry.contender.name: entry for entry in entries if entry.refusal is None}
    for name in baselines.references(entries[0].job.problem):
        if name in known and (found := known[name].samples(sampled)):
            return {
                "kernel": name,
                "title": known[name].contender.title,
                "gpu_median_s": float(np.median(np.concatenate([one.gpu_s for one in found]))),
                "details": known[name].contender.details,
            }
    return None


def _company(readings: Sequence[Reading]) -> list[str]:
    """Return a warning if other processes may have used the GPU at the same time."""
    others = max((reading.others or 0 for reading in readings), default=0)
    return [f"{COMPANY}: {others}"] if others else []


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
