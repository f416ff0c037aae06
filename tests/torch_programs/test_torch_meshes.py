"""Products of DTensors on meshes of 2, 3 and 4 processes with gloo: the checks of mesh_ranks.py."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

from gemmlab.cli.app import main  # noqa: E402
from gemmlab.distributed.links import HOST, load  # noqa: E402

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


def test_what_was_measured_before_processes_ended_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    link = {"name": "loopback", "start": 1e-3, "rate": 1e9, "source": "fitted"}
    machine = asdict(HOST) | {"inside": link}
    head = {"processes": 2, "device": "CPU", "pytorch": "2", "points": {}, "rows": []}

    def ends(command: list[str], **_: Any) -> Any:
        Path(command[-1]).write_text(json.dumps(head | {"machine": machine}))
        return subprocess.CompletedProcess(command, 1, "", "first\nRuntimeError: lost\nlast")

    monkeypatch.setattr(subprocess, "run", ends)
    record, links = tmp_path / "record.json", tmp_path / "links.json"
    words = ["distributed", "measure", "--device", "cpu", "-o", str(record), "--links", str(links)]
    with pytest.raises(SystemExit) as ended:
        main(words)
    output, told = capsys.readouterr()
    assert ended.value.code == 3 and "ended early: RuntimeError: lost; what" in told
    assert "2 × CPU" in output and "1ms + bytes / (1GB/s into each)" in output
    assert json.loads(record.read_text())["rows"] == [] and load(links).inside.rate == 1e9


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
