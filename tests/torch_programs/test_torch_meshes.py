"""Products of DTensors on meshes of 2, 3 and 4 processes with gloo: the checks of mesh_ranks.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.slow

RANKS = Path(__file__).parent / "mesh_ranks.py"


def test_products_on_meshes() -> None:
    command = [sys.executable, str(RANKS), "2", "3", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    worlds = json.loads(done.stdout)
    assert set(worlds) == {"2", "3", "4"} and all(len(checks) > 9 for checks in worlds.values())
    wrong = [f"{size} processes, {name}: {text}" for size, checks in worlds.items()
             for name, text in checks.items() if text]  # fmt: skip
    assert not wrong, "\n\n".join(wrong)
