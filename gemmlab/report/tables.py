"""Terminal tables, and the console that prints them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmlab.core.figures import digits, percent, scaled, seconds
from gemmlab.hardware.specs import Gpu
from gemmlab.lab import bounds, metrics
from gemmlab.lab.records import Record
from gemmlab.report.rungs import change

Write = Callable[[float], str]

PLAIN_WIDTH = 120  # columns, if the output is not a terminal and COLUMNS is not set
LEAST_WIDTH = 40  # columns; a narrower terminal wraps the lines
# Names and messages can contain text that Rich would interpret: [bold], :x:.
_VERBATIM: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text verbatim and honors NO_COLOR.

    Its width is COLUMNS, the terminal's width, or PLAIN_WIDTH, but at least LEAST_WIDTH.
    """
    made = Console(stderr=stderr, **_VERBATIM)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PLAIN_WIDTH
    made.width = max(made.width, LEAST_WIDTH)
    return made


def picture(draw: Callable[[Console], None], width: int, title: str, name: str) -> str:
    """Return the output of `draw` at a width as self-contained SVG text.

    `name` prefixes the SVG's ids; it must be unique on a page.
    """
    out = Console(record=True, width=width, file=io.StringIO(), **_VERBATIM)
    draw(out)
    svg = out.export_svg(title=title, unique_id=name)
    # Rich's template downloads a font. Without it, viewers use their own monospaced font.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


@dataclass(frozen=True)
class Column:
    """A number of a record: its heading, its value and its format."""

    heading: str
    value: Callable[[Record], float | None]
    write: Write
    more: Callable[[Record], str] = lambda record: ""  # text after the number

    @property
    def name(self) -> str:
        """The heading on one line."""
        return self.heading.replace("-\n", "").replace("/\n", "/").replace("\n", " ")


COLUMNS = (
    Column("pre-\ndicted", lambda record: (record.prediction or {}).get("time_s"), seconds),
    Column("error\nu", lambda record: record.max_error_u, digits),
    Column("bytes\nin", metrics.bytes_in, scaled),
    Column("bytes\nout", metrics.bytes_out, scaled),
    Column("bytes\ntouched", metrics.bytes_by_touch, scaled),
    Column("trans-\nfers", metrics.transfers, scaled),
    Column("sect./\nload", metrics.sectors_per_load, digits),
    Column("sect./\nstore", metrics.sectors_per_store, digits),
    Column("shared\nwavefr.", metrics.shared_wavefronts, scaled),
    Column("excess\nwavefr.", metrics.shared_excessive, scaled),
    Column("global\natomics", metrics.global_atomics, scaled),
    Column("shared\natomics", metrics.shared_atomics, scaled),
    Column("diver-\ngences", metrics.divergent_branches, scaled),
    Column("PTX\ninstr.", metrics.instructions, scaled),
    Column("SASS\ninstr.", metrics.machine_instructions, scaled),
    Column("FLOP/\nbyte", metrics.intensity, digits),
    Column("regs", metrics.registers, digits),
    Column("occu-\npancy", metrics.occupancy_percent, percent),
    Column("time", lambda record: record.time_s, seconds),
    Column("TFLOPS", lambda record: record.tflops if metrics.computes(record) else None, digits),
    Column("GB/s", metrics.gigabytes_per_second, digits),
    Column("of\nroof", metrics.roof_percent, percent),
)
_LIMITS = {
    "instructions": "issue",
    "FP32 lanes": "FP32",
    "shared memory and L1": "L1",
    "device memory": "DRAM",
}
CHANGE_WIDTH = 16  # least width of the column "what it changes"


def bound_column(gpu: Gpu) -> Column:
    """Return the column with the least time of a launch on a GPU and what sets it."""

    def value(record: Record) -> float | None:
        found = bounds.of_record(record, gpu)
        return found.seconds if found else None

    def limit(record: Record) -> str:
        found = bounds.of_record(record, gpu)
        return f" {_LIMITS[found.limit]}" if found else ""

    return Column("at least\nby", value, seconds, limit)


def bound_note(gpu: Gpu) -> str:
    """Return the line below a table that has the column."""
    return (
        f"at least: a launch on {gpu.name} takes no less, by issue slots, FP32 lanes, L1 and "
        "shared memory, or DRAM. Latency, barriers and L2 are not in it, so two rungs that differ "
        "in them alone have equal bounds; --predict models them (H200, H100, A100)."
    )


def climb_table(records: Sequence[Record], width: int, gpu: Gpu | None = None) -> Table:
    """Return a table with one row per rung and a column for each number that some rung has.

    With `gpu`, the first column is the bound on that GPU.

    Columns that do not fit `width` are omitted; the caption names them. The column "what it
    changes" appears only if there is room for it.
    """
    every = COLUMNS if gpu is None else (bound_column(gpu), *COLUMNS)
    columns = [column for column in every if any(column.value(record) for record in records)]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    left_out: list[str] = []
    while (room := width - _total_width(records, columns)) < 0 and columns:
        left_out.insert(0, columns.pop().name)
    if left_out:
        table.caption = f"omitted at this width: {', '.join(left_out)}"
        table.caption_justify = "left"
    rows = [_cells(record, columns) for record in records]
    wide = room > CHANGE_WIDTH
    table.add_column("rung", no_wrap=True)
    if wide:
        table.add_column("what it changes", ratio=1)
    table.add_column("verdict", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for record, (rung, verdict, *numbers) in zip(records, rows, strict=True):
        style = "green" if record.verdict == "pass" else "yellow" if record.passed else "red"
        names = [Text(rung), Text(change(record.problem, record.rung))][: 1 + wide]
        table.add_row(*names, Text(verdict, style=style), *numbers)
    return table


def _cells(record: Record, columns: Iterable[Column]) -> list[str]:
    values = [(column, column.value(record)) for column in columns]
    cells = ["–" if v is None else c.write(v) + c.more(record) for c, v in values]
    return [record.rung, record.verdict, *cells]


def _total_width(records: Iterable[Record], columns: Sequence[Column]) -> int:
    headings = ["rung", "verdict", *(column.heading for column in columns)]
    rows = [_cells(record, columns) for record in records]
    return sum(map(_width, zip(headings, *rows, strict=True)))


def _width(column: Iterable[str]) -> int:
    """Return the width of a column, including one space of padding."""
    return 1 + max(len(line) for cell in column for line in cell.split("\n"))


def notes(records: Iterable[Record]) -> list[str]:
    """Return lines below the table: why rungs failed, whether bits are equal, missing counts."""
    climbed = list(records)
    lines = [f"{r.rung}: {r.verdict}: {r.message}" for r in climbed if r.verdict != "pass"]
    lines += [
        f"{record.rung}: the results of the GPU and the emulator differ in bits"
        for record in climbed
        if record.emulator_bits_equal is False
    ]
    checked = [record for record in climbed if record.emulator_bits_equal is not None]
    if checked and all(record.emulator_bits_equal for record in checked):
        lines.append(
            "Counters are from the emulator, whose results are bitwise equal to the GPU's."
        )
    timed = [record for record in climbed if record.time_s is not None]
    unordered = [r.rung for r in timed if r.counters and r.emulator_bits_equal is None]
    if unordered:
        names = ", ".join(unordered)
        lines.append(
            "Bits not compared, because the order of additions is not fixed or the bits of an "
            f"instruction are not documented: {names}."
        )
    if any(record.counters is None for record in timed):
        lines.append("Too large to count beside the GPU; --device emulated counts any size.")
    return lines


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def facts(pairs: Mapping[str, str]) -> Table:
    """Return a table of names and values, one pair per row."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(Text(name), Text(value))
    return table
