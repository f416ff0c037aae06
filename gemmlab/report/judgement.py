"""A judgement as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmlab.core.figures import digits, scaled, seconds
from gemmlab.lab import metrics
from gemmlab.lab.submission.steps import Judgement, Step
from gemmlab.report.tables import plain_table

SHOWN = 5  # wrong elements shown
CELL = 200  # characters of a message shown in the table
LINES = 30  # lines of a message shown below the table

# The counters shown, by their names on the page.
COUNTERS = {
    "PTX instructions": (metrics.PTX_INSTRUCTIONS,),
    "global load requests": (metrics.GLOBAL_LOAD_REQUESTS,),
    "global load sectors": (metrics.GLOBAL_LOAD_SECTORS,),
    "global store requests": (metrics.GLOBAL_STORE_REQUESTS,),
    "global store sectors": (metrics.GLOBAL_STORE_SECTORS,),
    "shared wavefronts": (metrics.SHARED_WAVEFRONTS,),
    "excessive shared wavefronts": (metrics.SHARED_EXCESSIVE,),
    "global atomics": metrics.GLOBAL_ATOMICS,
    "divergent branches": (metrics.DIVERGENT_BRANCHES,),
}


def print_judgement(out: Console, result: Judgement) -> None:
    """Print the steps, errors, counters, advice, timed runs, precision class, score and verdict."""
    out.print(f"{result.file}, seed {result.seed}, {result.arch}")
    out.print()
    rows = [
        [step.name, step.status, seconds(step.seconds), _short(step.message)]
        for step in result.steps
    ]
    out.print(plain_table(["step", "status", "time", "result"], rows))
    for step in result.steps:
        if not step.passed:
            _print_wrong(out, step)
    if result.counters:
        _print_counters(out, result)
    if result.advice:
        out.print("\nWhat to improve first:")
        listed = Table.grid(padding=(0, 1))
        for number, sentence in enumerate(result.advice, 1):
            listed.add_row(f"{number}.", Text(sentence))
        out.print(listed)
    _print_runs(out, result)
    out.print()
    if result.precision:
        out.print(f"precision class: {result.precision}")
    if result.score is not None:
        out.print(f"score: {result.score:.1f}")
    out.print(f"sandbox: {result.sandbox}", soft_wrap=True)
    style = "green" if result.passed else "red"
    out.print(Text(f"verdict: {result.verdict}", style=style))


def _short(message: str) -> str:
    """Shorten a message for a table cell: its first line, at most CELL characters."""
    first, *more = message.splitlines() or [""]
    cut = first if len(first) <= CELL else f"{first[:CELL].rsplit(' ', 1)[0]} …"
    return f"{cut} …" if more and cut == first else cut


def _print_wrong(out: Console, step: Step) -> None:
    """Print a failed step's message, the wrong elements of its first wrong launch, and the code's
    own output."""
    if _short(step.message) != step.message:
        lines = step.message.splitlines()
        out.print("\n" + "\n".join(lines[:LINES]), soft_wrap=True)
        if len(lines) > LINES:
            out.print(f"… and {len(lines) - LINES} more lines; use --json to see all of them")
    wrong = next((trial for trial in step.trials if trial.verdict.first), None)
    if wrong is not None:
        rows = [
            [str(one.index), f"{one.got:.9g}", f"{one.expected:.9g}", f"{digits(one.error_u)} u"]
            for one in wrong.verdict.first[:SHOWN]
        ]
        out.print(f"\nThe first wrong elements, {wrong.name}:")
        out.print(plain_table(["index", "got", "expected", "error"], rows))
    if step.output.strip():
        out.print(f"\nOutput of the code:\n{step.output.rstrip()}", soft_wrap=True)


def _print_runs(out: Console, result: Judgement) -> None:
    """Print one line per timed run: the kernel's time and speed, and the baseline's."""
    compared = [run for run in result.runs if run["baseline"] is not None]
    own = [run for run in compared if run["kernel"] != run["baseline"]["kernel"]]
    if not own:
        return
    rows = []
    for number, run in enumerate(own, 1):
        other = run["baseline"]
        cells = [seconds(time) for time in (run["gpu_median_s"], other["gpu_median_s"])]
        speeds = [digits(speed(run, time)) for time in (run["gpu_median_s"], other["gpu_median_s"])]
        percent = f"{100 * other['gpu_median_s'] / run['gpu_median_s']:.1f}%"
        rows.append([str(number), cells[0], speeds[0], cells[1], speeds[1], percent])
    name = own[0]["baseline"]["kernel"]
    out.print(f"\nTimed at {sizes(own[0]['shape'])}:")
    unit = "TFLOPS" if own[0]["flops"] else "GB/s"
    headings = ["run", "kernel", unit, name, unit, f"of {name}"]
    out.print(plain_table(headings, rows))


def speed(run: Mapping[str, Any], time_s: float) -> float:
    """Return TFLOPS, or GB/s of a problem without FLOPs."""
    work: float = run["flops"] / 1e12 if run["flops"] else run["min_bytes"] / 1e9
    return work / time_s


def sizes(shape: Mapping[str, int]) -> str:
    return "×".join(map(str, shape.values()))


def trial_name(trial: Mapping[str, Any]) -> str:
    """Return the name of a launch in JSON, as `Trial.name` has it."""
    purpose = trial["purpose"]
    return f"{sizes(trial['shape'])} {trial['family']}{purpose and f', {purpose}'}"


def _print_counters(out: Console, result: Judgement) -> None:
    assert result.counters is not None
    out.print(f"\nCounted by the emulator at {sizes(result.counted_shape or {})}:")
    shown = []
    for name, counters in COUNTERS.items():
        value = sum(result.counters.get(counter, 0) for counter in counters)
        if value:
            shown.append(f"{name} {scaled(value)}")
    out.print(", ".join(shown))
