"""Steps of a climb taken by a second process: the same records, also if that process fails."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gemmlab import problems
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Rung
from gemmlab.lab import climb, from_last
from gemmlab.lab.from_last import FromLast
from gemmlab.lab.records import Record

ARCH, GEMM = "sm_90a", problems.find("gemm")
CASE = GEMM.case({"m": 40, "n": 24, "k": 16}, "row", "normal", 3)
NAMES = ("naive", "uncoalesced", "shared", "shared-ilp2", "tile-1d", "tile-2d-4x4")
RUNGS = [ladder.find(name) for name in NAMES]
pytestmark = pytest.mark.slow  # processes that compile


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    return tmp_path


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[FromLast]:
    """What climbs shared, in order."""
    made: list[FromLast] = []

    class Noted(FromLast):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(climb, "FromLast", Noted)
    return made


def climbed(rungs: Sequence[Rung] = RUNGS) -> list[Record]:
    """The records of a climb, without what differs between runs."""
    device = EmulatedDevice(ARCH)
    return [replace(x, host_s=None) for x in climb.climb(GEMM, CASE, rungs, device)]


def test_records_do_not_tell_which_process_took_the_step(shared: list[FromLast]) -> None:
    found = climbed()
    assert shared[0]._records.keys() <= set(range(1, len(RUNGS))) and shared[0]._records
    again = climbed()  # all is compiled: by this process alone
    assert shared[1]._second is None
    assert found == again and [x.rung for x in found] == list(NAMES)
    assert {x.verdict for x in found} == {"pass"} and all(x.counters for x in found)


def test_steps_of_a_process_that_was_killed_are_taken_here(shared: list[FromLast]) -> None:
    steps = climb.climb(GEMM, CASE, RUNGS, EmulatedDevice(ARCH))
    assert next(steps).verdict == "pass"
    second = shared[0]._second
    assert second is not None
    while not (shared[0]._folder / str(len(RUNGS) - 1)).exists():
        pass
    second.process.send_signal(signal.SIGKILL)
    assert [record.verdict for record in steps] == ["pass"] * (len(RUNGS) - 1)


def broken_package(folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "sitecustomize.py").write_text("import os; os._exit(1)")
    patch.setenv("PYTHONPATH", str(folder))


def no_python(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "executable", str(folder / "python"))


@pytest.mark.parametrize("trouble", [broken_package, no_python])
def test_without_the_second_process_nothing_changes(
    own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    trouble(own_cache, monkeypatch)
    assert {record.verdict for record in climbed()} == {"pass"}


@pytest.mark.parametrize(
    "rungs",
    [
        RUNGS[: from_last.WORTH_STARTING],
        [*RUNGS[:-1], replace(RUNGS[-1], change="not the ladder's")],
        [*RUNGS[:2], *(replace(rung, requires=lambda *_: "never") for rung in RUNGS[2:])],
    ],
    ids=["few", "changed", "another shape"],
)
def test_no_process_is_started_for_nothing(rungs: list[Rung], shared: list[FromLast]) -> None:
    climbed(rungs)
    assert shared[0]._second is None


def test_one_processor_takes_all_steps(
    shared: list[FromLast], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    climbed()
    assert shared[0]._second is None


def test_its_end_ends_the_process(shared: list[FromLast]) -> None:
    steps = climb.climb(GEMM, CASE, RUNGS, EmulatedDevice(ARCH))
    next(steps)
    assert isinstance(steps, Generator)
    steps.close()
    second = shared[0]._second
    assert second is not None and second.process.returncode is not None
    assert not shared[0]._folder.exists()
