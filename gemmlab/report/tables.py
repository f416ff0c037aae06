"""Records and lists as tables for a terminal."""

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
from gemmlab.lab import metrics
from gemmlab.lab.records import Record

Write = Callable[[float], str]

PLAIN_WIDTH = 120  # columns, where the output is no terminal and COLUMNS says nothing
# Names and messages of others hold what looks like marks: [bold], :x:.
_AS_IT_IS: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
LEAST_WIDTH = 40  # what is narrower wraps lines itself


def console(*, stderr: bool = False) -> Console:
    """A console of the terminal's width, or COLUMNS, or 120, but no narrower than `LEAST_WIDTH`.
    NO_COLOR is kept everywhere. What it prints is printed as it is."""
    made = Console(stderr=stderr, **_AS_IT_IS)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PLAIN_WIDTH
    made.width = max(made.width, LEAST_WIDTH)
    return made


def picture(draw: Callable[[Console], None], width: int, title: str, name: str) -> str:
    """What `draw` prints at a width, as SVG text that needs no network; `name` tells it from other
    pictures on a page."""
    out = Console(record=True, width=width, file=io.StringIO(), **_AS_IT_IS)
    draw(out)
    svg = out.export_svg(title=title, unique_id=name)
    # The template names a font on a server; every viewer has a monospaced one of its own.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


@dataclass(frozen=True)
class Column:
    """One number of a record: its heading, and how it is written."""

    heading: str
    value: Callable[[Record], float | None]
    write: Write

    @property
    def name(self) -> str:
        """The heading in one line."""
        return self.heading.replace("-\n", "").replace("/\n", "/").replace("\n", " ")


COLUMNS = (
    Column("error\nu", lambda record: record.max_error_u, digits),
    Column("bytes\nin", metrics.bytes_in, scaled),
    Column("bytes\nout", metrics.bytes_out, scaled),
    Column("of them\ntouched", metrics.bytes_by_touch, scaled),
    Column("trans-\nfers", metrics.transfers, scaled),
    Column("sect./\nload", metrics.sectors_per_load, digits),
    Column("sect./\nstore", metrics.sectors_per_store, digits),
    Column("shared\nwavefr.", metrics.shared_wavefronts, scaled),
    Column("of them\nexcess", metrics.shared_excessive, scaled),
    Column("global\natomics", metrics.global_atomics, scaled),
    Column("shared\natomics", metrics.shared_atomics, scaled),
    Column("diver-\ngences", metrics.divergent_branches, scaled),
    Column("PTX\ninstr.", metrics.instructions, scaled),
    Column("SASS\ninstr.", metrics.machine_instructions, scaled),
    Column("FLOP/\nbyte", metrics.intensity, digits),
    Column("regs", metrics.registers, digits),
    Column("occu-\npancy", metrics.occupancy_percent, percent),
    Column("time", lambda record: record.time_s, seconds),
    Column("TFLOPS", lambda record: record.tflops, digits),
    Column("GB/s", metrics.gigabytes_per_second, digits),
    Column("of\nroof", metrics.roof_percent, percent),
)
WORDS_WIDTH = 16  # columns that a rung's words need at least


def climb_table(records: Sequence[Record], width: int) -> Table:
    """One row per rung, and a column for every number that is not nothing in all of them.

    What a rung changes is told where `width` has room for it; columns that do not fit are left out,
    and a line below says which.
    """
    columns = [column for column in COLUMNS if any(column.value(record) for record in records)]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    left_out: list[str] = []
    while (room := width - _total_width(records, columns)) < 0 and columns:
        left_out.insert(0, columns.pop().name)
    if left_out:
        table.caption = f"left out at this width: {', '.join(left_out)}"
        table.caption_justify = "left"
    rows = [_cells(record, columns) for record in records]
    wide = room > WORDS_WIDTH
    table.add_column("rung", no_wrap=True)
    if wide:
        table.add_column("what it changes", ratio=1)
    table.add_column("verdict", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for record, (rung, verdict, *numbers) in zip(records, rows, strict=True):
        style = "green" if record.verdict == "pass" else "yellow" if record.passed else "red"
        words = [Text(rung), Text(record.change)][: 1 + wide]
        table.add_row(*words, Text(verdict, style=style), *numbers)
    return table


def _cells(record: Record, columns: Iterable[Column]) -> list[str]:
    values = [(column, column.value(record)) for column in columns]
    return [record.rung, record.verdict, *("–" if v is None else c.write(v) for c, v in values)]


def _total_width(records: Iterable[Record], columns: Sequence[Column]) -> int:
    headings = ["rung", "verdict", *(column.heading for column in columns)]
    rows = [_cells(record, columns) for record in records]
    return sum(map(_width, zip(headings, *rows, strict=True)))


def _width(column: Iterable[str]) -> int:
    """Of a column of the table, the space behind it included."""
    return 1 + max(len(line) for cell in column for line in cell.split("\n"))


def notes(records: Iterable[Record]) -> list[str]:
    """What the table cannot hold: why a rung did not pass, what was not counted, equal bits."""
    told = list(records)
    lines = [f"{r.rung}: {r.verdict}: {r.message}" for r in told if r.verdict != "pass"]
    lines += [
        f"{record.rung}: the GPU and the emulator wrote different bits"
        for record in told
        if record.emulator_bits_equal is False
    ]
    checked = [record for record in told if record.emulator_bits_equal is not None]
    if checked and all(record.emulator_bits_equal for record in checked):
        lines.append("Counters are the emulator's; GPU and emulator wrote the same bits.")
    timed = [record for record in told if record.time_s is not None]
    free = [r.rung for r in timed if r.counters and r.emulator_bits_equal is None]
    if free:
        lines.append(f"Bits not compared, their order of additions being free: {', '.join(free)}.")
    if any(record.counters is None for record in timed):
        lines.append("Not counted beside a GPU, being large: --device emulated counts any size.")
    return lines


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def facts(pairs: Mapping[str, str]) -> Table:
    """Names and values, one pair a line."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        table.add_row(Text(name), Text(value))
    return table
