"""Markdown tables of the pages that compare measurements: sizes, layouts, other GPUs, steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gemmlab.core import figures
from gemmlab.kernels import ladder
from gemmlab.lab import metrics
from gemmlab.lab.bench.record import IEEE, Record
from gemmlab.lab.explain.readings import Reading
from gemmlab.lab.explain.stalls import Stalls
from gemmlab.lab.peaks import FP32_PEAK
from gemmlab.report.markdown import table
from gemmlab.report.rungs import any_layout, change

# What teaching material measured on an NVIDIA A100 at 8192³, course layout, in percent of cuBLAS.
# `naive-tnn` took 3,760 ms, where cuBLAS took 58.3 ms.
A100 = {
    "naive-tnn": 100 * 58.3 / 3760,
    "tile-2d-4x4": 62.99,
    "tile-2d-4x4-bk32": 73.62,
    "tile-2d-8x8": 75.36,
    "float4-64": 85.95,
    "float4": 86.07,
}
# Reasons of stalls, and the least share of any rung for which one has a column.
REASONS = (
    *("selected", "not selected", "long scoreboard", "short scoreboard", "barrier", "wait"),
    *("MIO throttle", "LG throttle", "math pipe throttle", "dispatch stall"),
)
_LEAST_STALL = 0.05
_LIBRARIES = {"cub": "CUB", "torch": "PyTorch"}
Cases = Mapping[str, Sequence[Record]]  # the records of one case, by a heading


def ladder_by_case(cases: Cases) -> str:
    """Return a table of times with percent of cuBLAS, and one of TFLOPS with percent of the peak: a
    row per rung of CUDA cores, a column per case.

    Cases are headings such as "H100, 4096³, course". A rung has one row for both layouts.
    """
    found = {
        heading: {any_layout(r.kernel): r for r in records} for heading, records in cases.items()
    }
    names = dict.fromkeys(
        name
        for own in found.values()
        for name, record in own.items()
        if _is_rung(name) and record.precision == IEEE
    )
    names = dict.fromkeys(sorted(names, key=[rung.name for rung in ladder.rungs()].index))

    def times(record: Record, own: Mapping[str, Record]) -> str:
        share = _of_cublas(record, own)
        shown = "" if share is None else f", {_percent(share)}"
        return f"{figures.seconds(record.gpu_median_s)}{shown}"

    def rates(record: Record, _own: Mapping[str, Record]) -> str:
        return f"{record.tflops:.3g}, {_percent(record.roof_percent('datasheet'))}"

    def written(first: str, write: Callable[[Record, Mapping[str, Record]], str]) -> str:
        rows = [
            [f"`{name}`" if name in names else "cuBLAS"]
            + [write(own[name], own) if name in own else "–" for own in found.values()]
            for name in (*names, "cublas")
        ]
        return table([first, *found], rows)

    return "\n\n".join(
        [
            "Times, and speed in percent of cuBLAS:",
            written("rung", times),
            "TFLOPS, and percent of the FP32 peak:",
            written("rung", rates),
        ]
    )


def beside_a100(cases: Cases) -> str:
    """Return the percent of cuBLAS, as taught for an A100, and as measured per case."""
    found = {
        heading: {any_layout(r.kernel): r for r in records} for heading, records in cases.items()
    }
    rows = [
        [f"`{name}`", _percent(theirs)]
        + [_percent(_of_cublas(own.get(any_layout(name)), own)) for own in found.values()]
        for name, theirs in A100.items()
    ]
    return table(["rung", "A100, 8192³, course", *found], rows)


def sizes(cases: Cases, names: Sequence[str]) -> str:
    """Return a row per rung: per case the time and the SMs that have blocks."""
    rows = []
    for name in names:
        cells = []
        for records in cases.values():
            record = next(r for r in records if r.kernel == name)
            blocks = math.prod(record.details["launch"]["grid"])
            busy = min(blocks, record.machine["sms"])
            cells.append(f"{figures.seconds(record.gpu_median_s)} on {busy} SMs")
        rows.append([f"`{name}`", *cells])
    return table(["rung", *cases], rows)


def layouts(
    cases: Cases, counters: Mapping[tuple[str, str], Mapping[str, int]], names: Sequence[str]
) -> str:
    """Return sectors per request and the time of rungs in both layouts.

    `cases` by layout; `counters` by rung and layout.
    """
    loads = metrics.GLOBAL_LOAD_SECTORS, metrics.GLOBAL_LOAD_REQUESTS
    stores = metrics.GLOBAL_STORE_SECTORS, metrics.GLOBAL_STORE_REQUESTS
    rows = []
    for layout, records in cases.items():
        for name in names:
            label = ladder.label(ladder.find(name, layout))
            counted = counters[label, layout]
            record = next(r for r in records if r.kernel == label)
            shares = [
                figures.digits(counted[over] / counted[under]) for over, under in (loads, stores)
            ]
            rows.append([layout, f"`{label}`", *shares, figures.seconds(record.gpu_median_s)])
    size = "×".join(map(str, next(iter(cases.values()))[0].shape.values()))
    headings = ["layout", "rung", "sectors per load", "sectors per store", f"time at {size}"]
    return table(headings, rows)


def caches(readings: Sequence[Reading]) -> str:
    """Return what each level of memory delivered, and the time and share of the kernel's peak."""
    rows = [
        [
            f"`{one.rung}`, {next(iter(one.shape.values()))}³, {one.layout}",
            f"{figures.scaled(one.l1_bytes)}B",
            f"{100 * one.l1_hit:.0f} %",
            f"{figures.scaled(one.l2_bytes)}B",
            f"{figures.scaled(one.dram_bytes)}B",
            figures.seconds(one.time_s),
            _percent(100 * one.share),
        ]
        for one in readings
    ]
    headings = ["kernel", "loads from L1", "hits", "L1 reads from L2", "reads from device memory"]
    peak = f"the {FP32_PEAK}" if {one.peak.name for one in readings} == {FP32_PEAK} else "its peak"
    return table([*headings, "time", f"of {peak}"], rows)


def stalls(readings: Sequence[tuple[str, str, Stalls]]) -> str:
    """Return a row per rung of GEMM: why its warps did not issue, in percent of their time."""
    order = [ladder.label(rung) for rung in ladder.rungs("gemm")]
    own = {rung: found.reasons for problem, rung, found in readings if problem == "gemm"}
    most = {name: max(reasons.get(name, 0) for reasons in own.values()) for name in REASONS}
    shown = [name for name, share in most.items() if share >= _LEAST_STALL]
    rows = [
        [f"`{rung}`", *(_whole(100 * own[rung].get(name, 0)) for name in shown)]
        for rung in order
        if rung in own
    ]
    return table(["rung", *shown], rows)


def steps(records: Sequence[Record], taught: Mapping[str, str], baseline: str) -> str:
    """Return a row per rung of one case: its time, the change from the rung before, and what
    teaching material says of that step (`taught`, by rung)."""
    problem = records[0].problem
    own = {r.kernel: r for r in records}
    rows, before = [], None
    for name in (rung.name for rung in ladder.rungs(problem) if rung.name in own):
        record = own[name]
        step = "" if before is None else f"{100 * (record.gpu_median_s / before - 1):+,.0f} %"
        cells = [f"`{name}`", change(problem, name), figures.seconds(record.gpu_median_s)]
        speed = f"{record.gigabytes_per_second:,.0f}"
        share = _percent(100 * own[baseline].gpu_median_s / record.gpu_median_s)
        rows.append([*cells, step, taught.get(name, ""), speed, share])
        before = record.gpu_median_s
    headings = ["rung", "what it changes", "time", "step", "taught", "GB/s", f"of {baseline}"]
    return table(headings, rows)


def beside(cases: Cases, baseline: str) -> str:
    """Return a row per kernel, libraries last, and a column per case: its time, and its speed in
    percent of the baseline's."""
    found = {label: {r.kernel: r for r in records} for label, records in cases.items()}
    names = dict.fromkeys(name for own in found.values() for name in own)
    order = [rung.name for rung in ladder.rungs(next(iter(cases.values()))[0].problem)]
    rows = [
        [
            f"`{name}`" if name in order else _LIBRARIES.get(name, name),
            *(
                f"{figures.seconds(own[name].gpu_median_s)}, "
                f"{_percent(100 * own[baseline].gpu_median_s / own[name].gpu_median_s)}"
                for own in found.values()
            ),
        ]
        for name in sorted(names, key=lambda name: [*order, name].index(name))
    ]
    return table(["kernel", *found], rows)


def stairs(records: Sequence[Record]) -> str:
    """Return a row per kernel of one case, its cuBLAS first: speed and largest error."""
    order = ["cublas", *(rung.name for rung in ladder.rungs())]
    own = {r.kernel: r for r in records}
    rows = [
        [
            f"`{name}`" if _is_rung(name) else "cuBLAS SGEMM",
            change("gemm", name) if _is_rung(name) else "",
            figures.seconds(own[name].gpu_median_s),
            figures.digits(own[name].tflops or 0),
            _percent(own[name].percent_of_baseline),
            f"{own[name].max_error_u:.1f}",
        ]
        for name in order
        if name in own
    ]
    return table(["kernel", "what it changes", "time", "TFLOPS", "of cuBLAS", "error, u"], rows)


def clocks(records: Sequence[Record], kernel: str) -> str:
    """Return a row per run of one kernel in one case, the fastest clock first."""
    own = [r for r in records if r.kernel == kernel and r.sm_mhz and r.power_w]
    rows = [
        [
            f"{r.sm_mhz:,.0f} MHz",
            f"{r.power_w:.0f} W",
            figures.seconds(r.gpu_median_s),
            f"{r.max_error_u:.1f} u",
        ]
        for r in sorted(own, key=lambda r: -(r.sm_mhz or 0))
    ]
    return table(["clock", "power", "time", "largest error"], rows)


def beside_cublas(cases: Cases, rung: str) -> str:
    """Return a row per case: the TFLOPS of cuBLAS and of a rung, cold and back to back.

    Of several runs of a case, the fastest counts.
    """
    rows = []
    for label, records in cases.items():
        cells = []
        for field in ("gpu_median_s", "batch_mean_s"):
            library, kernel = (
                min(getattr(record, field) for record in records if record.kernel == name)
                for name in ("cublas", rung)
            )
            cells += [f"{records[0].flops / time / 1e12:.1f}" for time in (library, kernel)]
            cells.append(_percent(100 * library / kernel))
        rows.append([label, *cells])
    headings = ["size", "cuBLAS, cold", f"`{rung}`", "of cuBLAS"]
    return table([*headings, "cuBLAS, back to back", *headings[2:]], rows)


def _is_rung(name: str) -> bool:
    return any(rung.name == name for rung in ladder.rungs())


def _of_cublas(record: Record | None, case: Mapping[str, Record]) -> float | None:
    """Speed in percent of the case's cuBLAS, which need not be of the record's own run."""
    if record is None or "cublas" not in case:
        return None
    return 100 * case["cublas"].gpu_median_s / record.gpu_median_s


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:#.2g} %" if value < 10 else f"{value:.1f} %"


def _whole(value: float) -> str:
    return f"{value:.0f}" if value >= 0.5 else ""
