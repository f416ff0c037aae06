"""`gemmlab compare`: compare two kernels, or two sets of records of `bench` or of `climb`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.cli.options import (
    Clock,
    Predict,
    PredictedGpu,
    Sms,
    WhatIf,
    complete_kernels,
    model_of,
)
from gemmlab.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gemmlab.lab.changes import Change
    from gemmlab.lab.measured import Measured
    from gemmlab.timing import Model

_SHOWN = 3  # differing numbers shown per rung


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            autocompletion=complete_kernels,
            help="Records of bench or climb, a file or a folder; the --json output of explain, "
            "judge or emulate; a kernel file; or a rung.",
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(
            metavar="AFTER",
            autocompletion=complete_kernels,
            help="The same, of the new state.",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="For kernel files: values that override the directives, such as m=256; for rungs, "
            "sizes.",
        ),
    ] = None,
    predict: Predict = False,
    gpu: PredictedGpu = None,
    sms: Sms = None,
    clock: Clock = None,
    what_if: WhatIf = None,
) -> None:
    """Compare two kernels, two benches or two climbs.

    Kernel files and rungs are emulated at one shape: counters, the bound on time, resources and
    errors are compared, with the source line that changed most. The exit code is 1 if the first
    is right and the second is not.

    With --predict, two kernels are not emulated, but their times on a GPU are predicted.

    A kernel of a bench is "same" if the medians of cold GPU time differ by at most 1 %. It is
    "faster" or "slower" if they differ by more and the samples are separated (the p90 of one side
    is below the p10 of the other), "undecided" if they overlap. The exit code is 1 if a kernel is
    slower.

    For climbs, verdicts, counts and times are compared. The exit code is 1 if a rung that passed
    now fails.
    """
    if gpu is not None and not predict:
        raise InputError("--gpu requires --predict")
    model = model_of(predict, gpu, sms, clock, what_if)
    if model is not None:
        _compare_predictions((a, b), words or [], model)
        return
    old, new = _measured(a, words or []), _measured(b, words or [])
    if old is not None and new is not None:
        from gemmlab.report import comparison, tables

        comparison.print_measured(tables.console(), old, new)
        failed = old.passed and not new.passed
    else:
        failed = _compare_records(a, b, words or [])
    if failed:
        raise typer.Exit(1)


def _compare_predictions(names: tuple[str, str], words: Sequence[str], model: Model) -> None:
    """Print the predictions of two kernels beside each other."""
    from gemmlab.cli.options import is_rung, rung_of
    from gemmlab.compile.directive import parse
    from gemmlab.lab import kernel_file
    from gemmlab.report import prediction, tables

    found, given = [], parse(list(words))
    for name in names:
        is_file = not is_rung(name) or Path(name).exists()
        kernel = (
            kernel_file.KernelFile.read(Path(name), given) if is_file else rung_of(name, None, None)
        )
        found.append(kernel_file.predict(kernel, given, model)[2])
    out = tables.console()
    out.print(f"{names[0]} → {names[1]}, {prediction.device(model)}")
    out.print()
    out.print(
        tables.plain_table(["", "before", "after"], prediction.beside(found[0], found[1], model))
    )
    out.print()
    out.print(prediction.NOTE)


def _measured(name: str, words: Sequence[str]) -> Measured | None:
    """Emulate a file or a rung, or read the JSON of one launch; None for records of several."""
    from gemmlab.cli.options import is_rung, rung_of
    from gemmlab.compile import SUFFIXES
    from gemmlab.compile.directive import parse
    from gemmlab.lab import kernel_file, measured, records

    path = Path(name)
    if path.suffix in SUFFIXES:
        return measured.of_run(path.name, kernel_file.run(path, parse(list(words))))
    if is_rung(name) and not path.exists():
        return measured.of_run(
            name, kernel_file.run_rung(rung_of(name, None, None), parse(list(words)))
        )
    if path.is_dir():
        return None
    entries = records.entries(path)
    return measured.of_json(entries[0], path) if len(entries) == 1 else None


def _compare_records(a: str, b: str, words: Sequence[str]) -> bool:
    """Compare two climbs or two benches; return whether something became worse."""
    from gemmlab.cli.saved import read_two
    from gemmlab.lab import changes
    from gemmlab.lab.bench.compare import compare as compare_benches
    from gemmlab.report import bench_tables, tables

    if words:
        raise InputError(f"{words[0]} is for kernel files and rungs")
    for name, other in ((a, b), (b, a)):
        if not Path(name).exists() or name.endswith((".cu", ".cuh", ".ptx", ".py")):
            raise InputError(f"cannot compare a kernel, {name}, with the records in {other}")
    before, after = read_two(Path(a), Path(b))
    if before.climbed:
        changed = changes.compare(before.climbed, after.climbed)
        _print_changes(tables.console(), changed)
        return any(one.status == "broken" for one in changed)
    found = compare_benches(before.benched, after.benched)
    bench_tables.print_comparison(tables.console(), found)
    return any(one.change == "slower" for one in found)


def _print_changes(out: Console, found: Sequence[Change]) -> None:
    """Print a table per case, other differences, and how many rungs have each status."""
    from collections import Counter

    from rich.text import Text

    from gemmlab.lab import changes
    from gemmlab.lab.bench.job import case_name
    from gemmlab.report import tables

    for case in dict.fromkeys(one.case for one in found):
        own = [one for one in found if one.case == case]
        out.print(Text(case_name(*case), style="bold"))
        headings, rows = ["rung", "verdict", "B is", "what differs"], [_row(one) for one in own]
        if any(one.time_ratio for one in own):
            headings += ["A: time", "B: time", "B/A"]
            rows = [row + _times(one) for row, one in zip(rows, own, strict=True)]
        out.print(tables.plain_table(headings, rows))
        out.print()
    for line in changes.conditions(found):
        out.print(line)
    if any(one.time_ratio for one in found):
        out.print("A climb times each rung only once; use `gemmlab bench` to compare speeds.")
    counts = Counter(one.status for one in found)
    out.print(", ".join(f"{number} {status}" for status, number in counts.most_common()))


def _row(one: Change) -> list[str]:
    from gemmlab.report.steps import number

    moves = one.moves
    shown = [f"{name} {number(old)} → {number(new)}" for name, old, new in moves[:_SHOWN]]
    if moves[_SHOWN:]:
        shown.append(f"and {len(moves) - _SHOWN} more")
    return [one.rung, one.verdict, one.status, ", ".join(shown) or "–"]


def _times(one: Change) -> list[str]:
    from gemmlab.core.figures import seconds

    sides = (record and record.time_s for record in (one.before, one.after))
    times = [seconds(time) if time else "–" for time in sides]
    return [*times, f"{one.time_ratio:.3f}" if one.time_ratio else "–"]
