"""A climb's terminal output as a self-contained SVG file."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from gemmlab.lab.records import Record
from gemmlab.report import steps, tables

WIDTH = 118  # columns


def climb_picture(records: Sequence[Record], title: str) -> str:
    """Return the table of a climb and its steps as SVG text."""

    def draw(out: Console) -> None:
        out.print(tables.climb_table(records, WIDTH))
        out.print()
        for line in steps.sentences(records):
            out.print(line)

    return tables.picture(draw, WIDTH, title, "climb")
