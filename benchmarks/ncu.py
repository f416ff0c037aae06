"""Nsight Compute: the counters of a command's launches."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Collection, Sequence

from benchmarks.children import ROOT

KERNEL = "Kernel Name"


def run(*words: str) -> str:
    done = subprocess.run(["ncu", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def version() -> str:
    return run("--version").split("Version ")[1].split()[0]


def known() -> set[str]:
    """The names of counters on this GPU, without their suffix."""
    lines = run("--query-metrics").splitlines()
    return {line.split()[0] for line in lines if line.strip()}


def read(
    command: Sequence[str], counters: Collection[str], *options: str
) -> list[tuple[str, dict[str, int]]]:
    """The kernel and the counters of each launch, in order. Clocks are not locked."""
    text = run(
        *("--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"),
        *options,
        *("--metrics", ",".join(counters), *command),
    )
    return parsed(text, counters)


def parsed(text: str, counters: Collection[str]) -> list[tuple[str, dict[str, int]]]:
    """Launches in what Nsight Compute prints: CSV among other lines; units in the first row."""
    table = [line for line in text.splitlines() if line.startswith('"')]
    _units, *rows = csv.DictReader(table)
    return [
        (row[KERNEL], {name: int(float(row[name].replace(",", ""))) for name in counters})
        for row in rows
    ]
