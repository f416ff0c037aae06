"""The time line of a product on a mesh as an SVG file: what each process did, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmlab.core.figures import seconds
from gemmlab.report.html.page import text

_WIDTH, _LEFT, _TOP, _ROW = 880, 110, 84, 34  # pixels
_MARGIN = 24
_ORDER = ("multiply", "wait", "copy")
Processes = Sequence[Sequence[Mapping[str, Any]]]
_COLOURS = {"multiply": "var(--c1)", "wait": "var(--c2)", "copy": "var(--c3)"}
_STYLE = """<style>
svg { --card: #ffffff; --ink: #1c1e21; --muted: #5f666e; --line: #e3e4e0;
  --c1: #4c8c0a; --c2: #d9822b; --c3: #2f6fd0; font: 13px system-ui, "Segoe UI", sans-serif; }
@media (prefers-color-scheme: dark) { svg { --card: #1a1d20; --ink: #e8e9ea; --muted: #9aa1a9;
  --line: #2d3237; --c1: #84bd2c; --c2: #f0a355; --c3: #6fa4f5; } }
.title { font-size: 17px; font-weight: 600; fill: var(--ink); } .name { fill: var(--ink); }
.about { fill: var(--muted); }
</style>"""


def svg(groups: Mapping[str, Processes], title: str, caption: str) -> str:
    """Draw the events of each process of each group: `what`, `start` and `end` in seconds."""
    every = [event for processes in groups.values() for events in processes for event in events]
    last = max(event["end"] for event in every)
    parts = [
        '<rect width="100%" height="100%" rx="12" style="fill:var(--card);stroke:var(--line)"/>',
        f'<text x="{_MARGIN}" y="34" class="title">{text(title)}</text>',
        f'<text x="{_MARGIN}" y="56" class="about">{text(caption)}</text>',
    ]
    top = _TOP
    for name, processes in groups.items():
        parts.append(f'<text x="{_LEFT}" y="{top + 12}" class="name">{text(name)}</text>')
        top += 20
        for number, events in enumerate(processes):
            parts.append(
                f'<text x="{_MARGIN}" y="{top + 17}" class="about">process {number}</text>'
            )
            parts += _bars(events, top, (_WIDTH - _LEFT - _MARGIN) / last)
            top += _ROW
        top += 6
    parts.append(
        f'<path d="M{_LEFT} {top}H{_WIDTH - _MARGIN}" style="stroke:var(--line)"/>'
        f'<text x="{_LEFT}" y="{top + 18}" class="about">0</text>'
        f'<text x="{_WIDTH - _MARGIN}" y="{top + 18}" text-anchor="end" class="about">'
        f"{seconds(last)}</text>"
    )
    for number, what in enumerate(x for x in _ORDER if x in {event["what"] for event in every}):
        x = _LEFT + 110 * number
        parts.append(
            f'<rect x="{x}" y="{top + 28}" width="12" height="12" style="fill:{_COLOURS[what]}"/>'
            f'<text x="{x + 18}" y="{top + 39}" class="about">{what}</text>'
        )
    height = top + 56
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}">{_STYLE}'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _bars(events: Sequence[Mapping[str, Any]], top: int, scale: float) -> list[str]:
    """The row of a process: copies, which run beside its products, are below them."""
    has_copies = any(event["what"] == "copy" for event in events)
    bars = []
    for event in sorted(events, key=lambda event: _ORDER.index(event["what"])):
        x, width = _LEFT + scale * event["start"], scale * (event["end"] - event["start"])
        y, tall = (top + 18, 7) if event["what"] == "copy" else (top, 17 if has_copies else 24)
        bars.append(
            f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{tall}" '
            f'style="fill:{_COLOURS[event["what"]]};stroke:var(--card);stroke-width:0.5">'
            f"<title>{event['what']}, {seconds(event['end'] - event['start'])}</title></rect>"
        )
    return bars
