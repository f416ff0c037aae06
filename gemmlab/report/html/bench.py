"""The page of a bench: each case's bars against the baselines, the roofline, and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gemmlab.core.figures import digits, percent, seconds
from gemmlab.lab.bench.job import case_name
from gemmlab.lab.bench.record import IEEE, Case, Record
from gemmlab.lab.peaks import FP32_PEAK, Peak
from gemmlab.report.html import charts
from gemmlab.report.html.page import Page, Part, Section, table
from gemmlab.report.html.roofline import roofline
from gemmlab.report.rungs import change, position, requested_bytes

_SIZES = "Dashed: libraries. Hover over a point for its kernel and number."
Named = Mapping[str, Record]  # by the name in charts

_KERNEL, _LIBRARY = "gemmlab's kernel", "library"


def page(records: Sequence[Record]) -> Page:
    """Return the page of all records, the case with the most work first."""
    cases: dict[Case, list[Record]] = {}
    for record in records:
        cases.setdefault(record.case, []).append(record)
    largest = sorted(cases.values(), key=lambda own: -max(own[0].flops, own[0].min_bytes))
    machine = largest[0][0].machine
    return Page(
        title=f"Bench of {', '.join(dict.fromkeys(own[0].problem for own in largest))}",
        facts=[
            machine["gpu"],
            f"{machine['sms']} SMs",
            f"driver {machine['driver']}",
            f"clocks {machine['clocks']}",
            *sorted({record.date[:10] for record in largest[0]}),
        ],
        tiles=_headline(largest[0]),
        sections=[
            *(_section(own, folded=number > 0) for number, own in enumerate(largest)),
            *_sizes(cases),
        ],
    )


def _is_kernel(record: Record) -> bool:
    return "launch" in record.details


def _headline(records: Sequence[Record]) -> dict[str, str]:
    kernels = [record for record in records if _is_kernel(record)]
    if not kernels:
        return {}
    best = min(kernels, key=lambda record: record.gpu_median_s)
    found = {f"fastest kernel: {best.kernel}": seconds(best.gpu_median_s)}
    if best.tflops:
        found["TFLOPS of it"] = digits(best.tflops)
    for roofs in ("measured", "datasheet"):
        if (share := best.roof_percent(roofs)) is not None:
            found[f"of the {'data sheet’s' if roofs == 'datasheet' else roofs} roof"] = percent(
                share
            )
    if best.baseline and best.percent_of_baseline is not None:
        found[f"of {best.baseline['kernel']}"] = percent(best.percent_of_baseline)
    return found


def _name(case: Case) -> str:
    return case_name(*case)


def _ordered(records: Sequence[Record]) -> list[Record]:
    """Sort: libraries, then rungs in ladder order, then other kernels; ties by turn in the run."""

    def place(r: Record) -> tuple[bool, int, int, str]:
        turn = r.interleaved.index(r.kernel) if r.kernel in r.interleaved else len(r.interleaved)
        return _is_kernel(r), position(r.problem, r.kernel), turn, r.date

    return sorted(records, key=place)


def _named(records: Sequence[Record]) -> Named:
    """Name the records of a case: by kernel, and by run if several runs measured it."""
    runs = _runs(records)
    times = Counter(record.kernel for record in records)
    return {
        r.kernel if times[r.kernel] == 1 else f"{r.kernel}, run {1 + runs.index(r.date)}": r
        for r in _ordered(records)
    }


def _runs(records: Sequence[Record]) -> list[str]:
    """The dates of the runs."""
    return sorted({record.date for record in records})


def _section(records: Sequence[Record], *, folded: bool) -> Section:
    own, one = _named(records), records[0]
    about = (
        f"Cold runs, medians of {one.protocol['rounds']} interleaved rounds; the line at a "
        f"bar's end spans the 10th to the 90th percentile. Inputs: {one.family}, seed {one.seed}."
    )
    if (runs := len(_runs(records))) > 1:
        about += f" {runs} runs, numbered by date."
    return Section(
        _name(one.case),
        about,
        [_bars(own), *_roofline(records), *_errors(own), _table(own)],
        folded,
    )


def _speed(record: Record, time_s: float) -> float:
    work = record.flops / 1e12 if record.tflops else record.min_bytes / 1e9
    return work / time_s


def _row(name: str, record: Record, value: str) -> dict[str, Any]:
    shares = {
        "% of baseline": record.percent_of_baseline,
        "% of measured roof": record.roof_percent("measured"),
        "% of data sheet": record.roof_percent("datasheet"),
        "error, u": record.max_error_u,
        "samples": record.samples,
    }
    shares_shown = (record.percent_of_baseline, record.roof_percent("datasheet"))
    speed = _speed(record, record.gpu_median_s)
    return {
        "kernel": name,
        value: speed,
        "time": seconds(record.gpu_median_s),
        "p10": _speed(record, record.gpu_p90_s),
        "p90": _speed(record, record.gpu_p10_s),
        **{name: number for name, number in shares.items() if number is not None},
        "by": _KERNEL if _is_kernel(record) else _LIBRARY,
        charts.LABEL: " · ".join(
            [digits(speed), *(percent(share) for share in shares_shown if share is not None)]
        ),
    }


def _bars(own: Named) -> Part:
    records = list(own.values())
    value = "TFLOPS" if records[0].tflops else "GB/s"
    rows = [_row(name, record, value) for name, record in own.items()]
    baseline = records[0].baseline
    against = f"percent of {baseline['title']}, measured in the same rounds; " if baseline else ""
    caption = f"Beside a bar: {value}; {against}percent of the data sheet's peak or bandwidth."
    return charts.bars(
        f"Speed, {value}",
        caption,
        rows,
        value=value,
        name="kernel",
        kinds=("by", (_KERNEL, _LIBRARY)),
        span=("p10", "p90"),
    )


def _roofline(records: Sequence[Record]) -> list[Part]:
    roof = records[0].machine["roofs"]["measured"]
    rows = [
        {
            "kernel": record.kernel,
            "FLOP/byte": record.flops / (asked or record.min_bytes),
            "TFLOPS": record.tflops,
            "% of peak": 100 * record.tflops / peak.tflops,
            "peak": peak.label,
            "bytes": "requested" if asked else "minimum traffic",
        }
        for record in _ordered(records)
        if record.tflops and (peak := _peak(record))
        for asked in [_asked(record)]
    ]
    if not rows or not roof["fp32_tflops"] or not roof["bandwidth_gbs"]:
        return []
    peaks = {FP32_PEAK: roof["fp32_tflops"]}
    peaks |= {peak.label: peak.tflops for record in records if (peak := _peak(record))}
    caption = (
        "Measured speed over FLOPs per byte. For gemmlab's kernels, the bytes are those that lanes "
        "request from global memory, before any cache: a point above the slanted roof of device "
        "memory is served by caches. For libraries, and for kernels whose requests are not known, "
        "each input is read once and each output written once. The roof is measured: "
        f"{roof['source']}."
    )
    return [
        roofline(
            "Roofline",
            caption,
            rows,
            name="kernel",
            peaks=peaks,
            bandwidth_gbs=roof["bandwidth_gbs"],
            kinds=("bytes", ("requested", "minimum traffic")),
        )
    ]


def _peak(record: Record) -> Peak | None:
    """The measured peak; of tensor cores, which no probe measures, the data sheet's."""
    return record.peak("measured" if record.precision == IEEE else "datasheet")


def _asked(record: Record) -> int | None:
    if not _is_kernel(record):
        return None
    return requested_bytes(record.problem, record.kernel, record.layout, record.shape)


def _errors(own: Named) -> list[Part]:
    rows = [
        {
            "kernel": name,
            "error, u": r.max_error_u,
            "by": _KERNEL if _is_kernel(r) else _LIBRARY,
            charts.LABEL: digits(r.max_error_u),
        }
        for name, r in own.items()
        if r.max_error_u is not None
    ]
    if not any(row["error, u"] for row in rows):
        return []
    caption = (
        "Largest error against float64, in units of u = 2⁻²⁴ times the sum of the terms' "
        f"magnitudes. The bound is {digits(next(iter(own.values())).bound_u)} u."
    )
    return [
        charts.bars(
            "Error",
            caption,
            rows,
            value="error, u",
            name="kernel",
            kinds=("by", (_KERNEL, _LIBRARY)),
        )
    ]


def _table(own: Named) -> Part:
    def shown(value: float | None, write: Any) -> str:
        return "–" if value is None else write(value)

    rows = [
        [
            name,
            change(r.problem, r.kernel) if _is_kernel(r) else r.title,
            seconds(r.gpu_median_s),
            shown(r.gpu_noise_percent, lambda noise: f"{noise:.2f} %"),
            digits(_speed(r, r.gpu_median_s)),
            shown(r.percent_of_baseline, percent),
            shown(r.roof_percent("measured"), percent),
            shown(r.roof_percent("datasheet"), percent),
            shown(r.details.get("resources", {}).get("registers"), digits),
            shown(r.sm_mhz, lambda clock: f"{clock:.0f}"),
            shown(r.power_w, lambda power: f"{power:.0f}"),
        ]
        for name, r in own.items()
    ]
    value = "TFLOPS" if next(iter(own.values())).tflops else "GB/s"
    headings = ["kernel", "what it is", "time", "noise", value, "of baseline", "of measured roof"]
    headings += ["of data sheet", "registers", "SM MHz", "W"]
    return table("All numbers", "", headings, rows)


def _sizes(cases: dict[Case, list[Record]]) -> list[Section]:
    """Return a chart of TFLOPS against size per problem, layout and family, for cubes."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for (problem, sizes, layout, family), records in cases.items():
        if len(set(sizes)) == 1:
            groups.setdefault((problem, layout, family), []).extend(_ordered(records))
    parts = []
    for (problem, layout, family), own in groups.items():
        value = "TFLOPS" if own[0].tflops else "GB/s"
        rows = [
            {
                "size": next(iter(r.shape.values())),
                "kernel": r.kernel,
                value: _speed(r, r.gpu_median_s),
            }
            for r in own
        ]
        if len({row["size"] for row in rows}) > 1:
            title = f"{problem}, {layout} layout, {family} inputs"
            libraries = {r.kernel for r in own if not _is_kernel(r)}
            parts.append(
                charts.lines(
                    title, _SIZES, rows, x="size", y=value, series="kernel", muted=libraries
                )
            )
    return [Section("Speed against size", "", parts)] if parts else []
