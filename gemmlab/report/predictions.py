"""Predicted times beside measured ones: the error of the model, and where it is largest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import mean
from typing import Any

import numpy as np

Row = dict[str, Any]  # of benchmarks/predicted/*.json

NOTABLE = 0.05  # the order of two kernels counts if their measured times differ by more
_NEAR = 10  # points
_WORDS = {  # Nsight Compute's metrics that are named otherwise in its tables
    "imc_miss": "immediate constant",
    "mio_throttle": "MIO throttle",
    "lg_throttle": "LG throttle",
}
QUANTILES = (0.1, 0.9)  # of the measured times that an interval contains


def error(row: Row) -> float:
    """The prediction's error, relative to the measured time."""
    return float(row["predicted_s"] / row["measured_s"] - 1)


def interval(rows: Sequence[Row]) -> list[float]:
    """Return the range of measured over predicted times for four of five held-out records."""
    ratios = [r["measured_s"] / r["predicted_s"] for r in _predicted(rows) if not r["fitted"]]
    return [round(float(x), 3) for x in np.quantile(ratios, QUANTILES)]


def summary(rows: Sequence[Row]) -> str:
    """The errors of all records, as a table."""
    lines = [
        "| records | number | mean error | median | largest |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, some in (
        ("held out", [r for r in _predicted(rows) if not r["fitted"]]),
        ("may be fitted to", [r for r in _predicted(rows) if r["fitted"]]),
    ):
        if not some:
            continue
        errors = [abs(error(row)) for row in some]
        worst = max(some, key=lambda row: abs(error(row)))
        lines.append(
            f"| {name} | {len(some)} | {_percent(mean(errors))} | "
            f"{_percent(float(np.median(errors)))} | {error(worst):+.0%}: {_title(worst)} |"
        )
    refused = [row for row in rows if "predicted_s" not in row]
    if refused:
        lines.append(f"| refused | {len(refused)} | – | – | – |")
    return "\n".join(lines)


def orders(rows: Sequence[Row]) -> str:
    """How many pairs of kernels of one case are in the right order, as a sentence."""
    cases: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in _predicted(rows):
        case = (row["problem"], row["layout"], row["family"], *row["shape"].values())
        cases[case].append(row)
    pairs = [pair for some in cases.values() for pair in combinations(some, 2)]
    notable = [
        (a, b)
        for a, b in pairs
        if max(a["measured_s"], b["measured_s"])
        > (1 + NOTABLE) * min(a["measured_s"], b["measured_s"])
    ]
    right = sum(
        (a["measured_s"] < b["measured_s"]) == (a["predicted_s"] < b["predicted_s"])
        for a, b in notable
    )
    return (
        f"Of {len(notable):,} pairs of kernels at the same size whose measured times differ by "
        f"more than {NOTABLE:.0%}, {right:,} are in the right order: {right / len(notable):.1%}."
    )


def by(rows: Sequence[Row], what: str, key: Callable[[Row], str]) -> str:
    """The errors of groups of records, as a table in the order of their first records."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in _predicted(rows):
        groups[key(row)].append(row)
    lines = [f"| {what} | set | records | mean error | from | to |", "| --- " * 6 + "|"]
    for name, some in groups.items():
        errors = [error(row) for row in some]
        sets = {"fitted to" if row["fitted"] else "held out" for row in some}
        held = sets.pop() if len(sets) == 1 else "both"
        lines.append(
            f"| {name} | {held} | {len(some)} | {_percent(mean(map(abs, errors)))} | "
            f"{min(errors):+.0%} | {max(errors):+.0%} |"
        )
    return "\n".join(lines)


def by_kernel(rows: Sequence[Row]) -> str:
    """The errors of each kernel."""
    return by(rows, "kernel", lambda row: f"`{row['problem']}:{row['kernel']}`")


def by_size(rows: Sequence[Row]) -> str:
    """The errors of the GEMM ladder at each size."""
    products = [row for row in rows if row["problem"] == "gemm"]
    return by(products, "size", lambda row: f"{_size(row)}, {row['layout']}")


def worst(rows: Sequence[Row], count: int = 8) -> str:
    """The records with the largest errors, as a table."""
    some = sorted(_predicted(rows), key=lambda row: -abs(error(row)))[:count]
    lines = ["| record | measured | predicted | error |", "| --- " * 4 + "|"]
    lines += [
        f"| {_title(row)} | {_micro(row['measured_s'])} | {_micro(row['predicted_s'])} | "
        f"{error(row):+.0%} |"
        for row in some
    ]
    return "\n".join(lines)


def others(rows: Sequence[Row]) -> str:
    """Kernels from which nothing was chosen: first and present predictions, as a table.

    Later rounds of kernels were predicted after the errors of the earlier ones were known.
    """
    lines = ["| kernel | size | measured | first | error | now | error |", "| --- " * 7 + "|"]
    errors: dict[int, list[tuple[float, float]]] = {}
    for row in (row for row in rows if "measured_s" in row):
        first, now = (row[key] / row["measured_s"] - 1 for key in ("first_s", "predicted_s"))
        errors.setdefault(row.get("round", 1), []).append((abs(first), abs(now)))
        times = (_micro(row[key]) for key in ("measured_s", "first_s", "predicted_s"))
        measured, before, after = times
        lines.append(
            f"| `{row['kernel']}` | {row['size']} | {measured} | {before} | {first:+.0%} | {after} "
            f"| {now:+.0%} |"
        )
    for number, found in errors.items():
        firsts, nows = zip(*found, strict=True)
        name = "mean" if len(errors) == 1 else f"mean of round {number}"
        lines.append(f"| {name} | | | | {_percent(mean(firsts))} | | {_percent(mean(nows))} |")
    waiting = sum("measured_s" not in row for row in rows)
    if waiting:
        lines += ["", f"{waiting} more times are predicted and not measured yet."]
    return "\n".join(lines)


def one_warp(rows: Sequence[Row]) -> str:
    """The moments of a warp that `timing.moments` followed, as a table."""
    lines = ["| cycle | instruction | source | before, in cycles | scoreboards | registers |"]
    lines += ["| --- " * 6 + "|"]
    for row in rows:
        waited = ", ".join(f"{reason} {cycles:g}" for reason, cycles in row["waited"].items())
        needs = ", ".join(map(str, row["waits"]))
        even, odd = row["reads"]
        read = f"{even} even, {odd} odd" if even or odd else ""
        lines.append(
            f"| {row['cycle']:g} | `{row['instruction']}` | `{row['line']}` | {waited} | {needs} "
            f"| {read} |"
        )
    return "\n".join(lines)


def differences(rows: Sequence[Row], profiled: Sequence[Row]) -> dict[str, tuple[float, str]]:
    """Return, by kernel, the largest difference of a stall's share from Nsight Compute's, in
    points, and the stall."""
    keys = ("problem", "layout", "shape")
    found = {}
    for kernel in profiled:
        same = (
            row
            for row in _predicted(rows)
            if row["kernel"] == kernel["rung"] and all(row[k] == kernel[k] for k in keys)
        )
        row = next(same, None)
        if row is None:
            continue
        total = sum(kernel["reasons"].values())
        names = {k: _WORDS.get(k, k.replace("_", " ")) for k in kernel["reasons"]}
        theirs = {names[k]: x / total for k, x in kernel["reasons"].items()}
        ours = row["stalls"]
        points = {k: 100 * (ours.get(k, 0) - theirs.get(k, 0)) for k in {*ours, *theirs}}
        worst = max(points, key=lambda k: abs(points[k]))
        found[f"`{row['problem']}:{row['kernel']}`"] = points[worst], worst
    return found


def stalls(rows: Sequence[Row], profiled: Sequence[Row]) -> str:
    """The differences from Nsight Compute, as a table, and how many are within ten points."""
    found = sorted(differences(rows, profiled).items(), key=lambda item: abs(item[1][0]))
    near = sum(abs(points) <= _NEAR for _, (points, _) in found)
    lines = [
        f"Of {len(found)} kernels, {near} have every share within {_NEAR} points.",
        "",
        "| kernel | largest difference | of |",
        "| --- " * 3 + "|",
    ]
    lines += [f"| {name} | {points:+.0f} points | {stall} |" for name, (points, stall) in found]
    return "\n".join(lines)


def _predicted(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if "predicted_s" in row]


def _title(row: Row) -> str:
    return f"`{row['problem']}:{row['kernel']}` {_size(row)}, {row['layout']}"


def _size(row: Row) -> str:
    return "×".join(map(str, row["shape"].values()))


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs"


def _percent(x: float) -> str:
    return f"{100 * x:.1f} %"
