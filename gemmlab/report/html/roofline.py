"""The roofline chart: a GPU's roofs with points below them, each with its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmlab.report.html.charts import COLOURS, NUMBER, Rows, Spec, chart, hover
from gemmlab.report.html.page import Part

_Place = tuple[float, float]  # in shares of the chart

_HEIGHT = 520  # pixels
_RISE = 9  # pixels from a roof to its label
_LETTER = 0.0075  # width of a letter; this and what follows in shares of the chart
_ROOM = 0.3  # beyond the last point, for its name
_LINE = 0.033  # height of a line of text
_GAP = 0.012  # between a point and its name
_ASIDE = 0.015  # between a roof's corner and its label


def roofline(
    title: str,
    caption: str,
    rows: Rows,
    *,
    name: str,
    peaks: Mapping[str, float],
    bandwidth_gbs: float,
    kinds: tuple[str, tuple[str, ...]] | None = None,
) -> Part:
    """Return the roofs of a GPU with a measured point per row, both axes logarithmic.

    rows: they need "FLOP/byte" and "TFLOPS".
    peaks: the TFLOPS of each roof by its name, which is shown if there are several.
    kinds: a field and its values, which get the colours in this order.
    """
    peak = max(peaks.values())
    ridge = peak * 1e3 / bandwidth_gbs
    intensities = [row["FLOP/byte"] for row in rows]
    left, most = min(*intensities, ridge / 8) / 2, max(*intensities, ridge)
    right = most * (most / left) ** _ROOM
    rates = [row["TFLOPS"] for row in rows]
    bottom, top = min(*rates, left * bandwidth_gbs / 1e3) / 1.6, 1.5 * max(peak, *rates)
    roofs = [
        [
            {"FLOP/byte": at, "TFLOPS": min(tflops, at * bandwidth_gbs / 1e3)}
            for at in (left, tflops * 1e3 / bandwidth_gbs, right)
        ]
        for tflops in peaks.values()
    ]
    place = {
        "x": _axis("FLOP/byte", left, right),
        "y": _axis("TFLOPS", bottom, top),
    }
    colour: Spec = {"value": COLOURS[0]}
    if kinds:
        scale = {"domain": kinds[1], "range": COLOURS[: len(kinds[1])]}
        colour = {"field": kinds[0], "type": "nominal", "scale": scale}
    if len(peaks) > 1:
        caption += (
            " The peaks of tensor cores are the data sheet's, divided by the number of 16-bit "
            "products that a product in float32 precision takes."
        )
    slant = math.sqrt(left * ridge)
    labels = [
        f"{f'{called}: ' if len(peaks) > 1 else ''}{tflops:.3g} TFLOPS"
        for called, tflops in peaks.items()
    ]

    def place_of(x: float, y: float) -> tuple[float, float]:
        return _share(x, left, right), _share(y, bottom, top)

    corners = [[place_of(*at.values()) for at in roof] for roof in roofs]
    points = [_Name({}, *place_of(row["FLOP/byte"], row["TFLOPS"]), "left", "") for row in rows]
    written: list[_Name] = []
    for corner, label in zip(corners, labels, strict=True):
        written.append(_on_roof(label, corner, written, points, corners))
    notes = [
        *(
            (
                {"FLOP/byte": left * (right / left) ** one.x, "TFLOPS": tflops},
                one.names,
                "left",
                0,
                round(one.drop * _HEIGHT),
            )
            for one, tflops in zip(written, peaks.values(), strict=True)
        ),
        (
            {"FLOP/byte": slant, "TFLOPS": slant * bandwidth_gbs / 1e3},
            f"{bandwidth_gbs:,.0f} GB/s ",
            "right",
            0,
            -5,
        ),
    ]
    line = {"type": "line", "color": "var(--muted)", "strokeWidth": 2, "interpolate": "linear"}
    layers: list[Spec] = [
        *({"data": {"values": roof}, "mark": line, "encoding": place} for roof in roofs),
        *(
            {
                "data": {"values": [at | {"text": text}]},
                "mark": {
                    "type": "text",
                    "align": align,
                    "dx": dx,
                    "dy": dy,
                    "color": "var(--muted)",
                },
                "encoding": place | {"text": {"field": "text"}},
            }
            for at, text, align, dx, dy in notes
        ),
        {
            "data": {"values": list(rows)},
            "mark": {"type": "point", "filled": True, "size": 75, "opacity": 0.9},
            "encoding": place | {"color": colour, "tooltip": hover(rows, list(rows[0]))},
        },
    ]

    named = _named(rows, name, place_of, corners, written)
    for align, dx in (("left", 8), ("right", -8)):
        own = [row for row in named if row["align"] == align]
        layers.append(
            {
                "data": {"values": own},
                "mark": {"type": "text", "align": align, "dx": dx, "dy": {"expr": "datum.dy"}},
                "encoding": place | {"text": {"field": "names", "type": "nominal"}},
            }
        )
    data = {"peaks, TFLOPS": dict(peaks), "GB/s": bandwidth_gbs, "points": list(rows)}
    spec = {"height": _HEIGHT, "layer": layers}
    return chart(title, caption, data, spec, has_names=True)


def _axis(name: str, least: float, most: float) -> Spec:
    return {
        "field": name,
        "type": "quantitative",
        "scale": {"type": "log", "domain": [least, most], "nice": False},
        "axis": {"title": name, "format": NUMBER, "tickCount": 4, "grid": False},
    }


def _share(value: float, least: float, most: float) -> float:
    return math.log(value / least) / math.log(most / least)


def _on_roof(
    label: str,
    roof: Sequence[_Place],
    written: Sequence[_Name],
    points: Sequence[_Name],
    roofs: Sequence[Sequence[_Place]],
) -> _Name:
    """Return the label of a roof's flat part, above or below it, where nothing else is."""
    (start, height), (end, _) = roof[1:]
    tries = [
        _Name({}, float(x), height, "left", label, drop)
        for drop in (-_RISE / _HEIGHT, _RISE / _HEIGHT)
        for x in np.arange(start + _ASIDE, end, _GAP)
    ]
    return next((one for one in tries if one.fits(written, points, roofs)), tries[0])


def _named(
    rows: Rows,
    name: str,
    place: Callable[[float, float], _Place],
    roofs: Sequence[Sequence[_Place]],
    labels: Sequence[_Name],
) -> list[dict[str, Any]]:
    """Return points with the names to write on one side of them.

    Points that nearly coincide share a place. No name covers another name, another point,
    a roof or a roof's label. Names without room are in the tooltip only; "…" stands for them.
    """
    groups: list[_Name] = []
    for row in sorted(rows, key=lambda row: -row["TFLOPS"]):
        x, y = place(row["FLOP/byte"], row["TFLOPS"])
        own = _Name(row, x, y, "left", row[name])
        if groups and groups[-1].is_at(own, _LINE / 3):
            if row[name] not in groups[-1].names.split(", "):
                groups[-1] = replace(groups[-1], names=f"{groups[-1].names}, {own.names}")
        else:
            groups.append(own)
    taken = list(labels)
    for own in groups:
        others = [group for group in groups if group is not own]
        tries = [
            replace(own, align=align, drop=lines * _LINE, names=names)
            for names in own.shortened
            for lines in (0, 0.5, -0.5, 1, -1, 1.5)
            for align in ("left", "right")
        ]
        if own.names not in [one.names for one in taken]:
            taken += [one for one in tries if one.fits(taken, others, roofs)][:1]
    return [
        one.point | {"names": one.names, "align": one.align, "dy": round(one.drop * _HEIGHT)}
        for one in taken[len(labels) :]
    ]


@dataclass(frozen=True)
class _Name:
    """Text to the right (`align` left) or to the left of a point at x, y."""

    point: dict[str, Any]
    x: float
    y: float
    align: str
    names: str
    drop: float = 0.0  # of the text below the point

    @property
    def shortened(self) -> list[str]:
        """All names, then fewer and fewer of them, followed by "…"."""
        each = self.names.split(", ")
        fewer = [f"{', '.join(each[:count])}, …" for count in range(len(each) - 1, 0, -1)]
        return [self.names, *fewer]

    @property
    def ends(self) -> tuple[float, float]:
        wide = _GAP + _LETTER * len(self.names)
        return (self.x, self.x + wide) if self.align == "left" else (self.x - wide, self.x)

    @property
    def line(self) -> float:
        return self.y - self.drop

    def is_at(self, other: _Name, apart: float) -> bool:
        return abs(self.x - other.x) < _GAP and abs(self.y - other.y) < apart

    def is_on(self, roof: Sequence[_Place]) -> bool:
        """Whether a line, whose corners these are, crosses the text."""
        left, right = self.ends
        at = np.linspace(left, right, 9)
        heights = np.interp(at, [x for x, _ in roof], [y for _, y in roof])
        above = heights - self.line
        return bool(above.min() < 0.45 * _LINE and above.max() > -0.45 * _LINE)

    def fits(
        self, names: Sequence[_Name], points: Sequence[_Name], roofs: Sequence[Sequence[_Place]]
    ) -> bool:
        """Whether the text is inside the chart, covers no other text or point, nor a roof, and no
        other point of its column is nearer to it."""
        left, right = self.ends
        nearer = any(
            abs(point.x - self.x) <= _GAP and abs(point.y - self.line) < abs(self.drop)
            for point in points
        )
        covers = any(
            right > name.ends[0] and left < name.ends[1] and abs(self.line - name.line) < _LINE
            for name in names
        ) or any(
            right > point.x - _GAP / 2
            and left < point.x + _GAP / 2
            and abs(point.x - self.x) > _GAP
            and abs(self.line - point.y) < 0.7 * _LINE
            for point in points
        )
        is_free = not covers and not nearer and not any(map(self.is_on, roofs))
        return left >= 0 and right <= 1 and is_free
