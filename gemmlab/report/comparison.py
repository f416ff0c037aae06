"""Two launches side by side, as text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from gemmlab.core.figures import digits
from gemmlab.lab.measured import Measured, moves
from gemmlab.report.steps import number
from gemmlab.report.tables import plain_table


def print_measured(out: Console, before: Measured, after: Measured) -> None:
    """Print a row for each number that differs, and what else differs."""
    old, new = before.record, after.record
    out.print(Text(f"{old.rung} → {new.rung}", style="bold"))
    for what in ("problem", "shape", "layout", "arch", "verdict"):
        sides = [_text(getattr(side, what)) for side in (old, new)]
        if any(sides):
            out.print(f"{what}: {' → '.join(dict.fromkeys(side or 'unknown' for side in sides))}")
    for side in (old, new):
        if side.verdict not in ("pass", "not judged") and side.message:
            out.print(f"{side.rung}: {side.message}")
    found = moves(before, after)
    out.print()
    if not found:
        out.print("No counter, resource, error or time differs.")
        return
    rows = [
        (
            move.name,
            number(move.before),
            number(move.after),
            f"×{digits(move.after / move.before)}" if move.before else "new",
            move.line,
        )
        for move in found
    ]
    headings = ["", "before", "after", "", "by what line"]
    with_line = any(move.line for move in found)
    out.print(plain_table(headings[: 4 + with_line], [row[: 4 + with_line] for row in rows]))


def _text(value: object) -> str:
    return "×".join(map(str, value.values())) if isinstance(value, dict) else str(value)
