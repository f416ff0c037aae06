"""The table of a search for the fastest configuration of a rung."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from rich.console import Console

from gemmlab.core.figures import digits, percent, seconds
from gemmlab.kernels.rung import Rung
from gemmlab.lab import metrics, tune
from gemmlab.lab.tune import Trial
from gemmlab.report.tables import plain_table

SHOWN = 20  # best configurations


def score(trial: Trial) -> str:
    """Return the time or the bound as the end of a progress line; "" if the trial failed."""
    if trial.seconds is None:
        return ""
    how = "predicted " if trial.predicted_s else "at least " if trial.limits else ""
    return f", {how}{seconds(trial.seconds)}"


def show(
    out: Console,
    rung: Rung,
    shape: Mapping[str, int],
    counted: Mapping[str, int],
    device: str,
    trials: Sequence[Trial],
) -> None:
    """Print the best configurations, why others failed, and which is best."""
    done = tune.ranked(list(trials))
    sizes = "×".join(map(str, shape.values()))
    out.print(f"{rung.problem} {rung.name}, {sizes}, {rung.layout} layout, {device}")
    bound = any(trial.limits for trial in done)
    if bound and dict(counted) != dict(shape):
        out.print(f"counted at {'×'.join(map(str, counted.values()))}")
    out.print()
    name = "least time" if bound else "time"
    if any(trial.predicted_s for trial in done):
        name = "predicted"
    headings = ["configuration", name, "TFLOPS", "regs", "occupancy"]
    rows = [_row(trial, shape) for trial in done[:SHOWN]]
    if bound:
        headings.append("limit")
        rows = [[*row, trial.limit] for row, trial in zip(rows, done, strict=False)]
    out.print(plain_table(headings, rows))
    failed = [trial for trial in done if trial.record.verdict != "pass"]
    if failed or len(done) > SHOWN:
        out.print()
    if len(done) > SHOWN:
        out.print(f"and {len(done) - SHOWN} more")
    for trial in failed:
        out.print(f"{trial.name}: {trial.record.verdict}: {trial.record.message}")
    out.print()
    for line in textwrap.wrap(tune.sentence(list(trials), rung), out.width):
        out.print(line)


def _row(trial: Trial, shape: Mapping[str, int]) -> list[str]:
    record, taken = trial.record, trial.seconds
    registers, resident = metrics.registers(record), metrics.occupancy_percent(record)
    if taken is None:
        return [trial.name, record.verdict, "–", "–", "–"]
    larger = 1.0
    for axis, size in shape.items():
        larger *= size / max(1, record.shape[axis])
    return [
        trial.name,
        seconds(taken),
        digits(larger * record.flops / taken / 1e12) if record.flops > record.min_bytes else "–",
        digits(registers) if registers else "–",
        percent(resident) if resident else "–",
    ]
