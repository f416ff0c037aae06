"""Counts of machine code against Nsight Compute's, where ptxas deviates most from the PTX."""

import json
import re
from pathlib import Path

import pytest
from cases import LAUNCHES

from gemmlab import sass

FILE = Path(__file__).parents[1] / "readings" / "machine-code.json"
PAGE = (Path(__file__).parents[2] / "docs" / "machine-code.md").read_text()
READINGS = {r["launch"]: r for r in json.loads(FILE.read_text())["readings"]}
TOTALS = ("smsp__inst_executed.sum", "smsp__thread_inst_executed.sum")

# Tolerances of launches, with the reasons; all others are equal.
OFF = {
    "binary-search": (0.002, "which of two equal branches parted a warp is not told"),
    "nested-branches": (0.003, "a hoisted load in front of a loop that some threads skip"),
    "collatz": (0.001, "hardware counts threads that no instruction executed"),
    "unrolled-unevenly": (0.02, "threads execute different numbers of iterations"),
    "mandelbrot": (0.03, "threads that divide 0 take the division's slow path"),
    "jump-table": (0.04, "the hardware's total differs from the sum over its instructions"),
    "calls": (0.04, "where threads leave a loop for its remainder is not told"),
}
# Launches that depend on values or arbitration, and what the report says about them.
UNKNOWN = {
    "float-division-rare": "assumed never called",
    "shared-float-atomics": "compare-and-swap loop; iterations not counted",
}


def counted(name):
    launch, reading = LAUNCHES[name], READINGS[name]
    artifact = launch.artifact()
    assert artifact.versions == reading["compiler"]  # which the extra "dev" pins
    return sass.analyse(artifact, launch.run()), reading["counters"]


def assert_threads_agree(machine, hardware):
    """Threads whose guard holds are the hardware's, or are not counted."""
    key = "smsp__thread_inst_executed_pred_on.sum"
    assert machine.counters.get(key, hardware[key]) == pytest.approx(hardware[key], rel=0.016)


def assert_page_shows(name, machine, hardware):
    """The page has the differences from the hardware in percent: of warps, of threads."""
    [cells] = re.findall(rf"^\| `{name}` \| (\S+)(?: %)? \| (\S+)(?: %)? \|", PAGE, re.MULTILINE)
    for cell, key in zip(cells, TOTALS, strict=True):
        off = 100 * (machine.counters[key] / hardware[key] - 1)
        shown = cell.replace("−", "-")
        digits = len(shown.partition(".")[2])
        assert shown == ("equal" if off == 0 else f"{off:+.{digits}f}"), (name, key)


def test_every_launch_was_read():
    assert READINGS.keys() == LAUNCHES.keys()


@pytest.mark.parametrize("name", sorted(LAUNCHES.keys() - OFF.keys() - UNKNOWN.keys()))
@pytest.mark.slow
def test_counts_are_the_hardwares(name):
    machine, hardware = counted(name)
    ours = {key: value for key, value in machine.counters.items() if "pred_on" not in key}
    same = ours.keys() & hardware.keys()
    assert same > set(TOTALS)
    assert {key: ours[key] for key in same} == {key: hardware[key] for key in same}
    assert_threads_agree(machine, hardware)


@pytest.mark.parametrize("name", OFF)
@pytest.mark.slow
def test_counts_are_near_the_hardwares(name):
    machine, hardware = counted(name)
    for key in TOTALS:
        assert machine.counters[key] == pytest.approx(hardware[key], rel=OFF[name][0])
    assert_threads_agree(machine, hardware)
    assert_page_shows(name, machine, hardware)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_counted_is_told(name):
    machine, hardware = counted(name)
    assert machine.counters[TOTALS[0]] < hardware[TOTALS[0]]
    assert UNKNOWN[name] in {row.what for row in machine.differences}
    assert_page_shows(name, machine, hardware)
