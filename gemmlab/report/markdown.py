"""Markdown tables of records, and their insertion between markers of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gemmlab.core import figures
from gemmlab.errors import InputError
from gemmlab.lab.bench.record import Record
from gemmlab.lab.records import Record as Climbed
from gemmlab.report import tables
from gemmlab.report.rungs import any_layout, change

_LIBRARIES = ("cublas", "nvmath-python", "cupy", "torch")


def ladder_table(records: Sequence[Record], baseline: str, beside: Sequence[Record] = ()) -> str:
    """Return a table of one case's rungs, in the order of measurement, with percent of a baseline.

    `baseline` is the baseline's name for readers; a sentence above the table describes the
    measurement. `beside`: the records of another case with its cuBLAS, which get a column: TFLOPS,
    and percent of that cuBLAS. Raises InputError if `records` is empty.
    """
    if not records:
        raise InputError("no records for a table")
    order = records[0].interleaved
    others = {any_layout(r.kernel): r for r in beside}
    rows = []
    for rung in sorted(records, key=lambda rung: order.index(rung.kernel)):
        if "launch" not in rung.details:  # a library
            continue
        row = [
            f"`{rung.kernel}`",
            change(rung.problem, rung.kernel),
            _written(rung.details.get("resources", {}).get("registers"), figures.digits),
            _written(100 * rung.details.get("occupancy", 0), figures.percent),
            figures.seconds(rung.gpu_median_s),
            _written(rung.tflops, figures.digits),
            _written(rung.percent_of_baseline, figures.percent),
            _written(rung.roof_percent("datasheet"), figures.percent),
        ]
        if beside:
            row.append(_rate(others.get(any_layout(rung.kernel)), others["cublas"]))
        rows.append(row)
    headings = ["rung", "what it changes", "registers", "occupancy", "time", "TFLOPS"]
    headings += [f"of {baseline}", "of peak", *map(_heading, beside[:1])]
    return f"{_measured(records[0], baseline)}\n\n{table(headings, rows)}"


def _heading(record: Record) -> str:
    return f"{'×'.join(map(str, record.shape.values()))}, {record.layout} layout"


def _rate(record: Record | None, cublas: Record) -> str:
    if record is None:
        return "–"
    share = figures.percent(100 * cublas.gpu_median_s / record.gpu_median_s)
    return f"{_written(record.tflops, figures.digits)}, {share}"


def _measured(record: Record, baseline: str) -> str:
    """Return a sentence that describes the machine, the case, the protocol and the baseline."""
    sizes = "×".join(map(str, record.shape.values()))
    measured = (
        f"{record.machine['gpu']}, {sizes}, {record.layout} layout, {record.family} inputs; "
        f"medians of cold runs in {record.protocol['rounds']} interleaved rounds."
    )
    against = record.baseline
    if against is None:
        return measured
    versions = (f"{name} {against['details'].get(name)}" for name in _LIBRARIES)
    known = ", ".join(version for version in versions if not version.endswith("None"))
    time = figures.seconds(against["gpu_median_s"])
    peak = record.machine["roofs"]["datasheet"]["fp32_tflops"]
    return (
        f"{measured} {baseline}: {against['title']} ({known}), {time}. Peak: {peak:g} FP32 TFLOPS."
    )


def time_table(records: Sequence[Climbed]) -> str:
    """Return a table of a climb: one row per rung, one column with its time per shape."""
    sizes = list(dict.fromkeys(tuple(r.shape.values()) for r in records))
    times = {(r.rung, tuple(r.shape.values())): r.time_s for r in records}
    headings = ["rung", "what it changes", *("×".join(f"{x:,}" for x in size) for size in sizes)]
    problems = {r.rung: r.problem for r in records}
    rows = [
        [f"`{rung}`", change(problem, rung)]
        + [_written(times.get((rung, size)), figures.seconds) for size in sizes]
        for rung, problem in problems.items()
    ]
    return table(headings, rows)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def fill(document: str, parts: Mapping[str, str]) -> str:
    """Return the document with the text between `<!-- name -->` and `<!-- /name -->` replaced.

    `parts` maps names to new text. Raises InputError if a name has no markers.
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
