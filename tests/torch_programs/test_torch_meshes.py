"""Products of DTensors on meshes of 2, 3 and 4 processes with gloo: the checks of mesh_ranks.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from gemmlab.distributed.links import load  # noqa: E402

RANKS = Path(__file__).parent / "mesh_ranks.py"


def test_measuring_starts_processes_and_writes_both_files(tmp_path: Path) -> None:
    record, links = tmp_path / "record.json", tmp_path / "links.json"
    options = ["--device", "cpu", "--processes", "1", "--sizes", "32", "--no-programs"]
    command = [sys.executable, "-m", "gemmlab", "distributed", "measure", *options]
    command += ["-o", str(record), "--links", str(links)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 × CPU" in done.stdout and "gemmlab, overlapped" in done.stdout
    assert json.loads(record.read_text())["rows"][0]["efficiency"] == 1
    assert load(links).name


def test_products_on_meshes() -> None:
    command = [sys.executable, str(RANKS), "cpu", "2", "3", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    worlds = json.loads(done.stdout)
    assert worlds.pop("example") == "process 0: (1024, 1024) of (1024, 1024)\n"
    assert set(worlds) == {"2", "3", "4"} and all(len(checks) > 7 for checks in worlds.values())
    wrong = [f"{size} processes, {name}: {text}" for size, checks in worlds.items()
             for name, text in checks.items() if text]  # fmt: skip
    assert not wrong, "\n\n".join(wrong)
