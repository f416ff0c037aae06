"""Rungs compiled by a second process: its cache entries, and the behaviour without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmlab.compile import cute
from gemmlab.compile.artifact import Artifact
from gemmlab.core import scratch
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Rung
from gemmlab.lab.ahead import Ahead, compile_all
from gemmlab.linalg.runtime import kernels

ARCH, SHAPE = "sm_90a", {"m": 8, "n": 8, "k": 8}
FIRST, SECOND, THIRD = (ladder.find(name) for name in ("naive", "uncoalesced", "shared"))
pytestmark = pytest.mark.slow  # processes that compile
START = """
import time
from gemmlab.lab.ahead import Ahead
from gemmlab.kernels import ladder
rungs = [ladder.find("naive"), ladder.find("async-copy")]
ahead = Ahead(rungs, dict(m=8, n=8, k=8), "sm_90a")
ahead.wait(ladder.find("naive"))
print(ahead._second.process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    return tmp_path


def is_cached(rung: Rung) -> bool:
    return cute.is_cached(rung, ARCH)


def test_the_second_process_compiles_what_comes_after_the_first_rung() -> None:
    with Ahead([FIRST, SECOND, THIRD], SHAPE, ARCH) as ahead:
        ahead.wait(FIRST)
        assert ahead._second is not None and not is_cached(FIRST)
        ahead._second.process.wait()
        ahead.wait(SECOND)
        assert is_cached(SECOND) and is_cached(THIRD) and not is_cached(FIRST)
    assert cute.compile_rung(SECOND, ARCH).origin == "uncoalesced"


def test_a_rung_that_is_being_compiled_is_waited_for() -> None:
    with Ahead([FIRST, SECOND, THIRD], SHAPE, ARCH) as ahead:
        ahead.wait(FIRST)
        while ahead._compiling != "uncoalesced":
            ahead._listen(None)
        ahead.wait(SECOND)
        assert is_cached(SECOND)


def test_all_kernels_of_a_rung_are_compiled(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    compiled = []

    def compile_kernel(*args: Any) -> Artifact:
        compiled.append(args[4])
        return Artifact(args[4], "", ARCH, ())

    monkeypatch.setattr(cute, "compile_kernel", compile_kernel)
    kernels.artifact.cache_clear()
    request.addfinalizer(kernels.artifact.cache_clear)
    compile_all(ladder.find("tensor-core"), SHAPE, ARCH)
    names = ("pack_k_major", "pack_mn_major", "repair")
    assert sorted(compiled) == ["gemm_tensor_core_row", *(f"matmul_{name}" for name in names)]


def broken_compiler(folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "cutlass.py").write_text("raise ImportError('broken')")
    (folder / "sitecustomize.py").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})")
    patch.setenv("PYTHONPATH", str(folder))


def no_python(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "executable", str(folder / "python"))


def no_cache(folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "file").touch()
    patch.setenv("GEMMLAB_CACHE", str(folder / "file" / "below"))


def one_processor(_folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "sched_getaffinity", lambda pid: {0})


@pytest.mark.parametrize("trouble", [broken_compiler, no_python, no_cache, one_processor])
def test_without_the_second_process_nothing_changes(
    own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    trouble(own_cache, monkeypatch)
    with Ahead([FIRST, SECOND], SHAPE, ARCH) as ahead:
        ahead.wait(FIRST)
        assert (ahead._second is not None) == (trouble is broken_compiler)
        if ahead._second is not None:
            ahead._second.process.wait()
        ahead.wait(SECOND)
        assert cute.compile_rung(SECOND, ARCH).origin == "uncoalesced"


@pytest.mark.parametrize(
    "rungs",
    [
        [FIRST],
        [FIRST, replace(SECOND, change="not the ladder's")],
        [FIRST, replace(SECOND, name="unknown")],
        [FIRST, replace(ladder.find("fp16x3"), arch="sm_100a")],
        [FIRST, replace(SECOND, requires=lambda config, shape: "never")],
    ],
    ids=["the last", "changed", "unknown", "another architecture", "another shape"],
)
def test_no_process_is_started_for_nothing(rungs: list[Rung]) -> None:
    with Ahead(rungs, SHAPE, ARCH) as ahead:
        ahead.wait(FIRST)
        assert ahead._second is None


def test_no_process_is_started_where_all_is_cached() -> None:
    for rung in (FIRST, SECOND):
        cute.compile_rung(rung, ARCH)
    with Ahead([FIRST, SECOND], SHAPE, ARCH) as ahead:
        for rung in (FIRST, SECOND):
            ahead.wait(rung)
            assert ahead._second is None


def test_its_end_ends_the_process_and_leaves_no_folder(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(own_cache))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with Ahead([FIRST, ladder.find("async-copy")], SHAPE, ARCH) as ahead:
        ahead.wait(FIRST)
        while not list(own_cache.glob(f"{scratch.PREFIX}*")):  # it is compiling
            time.sleep(0.005)
    assert ahead._second is not None and ahead._second.process.returncode == -signal.SIGKILL
    assert not list(own_cache.glob(f"{scratch.PREFIX}*"))


def test_a_killed_parent_takes_the_process_along_and_ctrl_c_does_not_reach_it() -> None:
    with subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        process = Path("/proc") / running.stdout.readline().decode().strip()
        blocked = (process / "status").read_text().split("SigBlk:")[1].split()[0]
        assert int(blocked, 16) >> (signal.SIGINT - 1) & 1
        running.kill()
    stop = time.monotonic() + 20
    while command_of(process):
        assert time.monotonic() < stop
        time.sleep(0.01)


def command_of(process: Path) -> bytes:
    """Empty for a process that has exited."""
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
