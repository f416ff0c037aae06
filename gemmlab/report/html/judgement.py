"""The page of a judgement: the steps, the errors of every launch, the timed runs, and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmlab.core.figures import digits, seconds
from gemmlab.errors import InputError
from gemmlab.report.html import charts
from gemmlab.report.html.page import Page, Part, Section, facts, table
from gemmlab.report.judgement import COUNTERS, sizes, speed, trial_name

Json = Mapping[str, Any]
_FURTHER = "To see findings at their lines: gemmlab report {file}"


def is_judgement(held: Json) -> bool:
    """Whether the content of a JSON file is what `gemmlab judge --json` prints."""
    return {"steps", "verdict", "seed"} <= held.keys()


def page(found: Json) -> Page:
    """Return the page of what `gemmlab judge --json` printed.

    Raises InputError for the judgement of another version.
    """
    try:
        return _page(found)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"this judgement was written by another version: {error!r}") from error


def _page(found: Json) -> Page:
    numbers = {"verdict": found["verdict"]}
    if found["precision"]:
        numbers["precision class"] = found["precision"]
    if found["score"] is not None:
        numbers["score"] = digits(found["score"])
    trials = [(step["name"], trial) for step in found["steps"] for trial in step["trials"]]
    numbers["launches compared"] = str(len(trials))
    steps = [
        [step["name"], step["status"], seconds(step["seconds"]), step["message"]]
        for step in found["steps"]
    ]
    parts = [table("", "", ["step", "status", "time", "result"], steps)]
    further = "" if found["verdict"] == "pass" else _FURTHER.format(file=found["file"])
    sections = [Section("Steps", further, parts)]
    if found["advice"]:
        listed = [[str(number), text] for number, text in enumerate(found["advice"], 1)]
        sections.append(
            Section("What to improve first", "", [table("", "", ["", "advice"], listed)])
        )
    if found["runs"]:
        sections.append(Section("Timed runs", "", _runs(found["runs"])))
    if trials:
        sections.append(Section("Errors", "", _errors(trials)))
    if found["counters"]:
        at = sizes(found["counted_shape"] or {})
        counted = {
            name: f"{number:,}"
            for name, counters in COUNTERS.items()
            if (number := sum(found["counters"].get(counter, 0) for counter in counters))
        }
        sections.append(Section(f"Counted by the emulator at {at}", "", [facts(counted)]))
    about = [found["problem"], f"{found['layout']} layout", f"seed {found['seed']}", found["arch"]]
    return Page(f"{found['file']}, judged", about, numbers, sections)


def _errors(trials: Sequence[tuple[str, Json]]) -> list[Part]:
    rows = [
        {
            "launch": f"{step}, {trial_name(trial)}",
            "error, u": trial["verdict"]["max_error_u"],
            "bound, u": trial["verdict"]["bound_u"],
            "status": trial["verdict"]["status"],
            charts.LABEL: f"{digits(trial['verdict']['max_error_u'])} "
            f"of {digits(trial['verdict']['bound_u'])}",
        }
        for step, trial in trials
        if trial["verdict"]["max_error_u"] is not None
    ]
    parts = []
    if any(row["error, u"] for row in rows):
        caption = (
            "The largest error of each launch against float64, in units of u = 2⁻²⁴ times the sum "
            "of the terms' magnitudes, and the bound of its size."
        )
        parts.append(charts.bars("Errors", caption, rows, value="error, u", name="launch"))
    wrong = [
        [
            f"{step}, {trial_name(trial)}",
            str(one["index"]),
            _value(one["got"]),
            _value(one["expected"]),
        ]
        for step, trial in trials
        for one in trial["verdict"]["first"]
    ]
    if wrong:
        parts.append(table("Wrong elements", "", ["launch", "index", "got", "expected"], wrong))
    cells = [
        [f"{step}, {trial_name(trial)}", trial["verdict"]["status"], trial["verdict"]["message"]]
        for step, trial in trials
    ]
    parts.append(table("Every launch", "", ["launch", "verdict", "result"], cells))
    return parts


def _value(number: float | None) -> str:
    return "not finite" if number is None else f"{number:.9g}"


def _runs(runs: Sequence[Json]) -> list[Part]:
    """Return bars of each timed run: the kernel's, and the baseline's of the same run."""
    own = [run for run in runs if run["baseline"] and run["kernel"] != run["baseline"]["kernel"]]
    unit = "TFLOPS" if own and own[0]["flops"] else "GB/s"
    rows = []
    for number, run in enumerate(own, 1):
        for name, time_s in (
            ("kernel", run["gpu_median_s"]),
            (run["baseline"]["kernel"], run["baseline"]["gpu_median_s"]),
        ):
            rate = speed(run, time_s)
            rows.append(
                {
                    "run": f"run {number}: {name}",
                    unit: rate,
                    "time": seconds(time_s),
                    "by": "kernel" if name == "kernel" else "baseline",
                    charts.LABEL: f"{digits(rate)} · {seconds(time_s)}",
                }
            )
    if not rows:
        return []
    return [
        charts.bars(
            f"Speed at {sizes(own[0]['shape'])}",
            "Beside a bar: the rate, and the median of the run's cold times.",
            rows,
            value=unit,
            name="run",
            kinds=("by", ("kernel", "baseline")),
        )
    ]
