"""`gemmlab compare`: compare two sets of records of `bench`, or two of `climb`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from gemmlab.lab.changes import Change

_SHOWN = 3  # differing numbers shown per rung


def compare(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE", help="Old records, of bench or climb: a file or a folder."
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="AFTER", help="New records, of the same command.")],
) -> None:
    """Compare two benches or two climbs, kernel by kernel.

    A kernel of a bench is "same" if the medians of cold GPU time differ by at most 1 %. It is
    "faster" or "slower" if they differ by more and the samples are separated (the p90 of one side
    is below the p10 of the other), "undecided" if they overlap. The exit code is 1 if a kernel is
    slower.

    For climbs, verdicts, counts and times are compared. The exit code is 1 if a rung that passed
    now fails.
    """
    from gemmlab.errors import InputError
    from gemmlab.lab import changes, records
    from gemmlab.lab.bench import record
    from gemmlab.lab.bench.compare import compare as compare_benches
    from gemmlab.report import bench_tables, tables

    (climbed_a, before), (climbed_b, after) = _read(a), _read(b)
    if climbed_a != climbed_b:
        climb, bench = (a, b) if climbed_a else (b, a)
        raise InputError(
            f"cannot compare records of climb ({climb}) with records of bench ({bench})"
        )
    sides = ((before, a), (after, b))
    if climbed_a:
        changed = changes.compare(*(records.decoded(records.Record, *side) for side in sides))
        _print_changes(tables.console(), changed)
        failed = any(one.status == "broken" for one in changed)
    else:
        found = compare_benches(*(records.decoded(record.Record, *side) for side in sides))
        bench_tables.print_comparison(tables.console(), found)
        failed = any(one.change == "slower" for one in found)
    if failed:
        raise typer.Exit(1)


def _read(path: Path) -> tuple[bool, list[Any]]:
    """Return all records of a file or a folder, and whether they are records of climb."""
    from gemmlab.errors import InputError
    from gemmlab.lab.records import entries

    found = entries(path)
    kinds = {"rung" in entry for entry in found if isinstance(entry, dict)} or {False}
    if len(kinds) > 1:
        raise InputError(f"{path} contains records of both climb and bench: compare single files")
    return kinds.pop(), found


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
