"""Results as HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping


def table(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of names and values; whole numbers with separators."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<b>{html.escape(title)}</b><table>{rows}</table>"


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
