"""The page of a climb: each ladder's bars, roofline, counts and steps, and speed against size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gemmlab.core.figures import digits, percent, seconds
from gemmlab.hardware.specs import gpu
from gemmlab.lab import metrics
from gemmlab.lab.bench.job import case_name
from gemmlab.lab.peaks import FP32_PEAK, Peak
from gemmlab.lab.records import Record
from gemmlab.report import steps, tables
from gemmlab.report.html import charts
from gemmlab.report.html.page import Page, Part, Section, table
from gemmlab.report.html.roofline import roofline
from gemmlab.report.rungs import change, requested_bytes

_LEAST_SIZES = 2  # sizes for a chart of speed against size
_LOG_FROM = 50  # a ratio of largest to smallest count from which the axis is logarithmic


def page(records: Sequence[Record]) -> Page:
    """Return the page of all records. The ladders with the largest sizes come first."""
    cases = _by_case(records)
    first = next(iter(cases.values()))
    passed = sum(record.passed for record in records)
    versions = {name: value for r in records for name, value in r.versions.items()}
    compiler = versions.get("nvidia-cutlass-dsl")
    return Page(
        title=f"The ladder of {first[0].problem}",
        facts=[
            first[0].device,
            first[0].arch,
            f"gemmlab {versions.get('gemmlab', '')}",
            *([f"CuTe DSL {compiler}"] if compiler else []),
        ],
        tiles={"rungs pass": f"{passed} of {len(records)}"} | _headline(first),
        sections=[
            *(_ladder(own, folded=own[0].flops < first[0].flops) for own in cases.values()),
            *_sizes(records),
        ],
    )


def _by_case(records: Sequence[Record]) -> dict[object, list[Record]]:
    """Group the records by case: the largest first, then in the order of the records."""

    def key(record: Record) -> tuple[Any, ...]:
        return record.problem, tuple(record.shape.values()), record.layout, record.family

    found: dict[object, list[Record]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    largest = sorted(found.items(), key=lambda item: -item[1][0].flops)
    return dict(largest)


def _headline(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers of the fastest rung, and what it gains over the first."""
    timed = [r for r in records if r.time_s is not None and r.verdict == "pass"]
    if not timed:
        return {}
    best = min(timed, key=lambda record: record.time_s or 0)
    found = {f"fastest: {best.rung}": seconds(best.time_s or 0)}
    if best.tflops and best.flops > best.min_bytes:
        found["TFLOPS of it"] = digits(best.tflops)
    roof = metrics.roof_percent(best)
    if roof is not None:
        found["of the data sheet's roof"] = percent(roof)
    found[f"speed of {timed[0].rung}"] = f"{digits((timed[0].time_s or 0) / (best.time_s or 1))}×"
    return found


def _name(record: Record) -> str:
    return case_name(record.problem, tuple(record.shape.values()), record.layout, record.family)


def _ladder(records: Sequence[Record], *, folded: bool) -> Section:
    one = records[0]
    parts = [*_speed(records), *_flows(records), *_roofline(records)]
    parts += [*_counts(records), *_errors(records)]
    columns = [c for c in tables.COLUMNS if any(c.value(record) for record in records)]
    rows = [
        [r.rung, change(r.problem, r.rung), r.verdict]
        + ["–" if (v := c.value(r)) is None else c.write(v) for c in columns]
        for r in records
    ]
    headings = ["rung", "what it changes", "verdict", *(column.name for column in columns)]
    parts.append(table("All numbers", "  ".join(tables.notes(records)), headings, rows))
    changed = [list(steps.sentence(*pair)) for pair in steps.pairs(records)]
    if changed:
        parts.append(table("Step by step", "", ["step", "what changed"], changed))
    about = f"Seed {one.seed}. {sum(r.passed for r in records)} of {len(records)} rungs pass."
    return Section(_name(one), about, parts, folded)


def _speed(records: Sequence[Record]) -> list[Part]:
    timed = [record for record in records if record.time_s is not None]
    if not timed:
        return []
    computes = metrics.computes(timed[0])
    value = "TFLOPS" if computes else "GB/s"
    speed = (lambda r: r.tflops) if computes else metrics.gigabytes_per_second
    rows = []
    for record in timed:
        roof = metrics.roof_percent(record)
        rate = speed(record) or 0
        row = {"rung": record.rung, value: rate, "time": seconds(record.time_s or 0)}
        share = {} if roof is None else {"% of the roof": roof}
        note = digits(rate) + ("" if roof is None else f" · {percent(roof)}")
        rows.append(
            row
            | share
            | {"what it changes": change(record.problem, record.rung), charts.LABEL: note}
        )
    caption = "Percent: of the data sheet's peak or bandwidth, whichever limits."
    return [charts.bars(f"Speed, {value}", caption, rows, value=value)]


_TO, _KERNEL, _FROM, _READ = "to the device", "kernel", "to the host", "host reads"
_WAYS = {
    "copy in": _TO,
    "prefetch in": _TO,
    "kernel": _KERNEL,
    "copy out": _FROM,
    "prefetch out": _FROM,
    "host read": _READ,
}


def _flows(records: Sequence[Record]) -> list[Part]:
    """Return the time lines of rungs with a host flow; if untimed, their operations."""
    rows = [
        {
            "where": f"{r.rung}, {_place(one['stream'])}",
            "operation": one["name"],
            "bytes": one["bytes"],
            "start, ms": one["start_ms"],
            "end, ms": one["end_ms"],
            "kind": _WAYS[one["name"]],
        }
        for r in records
        for one in r.timeline or []
    ]
    if not rows:
        return []
    title = "What runs when"
    if any(row["end, ms"] is None for row in rows):
        cells = [[row["where"], row["operation"], f"{row['bytes']:,}"] for row in rows]
        return [table(title, "Not timed.", ["where", "operation", "bytes"], cells)]
    caption = "Operations of each host program, in the order of its streams, on one axis."
    kinds = ("kind", (_KERNEL, _READ, _TO, _FROM))
    return [
        charts.spans(
            title, caption, rows, start="start, ms", end="end, ms", row="where", kinds=kinds
        )
    ]


def _place(stream: int | None) -> str:
    return "host" if stream is None else f"stream {stream}"


def _roofline(records: Sequence[Record]) -> list[Part]:
    roof = gpu(records[0].device)
    if roof is None:
        return []
    points = [point for record in records if (point := _point(record, metrics.peak(record, roof)))]
    if not points:
        return []
    peaks = {FP32_PEAK: roof.fp32_tflops}
    peaks |= {peak.label: peak.tflops for peak in (metrics.peak(r, roof) for r in records)}
    caption = (
        "Measured speed over the FLOPs per byte that the lanes request from global memory, "
        "before any cache; if these are not known, each input is read once and each output written "
        "once. A point above the slanted roof of device memory is served by caches. "
        f"Roof: {roof.fp32_tflops:.3g} TFLOPS, {roof.bandwidth_gbs:,.0f} GB/s; {roof.source}."
    )
    return [
        roofline(
            "Roofline",
            caption,
            points,
            name="rung",
            peaks=peaks,
            bandwidth_gbs=roof.bandwidth_gbs,
        )
    ]


def _point(record: Record, peak: Peak) -> dict[str, Any] | None:
    """Return the rung's point: counted sectors if the case was counted, else the model's bytes;
    without a model, each input read and each output written once."""
    if not record.tflops or record.flops <= record.min_bytes:
        return None
    counted = metrics.intensity(record)
    if counted:
        place, source = counted, "counted sectors"
    else:
        moved = requested_bytes(record.problem, record.rung, record.layout, record.shape)
        place = record.flops / (moved or record.min_bytes)
        source = "the model's requests" if moved else "minimum traffic"
    return {
        "rung": record.rung,
        "FLOP/byte": place,
        "TFLOPS": record.tflops,
        "% of peak": 100 * record.tflops / peak.tflops,
        "peak": peak.label,
        "bytes by": source,
    }


_COUNTS = (
    ("global sectors", metrics.global_sectors),
    ("shared wavefronts", metrics.counted(metrics.SHARED_WAVEFRONTS)),
    ("machine instructions", metrics.machine_instructions),
)


def _counts(records: Sequence[Record]) -> list[Part]:
    parts = []
    for name, value in _COUNTS:
        rows: list[dict[str, Any]] = [
            {"rung": r.rung, name: number, charts.LABEL: f"{number:,.0f}"}
            for r in records
            if (number := value(r))
        ]
        if rows:
            numbers = [row[name] for row in rows]
            log = max(numbers) > _LOG_FROM * min(numbers)
            caption = "Counted by the emulator under Nsight Compute's rules." + (
                " The axis is logarithmic." if log else ""
            )
            parts.append(charts.bars(name.capitalize(), caption, rows, value=name, log=log))
    return parts


def _errors(records: Sequence[Record]) -> list[Part]:
    rows = [
        {
            "rung": r.rung,
            "error, u": r.max_error_u,
            "bound, u": r.bound_u,
            charts.LABEL: digits(r.max_error_u),
        }
        for r in records
        if r.max_error_u is not None
    ]
    if not any(row["error, u"] for row in rows):
        return []
    caption = (
        "Largest error against float64, in units of u = 2⁻²⁴ times the sum of |a·b|. "
        f"The bound is {digits(records[0].bound_u)} u."
    )
    return [charts.bars("Error", caption, rows, value="error, u")]


def _sizes(records: Sequence[Record]) -> list[Section]:
    """Return charts of TFLOPS against size, one per layout, for cubes of several sizes."""
    cubes = [
        r for r in records if r.tflops and r.flops > r.min_bytes and len(set(r.shape.values())) == 1
    ]
    parts = []
    for (layout, family), group in groupby(
        sorted(cubes, key=lambda r: (r.layout, r.family)), key=lambda r: (r.layout, r.family)
    ):
        rows: list[dict[str, Any]] = [
            {"size": next(iter(r.shape.values())), "rung": r.rung, "TFLOPS": r.tflops}
            for r in group
        ]
        sizes = sorted({row["size"] for row in rows})
        if len(sizes) >= _LEAST_SIZES:
            title = f"{layout} layout, {family} inputs"
            caption = "Hover over a point for its rung and number."
            parts.append(charts.lines(title, caption, rows, x="size", y="TFLOPS", series="rung"))
    return [Section("Speed against size", "", parts)] if parts else []
