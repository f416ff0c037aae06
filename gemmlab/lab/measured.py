"""One launch of one kernel as a record, from a run or a command's JSON; what changes."""

from __future__ import annotations

import linecache
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from gemmlab import problems, sass
from gemmlab.errors import InputError, LaunchError
from gemmlab.hardware.occupancy import occupancy
from gemmlab.hardware.specs import with_architecture
from gemmlab.lab import bounds
from gemmlab.lab.changes import METRICS
from gemmlab.lab.kernel_file import FileRun
from gemmlab.lab.metrics import TIME, Metric
from gemmlab.lab.records import Json, Record

Lines = Mapping[str, Mapping[str, int]]  # "file:line" -> counters


def _bound_us(record: Record) -> float | None:
    """The bound on the first GPU of the table with the record's architecture."""
    gpu = with_architecture(record.arch)
    found = bounds.of_record(record, gpu) if gpu else None
    return 1e6 * found.seconds if found else None


COMPARED = (
    *METRICS,
    Metric("spilled bytes", True, lambda record: (record.resources or {}).get("spill_bytes")),
    Metric("shared bytes", True, lambda record: (record.resources or {}).get("static_smem_bytes")),
    Metric("error in u", False, lambda record: record.max_error_u),
    Metric("least time in µs", False, _bound_us),
    TIME,
)


@dataclass(frozen=True)
class Measured:
    """The record of a launch, and the counters of its source lines, if they are known."""

    record: Record
    lines: Lines = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.record.verdict in ("pass", "not judged")


@dataclass(frozen=True)
class Moved:
    """A number that differs, and the source line whose part of it differs most, "" if unknown."""

    name: str
    before: float
    after: float
    line: str = ""


def of_run(name: str, done: FileRun) -> Measured:
    """Return the record of an emulated launch of a file or a rung."""
    artifact, call, verdict, case = done.artifact, done.call, done.verdict, done.case
    taken, found = artifact.resources, None
    if taken is not None:
        smem = taken.static_smem_bytes + call.smem
        try:
            found = occupancy(artifact.arch, math.prod(call.block), taken.registers, smem)
        except LaunchError:  # the block exceeds the GPU's resources
            found = None
    arrays = sum(arg.nbytes for arg in call.args if hasattr(arg, "nbytes"))
    problem = problems.find(done.problem) if done.problem else None
    record = Record(
        rung=name,
        problem=done.problem,
        shape=dict(case.shape) if case else {},
        layout=case.layout if case else "",
        family=case.family if case else "",
        seed=case.seed if case else 0,
        device="emulated",
        arch=artifact.arch,
        verdict=verdict.status if verdict else "not judged",
        message=verdict.message if verdict else "",
        bound_u=verdict.bound_u if verdict else 0.0,
        flops=problem.flops(case.shape) if problem and case else 0,
        min_bytes=problem.min_bytes(case.shape) if problem and case else arrays,
        max_error_u=verdict.max_error_u if verdict else None,
        launch={"grid": call.grid, "block": call.block, "dynamic_smem_bytes": call.smem},
        resources=asdict(taken) if taken else None,
        occupancy=asdict(found) if found else None,
        counters=done.run.counters | sass.counters(artifact, done.run),
        versions=artifact.versions,
    )
    return Measured(record, done.run.by_source_line())


def of_json(held: Any, path: Path) -> Measured | None:
    """Return what the JSON of `explain`, `judge` or `emulate` says of a launch; None for others.

    Raises InputError if it has no counters.
    """
    if not isinstance(held, dict):
        return None
    if "steps" in held and "counted_shape" in held:
        found = _of_judge(held)
    elif "geometry" in held and "counted" in held:
        found = _of_explain(held, path)
    elif "tier" in held and "counters" in held:
        found = _of_emulate(held, path)
    else:
        return None
    if not found.record.counters:
        raise InputError(f"{path} has no counters to compare: its launch was stopped or not made")
    return found


def moves(before: Measured, after: Measured) -> list[Moved]:
    """Return the numbers that both sides have and that differ."""
    found = []
    for metric in COMPARED:
        old, new = metric.value(before.record), metric.value(after.record)
        if old is not None and new is not None and old != new:
            line = _line(metric, before, after)
            found.append(Moved(metric.name, old, new, line))
    return found


def _line(metric: Metric, before: Measured, after: Measured) -> str:
    """Return the line whose part of a metric differs most. Equal texts are the same line."""
    if not before.lines or not after.lines or "occupancy" in metric.name or "time" in metric.name:
        return ""
    old, new = _by_text(metric, before), _by_text(metric, after)
    parts = {text: (old.get(text), new.get(text)) for text in {**old, **new}}

    def change(text: str) -> float:
        was, now = parts[text]
        return abs((now[1] if now else 0.0) - (was[1] if was else 0.0))

    most = max(parts, key=change, default=None)
    if most is None or not change(most):
        return ""
    was, now = parts[most]
    sides = [f"{place[0]} {place[1]:,.0f}" if place else "gone" for place in (was, now) if place]
    where = " → ".join(sides) if was and now else f"{sides[0]} {'before' if was else 'after'}"
    return f"{where}: {most}" if ":" not in most else where


def _by_text(metric: Metric, side: Measured) -> dict[str, tuple[str, float]]:
    """Return the place and the metric's value of each line of code, by its text."""
    found: dict[str, tuple[str, float]] = {}
    for place, counters in side.lines.items():
        value = metric.value(replace(side.record, counters=dict(counters), resources=None))
        if value and place:
            file, _, number = place.rpartition(":")
            text = linecache.getline(file, int(number)).strip() or place
            name = f"{PurePath(file).name}:{number}"
            found[text] = name, value + (found[text][1] if text in found else 0.0)
    return found


def _of_judge(held: Json) -> Measured:
    taken: Json = held["resources"] or {}
    best: Sequence[float] | None = held["best_seconds"]
    problem = problems.find(held["problem"]) if held["problem"] in problems.NAMES else None
    shape = held["counted_shape"] or {}
    errors = [
        trial["verdict"]["max_error_u"] or 0.0 for step in held["steps"] for trial in step["trials"]
    ]
    return Measured(
        _record(
            held["file"],
            held,
            problem=held["problem"],
            shape=shape,
            layout=held["layout"],
            verdict=held["verdict"],
            counters=held["counters"],
            flops=problem.flops(shape) if problem and shape else 0,
            min_bytes=problem.min_bytes(shape) if problem and shape else 0,
            max_error_u=max(errors, default=None),
            resources={name: taken[name] for name in taken if name not in ("fraction", "limiter")},
            occupancy={"fraction": taken["fraction"]} if "fraction" in taken else None,
            time_s=best[0] if best else None,
        )
    )


def _of_explain(held: Json, path: Path) -> Measured:
    counted: Json = held["counted"] or {}
    return Measured(
        _record(
            held.get("rung", path.name),
            held,
            problem=held["problem"],
            shape=counted.get("shape", {}),
            layout=held["layout"],
            verdict="not judged",
            counters=counted.get("counters"),
            flops=counted.get("flops") or 0,
            min_bytes=(held["caches"] or {}).get("least", 0),
            resources=held["resources"],
            occupancy=held["occupancy"],
            launch=held["geometry"] if counted.get("shape") == held["shape"] else None,
        )
    )


def _of_emulate(held: Json, path: Path) -> Measured:
    record = _record(
        path.name,
        held,
        verdict=held.get("verdict", "not judged"),
        counters=held["counters"],
        launch={"grid": held["grid"], "block": held["block"]},
    )
    return Measured(record, held.get("source_lines", {}))


def _record(name: str, held: Json, **values: Any) -> Record:
    """Return a record with these values; the others are those of an emulated launch."""
    fixed: Json = {"problem": "", "shape": {}, "layout": "", "flops": 0, "min_bytes": 0}
    fixed |= {"family": "", "seed": 0, "device": "emulated", "message": "", "bound_u": 0.0}
    return Record(rung=name, arch=held.get("arch", ""), **(fixed | values))
