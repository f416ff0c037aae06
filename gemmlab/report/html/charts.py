"""Vega-Lite charts from rows of data. Colours are variables of the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from gemmlab.report.html.page import Part, embedded

Rows = Sequence[dict[str, Any]]
Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
COLOURS = ("var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)")
NUMBER = ".3~r"  # decimal, three digits (d3-format)
LABEL = "label"  # a row's text beside its mark; not among its data
_END = "end"  # where that text begins
_LONG = 0.6  # share of the longest bar from which a label is written on its bar
_STEP = 24  # pixels per bar
_MANY = 10_000  # from which numbers of an axis have a prefix: 25M
_APART = 0.042  # of a chart's height: lines of text

_TEXT: Spec = {
    "labelColor": "var(--muted)",
    "titleColor": "var(--muted)",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
_AXIS: Spec = {
    "domainColor": "var(--line)",
    "gridColor": "var(--line)",
    "tickColor": "var(--line)",
    "labelLimit": 220,
    "titlePadding": 10,
}
_NAMES: Spec = {"title": None, "ticks": False, "domain": False, "labelPadding": 6}
CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, Segoe UI, Roboto, Liberation Sans, sans-serif",
    "view": {"stroke": None},
    "axis": _TEXT | _AXIS,
    "legend": _TEXT | {"symbolType": "circle", "orient": "top", "title": None},
    "header": _TEXT,
    "text": {"color": "var(--ink)", "fontSize": 12},
}


def chart(title: str, caption: str, data: Any, spec: Spec, *, has_names: bool = False) -> Part:
    """Return a chart as wide as the page. `data`: its content as JSON, the twin of the picture.

    has_names: its marks have names beside them. On a narrow screen it keeps the width that they
    need, and scrolls.
    """
    fit = {"type": "fit-x", "contains": "padding"}
    whole = {"$schema": SCHEMA, "width": "container", "autosize": fit, "config": CONFIG} | spec
    script = f'<script type="application/json">{embedded(whole)}</script>'
    plot = f'<div class="plot">{script}</div>'
    body = f'<div class="scroll named">{plot}</div>' if has_names else plot
    return Part("chart", title, caption, data, body, spec=whole)


def hover(rows: Rows, shown: Sequence[str]) -> list[Spec]:
    """Return the fields of the tooltip, numbers with four digits."""
    return [
        {"field": key, "type": "quantitative", "format": ".4~g"}
        if isinstance(rows[0].get(key), (int, float))
        else {"field": key, "type": "nominal"}
        for key in shown
    ]


def _shade(number: int, count: int) -> str:
    """Return the colour of the item `number` of `count`, between two colours of the page."""
    return f"color-mix(in oklab, var(--c1) {100 * number // max(count - 1, 1)}%, var(--c3))"


def bars(
    title: str,
    caption: str,
    rows: Rows,
    *,
    value: str,
    name: str = "rung",
    kinds: tuple[str, tuple[str, ...]] | None = None,
    span: tuple[str, str] | None = None,
    log: bool = False,
) -> Part:
    """Return horizontal bars in the order of the rows, with the rows' labels at their ends.

    Args:
        value: the field of the length; its name is the title of the axis.
        kinds: a field and its values, which get the colours in this order.
        span: two fields, the ends of a line across the end of the bar.
    """
    shown = hover(rows, [key for key in rows[0] if key != LABEL])
    least, most = min(row[value] for row in rows), max(row[value] for row in rows)
    floor = 10 ** math.floor(math.log10(least)) if log else 0
    place: dict[str, Spec] = {
        "y": {
            "field": name,
            "type": "nominal",
            "sort": None,
            "axis": _NAMES,
        },
        "x": {
            "field": value,
            "type": "quantitative",
            "axis": {
                "title": value,
                "tickCount": 6,
                "format": "~s" if log or most >= _MANY else NUMBER,
            },
            "scale": {"type": "log", "domainMin": floor} if log else {"type": "linear"},
        },
    }
    start: Spec = {"x2": {"datum": floor}} if log else {}
    colour: Spec = {"value": COLOURS[0]}
    if kinds:
        scale = {"domain": kinds[1], "range": COLOURS[: len(kinds[1])]}
        colour = {"field": kinds[0], "type": "nominal", "scale": scale}
    bar: Spec = {"type": "bar", "cornerRadiusEnd": 3, "height": {"band": 0.72}}
    layers: list[Spec] = [
        {"mark": bar, "encoding": place | start | {"color": colour, "tooltip": shown}}
    ]
    if span:
        ends = {
            "x": place["x"] | {"field": span[0]},
            "x2": {"field": span[1]},
            "y": place["y"],
        }
        rule = {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5}
        layers.append({"mark": rule, "encoding": ends | {"tooltip": shown}})

    def is_long(number: float) -> bool:
        share = math.log(number / floor) / math.log(most / floor) if log else number / (most or 1)
        return share > _LONG

    if LABEL in rows[0]:
        text: Spec = {"text": {"field": LABEL, "type": "nominal"}}
        for inside, align, dx, ink in (
            (False, "left", 6, "var(--muted)"),
            (True, "right", -7, "var(--card)"),
        ):
            own = [row for row in rows if is_long(row[value]) is inside]
            # Beside the line across the end of the bar, not on it.
            end, nearest = span or (value, value), min if inside else max
            at = {"x": place["x"] | {"field": _END}}
            own = [row | {_END: nearest(row[key] for key in (*end, value))} for row in own]
            mark = {"type": "text", "align": align, "dx": dx, "color": ink}
            if own:
                encoding = place | at | text
                layers.append({"data": {"values": own}, "mark": mark, "encoding": encoding})
    spec = {"data": {"values": list(rows)}, "height": _STEP * len(rows), "layer": layers}
    data = [{key: row[key] for key in row if key != LABEL} for row in rows]
    return chart(title, caption, data, spec)


def lines(
    title: str,
    caption: str,
    rows: Rows,
    *,
    x: str,
    y: str,
    series: str,
    muted: Collection[str] = (),
    height: int = 380,
) -> Part:
    """Return a line per series over a logarithmic axis, with the names that fit at their ends.

    muted: series in grey and dashed, to compare the others with.
    """
    names = list(dict.fromkeys(row[series] for row in rows))
    own = [name for name in names if name not in muted]
    colours = {name: _shade(number, len(own)) for number, name in enumerate(own)}
    scale = {"domain": names, "range": [colours.get(name, COLOURS[1]) for name in names]}
    dashes = {"domain": names, "range": [[5, 4] if name in muted else [1, 0] for name in names]}
    ticks = sorted({row[x] for row in rows})
    left, right = ticks[0] / 1.03, ticks[-1] * (ticks[-1] / ticks[0]) ** 0.3
    top = 1.05 * max(row[y] for row in rows)
    place: Spec = {
        "x": {
            "field": x,
            "type": "quantitative",
            "scale": {"type": "log", "base": 2, "domain": [left, right], "nice": False},
            "axis": {"title": x, "values": _spread(ticks), "format": "d", "grid": False},
        },
        "y": {
            "field": y,
            "type": "quantitative",
            "axis": {"title": y, "tickCount": 6},
            "scale": {"domain": [0, top], "nice": False},
        },
        "color": {
            "field": series,
            "type": "nominal",
            "scale": scale,
            "sort": None,
            "legend": None,
        },
    }
    near: Spec = {
        "opacity": {"condition": {"param": "near", "empty": True, "value": 1}, "value": 0.15}
    }
    select = {"type": "point", "fields": [series], "on": "pointerover", "clear": "pointerout"}
    dash = {
        "strokeDash": {"field": series, "type": "nominal", "scale": dashes, "legend": None},
    }
    line = {"type": "line", "strokeWidth": 2}
    ends = _ends([row for row in rows if row[x] == ticks[-1]], y, top, series)
    text = {"type": "text", "align": "left", "dx": 9}
    layers: list[Spec] = [
        {"mark": line, "encoding": place | near | dash},
        {
            "params": [{"name": "near", "select": select}],
            "mark": {"type": "point", "filled": True, "size": 60},
            "encoding": place | near | {"tooltip": hover(rows, list(rows[0]))},
        },
        {
            "data": {"values": ends},
            "mark": text,
            "encoding": place | near | {"text": {"field": "names", "type": "nominal"}},
        },
    ]
    spec = {"data": {"values": list(rows)}, "height": height, "layer": layers}
    return chart(title, caption, list(rows), spec, has_names=True)


def _spread(ticks: Sequence[float]) -> list[float]:
    """Return the ticks that are far enough from the one before; powers of two come first."""
    kept: list[float] = []
    for tick in sorted(ticks, key=lambda tick: (not math.log2(tick).is_integer(), tick)):
        if all(abs(math.log2(tick / other)) > 0.3 for other in kept):
            kept.append(tick)
    return sorted(kept)


def _ends(last: Rows, y: str, top: float, series: str) -> list[dict[str, Any]]:
    """Return the last point of each series with the names at its height; lower ones give way.

    "…" stands for those without room.
    """
    placed: list[dict[str, Any]] = []
    for row in sorted(last, key=lambda row: -row[y]):
        if not placed or placed[-1][y] - row[y] > 1.2 * _APART * top:
            placed.append(row | {"names": row[series]})
        elif len(placed[-1]["names"]) + len(row[series]) < 26:
            placed[-1]["names"] += f", {row[series]}"
        elif not placed[-1]["names"].endswith("…"):
            placed[-1]["names"] += ", …"
    return placed


def steps(title: str, caption: str, rows: Rows, x: str, y: str, point: dict[str, Any]) -> Part:
    """Return a stepped line of `y` over `x`, with one point on it."""
    ends = {"domain": [0, max(row[x] for row in rows)], "nice": False}
    place: Spec = {
        "x": {
            "field": x,
            "type": "quantitative",
            "scale": ends,
            "axis": {"title": x, "grid": False, "tickCount": 8},
        },
        "y": {
            "field": y,
            "type": "quantitative",
            "scale": {"domain": [0, 100]},
            "axis": {"title": y, "tickCount": 4},
        },
    }
    shown = {"tooltip": hover(rows, [x, y])}
    line = {"type": "line", "interpolate": "step-after", "color": "var(--c2)", "strokeWidth": 2}
    dot = {"type": "point", "filled": True, "size": 110, "color": COLOURS[0], "opacity": 1}
    layers = [
        {"data": {"values": list(rows)}, "mark": line, "encoding": place},
        {
            "data": {"values": list(rows)},
            "mark": {"type": "rule", "opacity": 0, "strokeWidth": 4},
            "encoding": {"x": place["x"]} | shown,
        },
        {"data": {"values": [point]}, "mark": dot, "encoding": place | shown},
    ]
    changes = [b for a, b in zip([{}, *rows], rows, strict=False) if a.get(y) != b[y]]
    data = {"point": point, "steps": changes}
    return chart(title, caption, data, {"height": 180, "layer": layers})


def spans(
    title: str,
    caption: str,
    rows: Rows,
    *,
    start: str,
    end: str,
    row: str,
    kinds: tuple[str, tuple[str, ...]],
) -> Part:
    """Return a time line: a bar from `start` to `end` per item, in its row.

    kinds: a field and its values, which get the colours in this order.
    """
    present = {item[kinds[0]] for item in rows}
    own = [pair for pair in zip(kinds[1], COLOURS, strict=False) if pair[0] in present]
    scale = {"domain": [kind for kind, _ in own], "range": [colour for _, colour in own]}
    encoding: Spec = {
        "y": {"field": row, "type": "nominal", "sort": None, "axis": _NAMES},
        "x": {
            "field": start,
            "type": "quantitative",
            "axis": {"title": "ms", "tickCount": 6, "format": NUMBER},
        },
        "x2": {"field": end},
        "color": {"field": kinds[0], "type": "nominal", "scale": scale},
        "tooltip": hover(rows, list(rows[0])),
    }
    mark: Spec = {"type": "bar", "height": {"band": 0.72}, "minBandSize": 1}
    spec = {
        "data": {"values": list(rows)},
        "height": _STEP * len({item[row] for item in rows}),
        "mark": mark,
        "encoding": encoding,
    }
    return chart(title, caption, list(rows), spec)
