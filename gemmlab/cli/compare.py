"""`gemmlab compare`: two sets of records of `bench`, or two of `climb`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from gemmlab.lab.changes import Change

_SHOWN = 3  # numbers of a rung that differ


def compare(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE", help="Records of bench or climb: a file, or a folder of them."
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="AFTER", help="The same.")],
) -> None:
    """Compare two benches or two climbs, kernel by kernel.

    Benches: faster, slower, same or undecided. Same: the medians of cold GPU time differ by at most
    1 %. Faster or slower: they differ by more, and nine samples in ten of one lie below nine in ten
    of the other (p90 of one under p10 of the other). Undecided: they differ by more, but the
    samples overlap. Exit code 1 if any is slower.

    Climbs: verdicts, counts and times. Exit code 1 if a rung passed before and does not now.
    """
    from gemmlab.errors import InputError
    from gemmlab.lab import changes, records
    from gemmlab.lab.bench import record
    from gemmlab.lab.bench.compare import compare as compare_benches
    from gemmlab.report import bench_tables, tables

    (climbed_a, before), (climbed_b, after) = _read(a), _read(b)
    if climbed_a != climbed_b:
        climb, bench = (a, b) if climbed_a else (b, a)
        raise InputError(f"{climb} holds records of climb, {bench} of bench: compare two of a kind")
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
    """Whether the records of a file or a folder are those of climbs, and all of them."""
    from gemmlab.errors import InputError
    from gemmlab.lab.records import entries

    found = entries(path)
    kinds = {"rung" in entry for entry in found if isinstance(entry, dict)} or {False}
    if len(kinds) > 1:
        raise InputError(f"{path} holds records of climb and others: compare files")
    return kinds.pop(), found


def _print_changes(out: Console, found: Sequence[Change]) -> None:
    """A table per case, what else differs, and how often each was said."""
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
        out.print("A climb times a rung once; `gemmlab bench` says what is faster.")
    counts = Counter(one.status for one in found)
    out.print(", ".join(f"{number} {status}" for status, number in counts.most_common()))


def _row(one: Change) -> list[str]:
    from gemmlab.report.steps import number

    moves = one.moves
    told = [f"{name} {number(old)} → {number(new)}" for name, old, new in moves[:_SHOWN]]
    if moves[_SHOWN:]:
        told.append(f"and {len(moves) - _SHOWN} more")
    return [one.rung, one.verdict, one.status, ", ".join(told) or "–"]


def _times(one: Change) -> list[str]:
    from gemmlab.core.figures import seconds

    sides = (record and record.time_s for record in (one.before, one.after))
    times = [seconds(time) if time else "–" for time in sides]
    return [*times, f"{one.time_ratio:.3f}" if one.time_ratio else "–"]
