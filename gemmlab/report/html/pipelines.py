"""The SVG drawing of a k loop's pipeline: rows of warps and of stages over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from gemmlab.lab.explain.pipeline import TILES, Pipeline, Span
from gemmlab.report.html.drawings import label, rect, svg
from gemmlab.report.html.page import Part

_WIDE, _LEFT, _ROW, _TOP = 890, 96, 30, 30  # pixels
_KINDS = {
    "fill": "a warp stores or starts copies",
    "multiply": "a warp reads the tile and multiplies",
    "wait": "a warp waits",
    "in flight": "stores or copies on their way",
    "ready": "in shared memory, unread",
    "read": "read",
}
_FULL = ("fill", "multiply", "read")  # in full colours; the others are pale


def pipeline(found: Pipeline) -> Part:
    """Draw what warps do, and what each stage of shared memory holds. Numbers are tiles."""
    rows = list(dict.fromkeys(span.row for span in sorted(found.spans, key=_is_stage)))
    first = min(span.start for span in found.spans)
    last = max(span.end for span in found.spans if span.tile is not None)
    scale = _WIDE / max(last - first, 1)
    content = []
    x = _LEFT
    for kind in _KINDS:
        content += [
            rect(x, 4, 11, 11, _KINDS[kind], f'class="{_style(kind)}" rx="2"'),
            label(x + 16, 14, kind),
        ]
        x += 34 + 7 * len(kind)
    for number, row in enumerate(rows):
        y = _TOP + number * _ROW
        content.append(label(0, y + 16, row))
        for spans in _together([span for span in found.spans if span.row == row]):
            span = spans[0]
            tiles = [str(one.tile) for one in spans if one.tile is not None]
            left = _LEFT + (span.start - first) * scale
            wide = (min(span.end, last) - span.start) * scale
            what = f"{span.what} tile {' and '.join(tiles)}" if tiles else span.what
            words = f"{row}, {what}: {span.end - span.start:,} instructions"
            style = f'class="{_style(span.what)}" rx="3"'
            content.append(rect(left, y, max(wide, 1.5), _ROW - 8, words, style))
            name = ", ".join(tiles)
            if tiles and wide >= 5 + 7 * len(name):
                ink = "lane" if span.what in _FULL else "count"
                content.append(label(left + wide / 2, y + 15, name, "middle", ink))
    bottom = _TOP + len(rows) * _ROW
    length = last - first
    content.append(label(_LEFT, bottom + 8, f"{length:,} instructions of a warp →"))
    caption = (
        f"The first tiles, at most {TILES}, in {found.stages} "
        f"stage{'' if found.stages == 1 else 's'} of shared memory. Time is counted in "
        "instructions: a warp's clock advances by one per instruction, and at a barrier to that of "
        "the last warp to arrive. So the drawing shows who must wait for whom, not times of a GPU."
    )
    drawn = svg(_LEFT + _WIDE + 8, bottom + 14, caption, content)
    data = asdict(found)
    body = f'<div class="scroll">{drawn}</div>'
    return Part("drawing", "The pipeline of the k loop", caption, data, body, wide=True)


def _together(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans in groups of those that are one: of several tiles, at the same time.

    Short ones come last, so that they are drawn over those that they interrupt.
    """
    groups: dict[tuple[str, int, int], list[Span]] = {}
    for span in spans:
        groups.setdefault((span.what, span.start, span.end), []).append(span)
    return sorted(groups.values(), key=lambda group: group[0].start - group[0].end)


def _is_stage(span: Span) -> bool:
    return span.row.startswith("stage")


def _style(kind: str) -> str:
    return f"pipe-{kind.replace(' ', '-')}"
