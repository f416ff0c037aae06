"""Charts of a report as SVG files, for pages that are not reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemmlab.core.figures import digits, percent
from gemmlab.core.packages import VL_CONVERT
from gemmlab.lab.bench.record import Record
from gemmlab.report.html import charts
from gemmlab.report.html.page import Part, text

_WIDTH = 880  # pixels
_BELOW = 50  # room for the axis
_MARGIN = 24
# The colours of reports: light, and dark where the reader's browser prefers that.
_STYLE = """<style>
svg { --card: #ffffff; --ink: #1c1e21; --muted: #5f666e; --line: #e3e4e0;
  --c1: #4c8c0a; --c2: #727a85; --c3: #2f6fd0; }
@media (prefers-color-scheme: dark) { svg { --card: #1a1d20; --ink: #e8e9ea; --muted: #9aa1a9;
  --line: #2d3237; --c1: #84bd2c; --c2: #8b949e; --c3: #6fa4f5; } }
</style>"""
_CORES, _TENSOR, _LIBRARY = "FP32 cores", "tensor cores, float32 accuracy", "cuBLAS"


def svg(part: Part, left: int) -> str:
    """Return a chart as the text of an SVG file, with its title and its caption above it.

    left: room for names, in pixels. The layout does not depend on the fonts of this machine.
    """
    assert part.spec
    padding = {"left": left, "right": _MARGIN, "top": 78, "bottom": _BELOW}
    fixed = {"width": _WIDTH - left - _MARGIN, "autosize": {"type": "none"}, "padding": padding}
    drawn: str = VL_CONVERT.load().vegalite_to_svg(dict(part.spec) | fixed)
    head, _, rest = drawn.partition(">")
    words = (
        f'<text x="{_MARGIN}" y="34" class="title">{text(part.title)}</text>'
        f'<text x="{_MARGIN}" y="56" class="about">{text(part.caption)}</text>'
    )
    card = (
        '<rect width="100%" height="100%" rx="12" style="fill:var(--card);stroke:var(--line)"/>'
        '<style>.title { font: 600 17px system-ui, "Segoe UI", Roboto, sans-serif; '
        'fill: var(--ink); } .about { font: 13px system-ui, "Segoe UI", Roboto, sans-serif; '
        "fill: var(--muted); }</style>"
    )
    return f"{head}>{_STYLE}{card}{words}{rest}\n"


def ladder(records: Sequence[Record], squares: Sequence[Mapping[str, Any]]) -> str:
    """Return the bars of one case of a bench, with cuBLAS and with `gemmlab.matmul`.

    squares: rows of `python -m benchmarks matmul`, by `n`.
    """
    one = records[0]
    size = one.shape["m"]
    [product] = [row for row in squares if row["n"] == size]
    own, other = product["default"]["tflops"], product["sgemm alone"]["tflops"]
    order = one.interleaved
    rows = [
        _row(r.kernel, r.tflops or 0, percent(r.percent_of_baseline or 0), _CORES)
        for r in sorted(records, key=lambda r: order.index(r.kernel))
        if "launch" in r.details
    ]
    [cublas] = [r for r in records if r.kernel == "cublas"]
    rows.append(_row("cuBLAS SGEMM", cublas.tflops or 0, "100%", _LIBRARY))
    rows.append(_row("gemmlab.matmul", own, f"{own / other:.1f}× SGEMM", _TENSOR))
    sizes = "×".join(map(str, one.shape.values()))
    part = charts.bars(
        f"float32 products, {sizes}, {one.machine['gpu']}",
        "TFLOPS, and share of cuBLAS. Green: the ladder, on FP32 cores. Blue: on tensor cores, as "
        "accurate as SGEMM.",
        rows,
        value="TFLOPS",
        kinds=("by", (_CORES, _LIBRARY, _TENSOR)),
    )
    return svg(_without_legend(part), 150)


def _row(name: str, tflops: float, share: str, by: str) -> dict[str, Any]:
    return {"rung": name, "TFLOPS": tflops, "by": by, charts.LABEL: f"{digits(tflops)} · {share}"}


def squares(rows: Sequence[Mapping[str, Any]], gpu: str) -> str:
    """Return lines of TFLOPS over n: `gemmlab.matmul`, SGEMM and TF32. `rows`: by `n`."""
    ways = {
        "default": "gemmlab.matmul",
        "sgemm alone": "SGEMM of cuBLAS",
        "tf32": "TF32",
    }
    points = [
        {"n": row["n"], "TFLOPS": row[way]["tflops"], "product": name}
        for way, name in ways.items()
        for row in rows
    ]
    part = charts.lines(
        f"Products of n×n float32 matrices, {gpu}: TFLOPS",
        "gemmlab.matmul is as accurate as SGEMM; TF32 rounds the inputs to 10 bits.",
        points,
        x="n",
        y="TFLOPS",
        series="product",
        muted=[ways["sgemm alone"], ways["tf32"]],
        height=320,
    )
    return svg(part, 70)


def _without_legend(part: Part) -> Part:
    """Return the bars without a legend: its layout would depend on fonts, and the names say it."""
    assert part.spec
    bars, *rest = part.spec["layer"]
    colour = bars["encoding"]["color"] | {"legend": None}
    plain = bars | {"encoding": bars["encoding"] | {"color": colour}}
    return replace(part, spec=dict(part.spec) | {"layer": [plain, *rest]})
