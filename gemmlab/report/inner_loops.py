"""Markdown tables of inner loops: what the lint counts in them, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gemmlab.cubin.lint import Lint
from gemmlab.lab.bench.record import Record
from gemmlab.lab.explain.stalls import Stalls
from gemmlab.report.markdown import table

_READ = ("FMA pipe busy", "dispatch stalls per issue", "short scoreboard")  # by Nsight Compute


def rungs(
    counted: Mapping[str, Lint],
    readings: Sequence[tuple[str, str, Stalls]],
    records: Sequence[Record],
    peak: float,
) -> str:
    """Return a row per rung of GEMM: what the lint counts in its inner loop, and beside it what
    Nsight Compute found its warps to wait for, in stalls per instruction that was issued.

    peak: of the GPU, in TFLOPS.
    """
    waits = {rung: found.reasons for problem, rung, found in readings if problem == "gemm"}
    rates = {record.kernel: record.tflops for record in records}
    rows = []
    added, stalled = list[float](), list[float]()
    for name, found in counted.items():
        issued, rate = waits[name]["selected"], rates[name]
        added.append((found.cycles - found.instructions) / found.instructions)
        stalled.append(waits[name].get("dispatch stall", 0) / issued)
        rows.append(
            [
                f"`{name}`",
                f"{found.ffmas} of {found.instructions}",
                *(f"{peak * share:.1f}" for share in (found.issue_bound, found.register_bound)),
                f"{rate:.1f}" if rate else "",
                f"{added[-1]:.2f}",
                f"{stalled[-1]:.2f}",
                f"{waits[name].get('short scoreboard', 0) / issued:.2f}",
            ]
        )
    headings = ["rung", "FFMAs of instructions", "issue bound", "register bound", "measured"]
    headings += ["cycles added", "dispatch stalls", "short scoreboard"]
    first, second = (np.argsort(np.argsort(x)).astype(float) for x in (added, stalled))
    alike = np.corrcoef(first, second)[0, 1]
    return f"{table(headings, rows)}\n\nRank correlation of the two: {alike:.2f}."


def orders(counted: Mapping[str, Lint], peak: float) -> str:
    """Return a row per loop: what the order of its FFMAs costs. peak: of the GPU, in TFLOPS."""
    rows = [
        [
            name,
            f"{found.fresh} of {found.ffmas:,}",
            f"{found.alike}",
            f"{peak * found.register_bound:.1f}",
        ]
        for name, found in counted.items()
    ]
    headings = ["layout", "FFMAs that find no operand", "results in the bank of the one before"]
    return table([*headings, "register bound, TFLOPS"], rows)


def variants(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a row per kernel of which Nsight Compute read the stalls."""
    headings = ["kernel", _READ[0], "issue slots used", *_READ[1:]]
    cells = [
        [
            "cuBLAS" if row["kernel"] == "cublas" else row["kernel"],
            f"{row['fma_pipe_percent']:.1f} %",
            f"{row['issue_slots_percent']:.1f} %",
            *_stalls(row),
        ]
        for row in rows
    ]
    return table(headings, cells)


def published(rows: Sequence[Mapping[str, Any]], peak: float) -> str:
    """Return a row per published kernel, with the lint's bounds; cuBLAS has its speed alone.

    peak: of the GPU, in TFLOPS.
    """
    cells = []
    for row in rows:
        rate = f"{row['tflops']:.1f}"
        if "source" not in row:
            cells.append([row["kernel"], "", "", "", rate, "", "", ""])
            continue
        ffmas = row["ffmas"]
        bounds = (f"{peak * ffmas / row[key]:.1f}" for key in ("instructions", "lint_cycles"))
        link = f"[{row['source'].removeprefix('https://github.com/')}]({row['source']})"
        cells.append(
            [
                f"{link}, {row['kernel']}",
                f"{ffmas} of {row['instructions']}",
                *bounds,
                rate,
                f"{row['fma_pipe_percent']:.1f} %",
                *_stalls(row),
            ]
        )
    headings = ["kernel", "FFMAs of instructions", "issue bound", "register bound", "measured"]
    return table([*headings, *_READ], cells)


def _stalls(row: Mapping[str, Any]) -> list[str]:
    keys = ("dispatch_stall_per_issue", "short_scoreboard_per_issue")
    return [f"{row[key]:.2f}" for key in keys]
