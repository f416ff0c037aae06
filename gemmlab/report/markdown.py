"""Records as Markdown tables, and a document whose tables are kept up to date between markers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gemmlab import metrics, tables
from gemmlab.errors import InputError
from gemmlab.records import Record


def ladder_table(records: Sequence[Record]) -> str:
    """Rung, time and TFLOPS of each shape; the numbers of the emulator belong to its counters."""
    sizes = list(dict.fromkeys(tuple(r.shape.values()) for r in records))
    headings = ["rung", "what it changes", "registers", "occupancy"]
    headings += [f"TFLOPS at {'×'.join(map(str, size))}" for size in sizes]
    rows = []
    for rung in dict.fromkeys(r.rung for r in records):
        own = {tuple(r.shape.values()): r for r in records if r.rung == rung}
        first = next(iter(own.values()))
        cells = [
            f"`{rung}`",
            first.change,
            _written(metrics.registers(first), tables.digits),
            _written(metrics.occupancy_percent(first), tables.percent),
        ]
        rows.append(cells + [_tflops(own.get(size)) for size in sizes])
    return table(headings, rows)


def time_table(records: Sequence[Record]) -> str:
    """Rung, and its time at each shape."""
    sizes = list(dict.fromkeys(tuple(r.shape.values()) for r in records))
    times = {(r.rung, tuple(r.shape.values())): r.time_s for r in records}
    headings = ["rung", "what it changes", *("×".join(f"{x:,}" for x in size) for size in sizes)]
    changes = {r.rung: r.change for r in records}
    rows = [
        [f"`{rung}`", change]
        + [_written(times.get((rung, size)), tables.seconds) for size in sizes]
        for rung, change in changes.items()
    ]
    return table(headings, rows)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fill(document: str, parts: Mapping[str, str]) -> str:
    """The document with the text between `<!-- name -->` and `<!-- /name -->` replaced.

    Raises InputError for a name without markers.
    """
    for name, text in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(document):
            raise InputError(f"the document has no <!-- {name} --> … <!-- /{name} -->")
        replacement = text
        document = pattern.sub(lambda m: f"{m[1]}{replacement}\n{m[2]}", document)  # noqa: B023
    return document


def _written(value: float | None, write: tables.Write) -> str:
    return "–" if value is None else write(value)


def _tflops(record: Record | None) -> str:
    return "–" if record is None else _written(record.tflops, tables.digits)
