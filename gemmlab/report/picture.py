"""What a terminal shows, as an SVG file that needs no network."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.console import Console

from gemmlab import steps, tables
from gemmlab.records import Record

WIDTH = 118  # columns


def climb_picture(records: Sequence[Record], title: str) -> str:
    """The table of a climb and its steps, as SVG text."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    console.print(tables.climb_table(records, WIDTH))
    console.print()
    for line in steps.sentences(records):
        console.print(line, markup=False)
    svg = console.export_svg(title=title, unique_id="climb")
    # The template names a font on a server; every viewer has a monospaced one of its own.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
