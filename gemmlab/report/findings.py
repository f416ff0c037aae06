"""A terminal table of the emulator's findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gemmlab.emulator import Finding
    from gemmlab.errors import Site


def summary(findings: Sequence[Finding]) -> Group:
    """Return the number of findings and a table: kind, place in the code, message, threads."""
    count = len(findings)
    head = Text(f"checks: {count or 'no'} finding{'' if count == 1 else 's'}")
    if not count:
        return Group(head)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("kind", "location", "message", "threads"):
        table.add_column(name)
    for f in findings:
        places = [_place(site) for site in (f.site, f.other) if site is not None]
        join = "\nand " if f.kind == "warp participation" else "\nafter "
        cells = (f.kind, join.join(places), f.message, _threads(f))
        table.add_row(*map(Text, cells))
    return Group(head, table)


def _place(site: Site) -> str:
    """Return "file, PTX line n", the file without its folder."""
    source = f"{PurePath(site.source).name}, " if site.source else ""
    return f"{source}PTX line {site.ptx_line}"


def _threads(f: Finding) -> str:
    lines = []
    if f.block is not None:
        lines.append(f"block {', '.join(map(str, f.block))}")
    if f.threads:
        lines.append(f"thread {', '.join(map(str, f.threads))}")
    if f.addresses:
        lines.append(f"address {', '.join(map(hex, f.addresses))}")
    return "\n".join(lines)
