"""A judgement for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmlab.core.figures import digits, scaled, seconds
from gemmlab.lab import metrics
from gemmlab.lab.submission.steps import Judgement, Step
from gemmlab.report.tables import plain_table

SHOWN = 5  # wrong elements
CELL = 200  # characters
LINES = 30

# Counters worth a line, by the name that a table gives them.
COUNTERS = {
    "PTX instructions": (metrics.PTX_INSTRUCTIONS,),
    "global load requests": (metrics.GLOBAL_LOAD_REQUESTS,),
    "global load sectors": (metrics.GLOBAL_LOAD_SECTORS,),
    "global store requests": (metrics.GLOBAL_STORE_REQUESTS,),
    "global store sectors": (metrics.GLOBAL_STORE_SECTORS,),
    "shared wavefronts": (metrics.SHARED_WAVEFRONTS,),
    "of them repeats": (metrics.SHARED_EXCESSIVE,),
    "global atomics": metrics.GLOBAL_ATOMICS,
    "divergent branches": (metrics.DIVERGENT_BRANCHES,),
}


def print_judgement(out: Console, result: Judgement) -> None:
    """Steps, what was wrong, counters, advice, class, score and the verdict."""
    out.print(f"{result.file}, seed {result.seed}, {result.arch}")
    out.print()
    rows = [
        [step.name, step.status, seconds(step.seconds), _short(step.message)]
        for step in result.steps
    ]
    out.print(plain_table(["step", "status", "time", "what was found"], rows))
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
    out.print()
    if result.precision:
        out.print(f"precision class: {result.precision}")
    if result.score is not None:
        out.print(f"score: {result.score:.1f}")
    style = "green" if result.passed else "red"
    out.print(Text(f"verdict: {result.verdict}", style=style))


def _short(message: str) -> str:
    """What a cell of a table has room for; the rest is told below it, where it matters."""
    first, *more = message.splitlines() or [""]
    cut = first if len(first) <= CELL else f"{first[:CELL].rsplit(' ', 1)[0]} …"
    return f"{cut} …" if more and cut == first else cut


def _print_wrong(out: Console, step: Step) -> None:
    """All of what was found, up to a screenful, the elements that are wrong in the first launch
    that is, and what the code printed."""
    if _short(step.message) != step.message:
        lines = step.message.splitlines()
        out.print("\n" + "\n".join(lines[:LINES]), soft_wrap=True)
        if len(lines) > LINES:
            out.print(f"… and {len(lines) - LINES} more lines; --json has them all")
    wrong = next((trial for trial in step.trials if trial.verdict.first), None)
    if wrong is not None:
        rows = [
            [str(one.index), f"{one.got:.9g}", f"{one.expected:.9g}", f"{digits(one.error_u)} u"]
            for one in wrong.verdict.first[:SHOWN]
        ]
        out.print(f"\nThe first that are wrong, {wrong.name}:")
        out.print(plain_table(["at", "got", "expected", "error"], rows))
    if step.output.strip():
        out.print(f"\nIt printed:\n{step.output.rstrip()}", soft_wrap=True)


def _print_counters(out: Console, result: Judgement) -> None:
    assert result.counters is not None
    sizes = "×".join(str(size) for size in (result.counted_shape or {}).values())
    out.print(f"\nCounted by the emulator at {sizes}:")
    told = []
    for name, counters in COUNTERS.items():
        value = sum(result.counters.get(counter, 0) for counter in counters)
        if value:
            told.append(f"{name} {scaled(value)}")
    out.print(", ".join(told))
