"""Predicted times beside measured ones: the error of the model, and where it is largest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import mean
from typing import Any

import numpy as np

Row = dict[str, Any]  # of benchmarks/predicted/*.json

NOTABLE = 0.05  # difference of measured times from which on the order of two kernels counts
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
