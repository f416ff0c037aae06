"""The page of a kernel: of a rung, explained, or of a user's file with the checks' findings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemmlab.compile.artifact import Artifact
from gemmlab.core.figures import digits, percent, scaled, seconds, times
from gemmlab.emulator import Run, Trace
from gemmlab.errors import LaunchError
from gemmlab.hardware.occupancy import Occupancy, occupancy
from gemmlab.hardware.specs import architecture
from gemmlab.lab import metrics
from gemmlab.lab.explain import reductions, stalls, tiles
from gemmlab.lab.explain.counted import Launched
from gemmlab.lab.explain.explanation import Explanation
from gemmlab.lab.explain.passages import passages
from gemmlab.lab.explain.patterns import Pattern, patterns
from gemmlab.lab.explain.pipeline import PipelineTrace, pipeline
from gemmlab.lab.explain.shuffles import shuffle_trees
from gemmlab.lab.kernel_file import FileRun
from gemmlab.problems.problem import Case
from gemmlab.report import explanation as texts
from gemmlab.report import prediction
from gemmlab.report.html import charts, code, drawings, pipelines, trees
from gemmlab.report.html.page import Page, Part, Section, facts, table
from gemmlab.report.html.roofline import roofline
from gemmlab.timing import Model, Prediction

_LEAST_SHARE = 0.005  # smaller shares of the time are left out


def rung(
    e: Explanation,
    launched: Launched | None,
    predicted: tuple[Prediction, Model] | None = None,
) -> Page:
    """Return the page of an explained rung. `launched`: the launch that its counts are of."""
    about = [*filter(None, [e.change]), *texts.case(e).split(", "), e.gpu.name, e.arch]
    numbers = {"minimum time of a launch": seconds(e.least_time_s)}
    if not e.least_time_s:  # L2 may hold all data
        numbers = {"minimum time to move the data": seconds(e.memory_time_s)}
    if e.occupancy:
        numbers["occupancy"] = percent(100 * e.occupancy.fraction)
    if e.resources:
        numbers["registers per thread"] = str(e.resources.registers)
    own = [reading for reading in e.measured if reading.rung == e.rung and reading.shape == e.shape]
    if own:
        numbers[f"measured, {own[0].device}"] = seconds(own[0].time_s)
        if e.work.flops:
            numbers["of the peak"] = percent(100 * own[0].share)
    sections = [
        Section("Work", " ".join(e.notes), [facts(dict(texts.work_facts(e))), *_roofline(e)])
    ]
    if predicted:
        numbers["predicted time"] = seconds(predicted[0].time_s)
        about.append(prediction.device(predicted[1]))
        sections.append(_predicted(*predicted))
    launch = [facts(dict(texts.launch_facts(e)))]
    if e.resources and e.occupancy:
        smem = e.resources.static_smem_bytes + e.geometry.dynamic_smem_bytes
        launch += _occupancy(
            e.gpu.arch, math.prod(e.geometry.block), e.resources.registers, smem, e.occupancy
        )
    sections.append(Section("Launch and occupancy", "", launch))
    if launched:
        if launched.case is not None and launched.case.shape != e.shape:
            about.append(f"emulated at {times(launched.case.shape)}")
        trace, names = launched.trace, launched.names
        accesses = patterns(trace, dict(enumerate(names)))
        spent = stalls.stalls(launched.artifact, launched.call)
        sections += _of_launch(
            launched.artifact, launched.run, trace, launched.case, names, accesses, spent
        )
    if e.rows:
        rows = _rows(e, launched.run if launched else None)
        sections.append(Section("Model and count", "", [rows]))
    return Page(f"{e.rung}, explained", about, numbers, sections)


def _predicted(found: Prediction, model: Model) -> Section:
    shown = [facts(prediction.summary(found, model)), *_where_time_goes(found)]
    return Section("Predicted time", prediction.NOTE.replace("`", ""), shown)


def _where_time_goes(found: Prediction) -> list[Part]:
    """How busy the units are, what warps wait for, and their cycles by source line."""
    parts = _shares("How busy units are", "Share of the time.", found.busy)
    parts += _shares("What warps wait for", "Share of the time of warps.", found.stalls)
    lines = [(line, share) for line, share in found.by_source_line().items() if line]
    cells = [
        [code.link(line), percent(100 * share)] for line, share in lines if share >= _LEAST_SHARE
    ]
    return [*parts, table("Where the cycles of warps go", "", ["line", "share"], cells)]


def _shares(title: str, caption: str, shares: Mapping[str, float]) -> list[Part]:
    """Bars of shares of 1, the largest first."""
    rows: list[dict[str, Any]] = [
        {"name": name, "%": 100 * share, charts.LABEL: percent(100 * share)}
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= _LEAST_SHARE
    ]
    return [charts.bars(title, caption, rows, value="%", name="name")] if rows else []


def file(
    name: str,
    done: FileRun,
    trace: Trace,
    predicted: tuple[Prediction, Model] | None = None,
) -> Page:
    """Return the page of a user's file after one emulated launch with all checks."""
    run, call = done.run, done.call
    stopped = any(finding.stops for finding in run.findings)
    numbers = {"findings of the checks": str(len(run.findings))}
    if done.verdict is not None:
        numbers["verdict"] = done.verdict.status
    taken = done.artifact.resources
    sections = []
    if run.findings:
        cells = [
            [f.kind, f.message, code.link(f.site.source or "") or f"PTX line {f.site.ptx_line}"]
            for f in run.findings
        ]
        findings = table("", "", ["kind", "message", "line"], cells)
        sections.append(Section("Findings", "The lines are marked in the code below.", [findings]))
    if predicted:
        numbers["predicted time"] = seconds(predicted[0].time_s)
        sections.append(_predicted(*predicted))
    if taken:
        threads = math.prod(call.block)
        smem = taken.static_smem_bytes + call.smem
        try:
            found = occupancy(done.artifact.arch, threads, taken.registers, smem)
        except LaunchError:
            found = None
        if found:
            numbers["registers per thread"] = str(taken.registers)
            numbers["occupancy"] = percent(100 * found.fraction)
            parts = _occupancy(done.artifact.arch, threads, taken.registers, smem, found)
            sections.append(Section("Occupancy", "", parts))
    shown: tuple[Pattern, ...] = ()
    spent = None
    if not stopped:
        shown = patterns(trace, dict(enumerate(call.names)))
        spent = stalls.stalls(
            done.artifact, stalls.Call(call.grid, call.block, call.args, call.smem)
        )
    sections += _of_launch(
        done.artifact, run, None if stopped else trace, done.case, call.names, shown, spent
    )
    grid, block = (
        "×".join(map(str, call.grid)),
        "×".join(map(str, call.block)),
    )
    about = [name, done.artifact.arch, f"grid {grid}", f"block {block}"]
    if done.verdict is not None:
        about.append(done.verdict.message)
    return Page(done.artifact.entry, about, numbers, sections)


def _of_launch(
    artifact: Artifact,
    run: Run,
    trace: Trace | None,
    case: Case | None,
    names: Sequence[str],
    found: Sequence[Pattern],
    spent: stalls.Stalls | None,
) -> list[Section]:
    """Return the sections on the tile, on accesses and on the code of an emulated launch."""
    tile: list[Part] = []
    if trace is not None:
        tile += _reduction(trace)
        if case is not None and case.output in names:
            tile += _tiles(trace, case, names)
    pictures: dict[str, str] = {}
    drawn = []
    for number, pattern in enumerate(found):
        name = f"access-{number}"
        pictures.setdefault(pattern.source, name)
        part = drawings.access(pattern, code.link(pattern.source))
        drawn.append(replace(part, name=name))
    sections = []
    if tile:
        sections.append(Section("Tiles and threads", "", tile))
    if drawn:
        about = (
            "One request of warp 0 in the first block per kind of instruction. A square is a word "
            "of 4 bytes with the lane that accesses it; a dot means several lanes. Global memory "
            "moves sectors of 32 bytes; shared memory serves a row of 32 banks per wavefront."
        )
        sections.append(Section("Memory accesses", about, drawn))
    panes = [code.panes(artifact, run, run.findings, pictures, spent)]
    if spent is not None:
        about = f"Share of the time of warps, {spent.about}. Selected: the warp issues."
        panes += _shares("What warps wait for", about, spent.reasons)
    sections.append(Section("Source, PTX and SASS", "", panes))
    return sections


def _tiles(trace: Trace, case: Case, names: Sequence[str]) -> list[Part]:
    parts = []
    writers = tiles.writers(trace, case, names)
    is_whole = set(case.buffers) <= set(names)  # not the launch of several that multiplies
    walked = tiles.walks(trace, case, names) if is_whole else ()
    passed = passages(trace, case, names)
    if passed:
        parts.append(trees.transpose(passed, [code.link(p.source) for p in passed]))
    if writers is not None:
        if len(walked) == 2:
            parts.append(drawings.walk(walked, writers.shape, "The first block's"))
        parts.append(drawings.owners(writers))
        own = drawings.lanes(writers)
        parts += [own] if own else []
    if isinstance(trace, PipelineTrace) and set(case.shape) == {"m", "n", "k"}:
        found = pipeline(trace)
        parts += [pipelines.pipeline(found)] if found else []
    return parts


def _reduction(trace: Trace) -> list[Part]:
    found = reductions.tree(trace)
    parts = [trees.tree(found, code.link(found.source)), trees.workers(found)] if found else []
    parts += [
        trees.shuffles(one, code.link(one.exchanges[0].source)) for one in shuffle_trees(trace)
    ]
    return parts


def _roofline(e: Explanation) -> list[Part]:
    rows = [
        {
            "name": point.name,
            "FLOP/byte": point.intensity,
            "TFLOPS": point.tflops,
            "kind": "attainable",
            "limited by": point.bound,
        }
        for point in e.points
    ]
    rows += [
        {
            "name": f"measured, {_size(r.shape)}, {r.device}",
            "FLOP/byte": r.intensity,
            "TFLOPS": r.tflops,
            "kind": "measured",
            "limited by": "",
        }
        for r in e.measured
        if r.rung == e.rung and e.problem == "gemm"
    ]
    if not rows:
        return []
    caption = (
        "Attainable rates at each intensity, and measured ones over the bytes of device memory. "
        f"Ridge at {digits(e.roof.ridge)} FLOP/byte."
    )
    return [
        roofline(
            "Roofline",
            caption,
            rows,
            name="name",
            peaks={e.peak: e.peak_tflops},
            bandwidth_gbs=e.gpu.bandwidth_gbs,
        )
    ]


def _size(shape: Mapping[str, int]) -> str:
    first, *others = shape.values()
    return f"{first}³" if others == [first, first] else times(shape)


def _occupancy(arch: str, threads: int, registers: int, smem: int, found: Occupancy) -> list[Part]:
    """Return occupancy against registers and against shared memory, with the kernel's point."""
    sm = architecture(arch)

    def at(registers: int, smem: int) -> float | None:
        try:
            return 100 * occupancy(arch, threads, registers, smem).fraction
        except LaunchError:
            return None

    parts = []
    for name, here, values in (
        ("registers per thread", registers, range(1, sm.max_registers_per_thread + 1)),
        ("shared memory per block, bytes", smem, range(0, sm.smem_per_block + 1, 1024)),
    ):
        is_registers = name.startswith("registers")
        rows = [
            {name: value, "occupancy, %": share}
            for value in values
            if (share := at(value, smem) if is_registers else at(registers, value)) is not None
        ]
        point = {name: here, "occupancy, %": 100 * found.fraction}
        parts.append(
            charts.steps(
                f"Occupancy against {name.split(',')[0]}", "", rows, name, "occupancy, %", point
            )
        )
    return parts


_LINES = {
    "global load requests": metrics.GLOBAL_LOAD_REQUESTS,
    "global load sectors": metrics.GLOBAL_LOAD_SECTORS,
    "global store requests": metrics.GLOBAL_STORE_REQUESTS,
    "global store sectors": metrics.GLOBAL_STORE_SECTORS,
    "shared load wavefronts": metrics.SHARED_LOAD_WAVEFRONTS,
    "shared store wavefronts": metrics.SHARED_STORE_WAVEFRONTS,
}


def _rows(e: Explanation, run: Run | None) -> Part:
    """Return models beside counts. A count leads to the source line with the largest part of it."""
    cells = [
        [
            row.name,
            row.formula or "no model",
            "–" if row.model is None else scaled(row.model),
            "–" if row.counted is None else scaled(row.counted),
            "" if row.difference is None else f"{100 * row.difference:+,.1f} %",
            row.reason,
            code.hottest(run, [_LINES[row.name]]) if run and row.name in _LINES else "",
        ]
        for row in e.rows
    ]
    assert e.counted
    headings = ["", "formula", "model", "counted", "difference", "reason", "most of it in"]
    return table(f"At {times(e.counted.shape)}", "", headings, cells)
