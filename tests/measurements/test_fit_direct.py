"""`scripts/fit-direct` fits the constants of predicted times to a record."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from gemmlab.linalg.arch.sm90 import SM90

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_constants_are_fitted_to_a_record(tmp_path):
    """A few products whose times on streamed routes are doubled, so that their constants grow."""
    record = json.loads((ROOT / "benchmarks/h200/direct.json").read_text())
    for part in ("routes", "drawn", "vectors"):
        record[part] = [x for x in record[part] if x["transposed"] == "nn" and x["k"] > 512]
        record[part] = record[part][:: len(record[part]) // 20 + 1]
        for row in record[part]:
            for route in row.get("fp16x3s", ()):
                route[1] *= 2
    (tmp_path / "direct.json").write_text(json.dumps(record))
    command = [sys.executable, ROOT / "scripts/fit-direct", tmp_path / "direct.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tables = dict(re.findall(r"^(\w+)=\(\n(.*?)^\),$", done.stdout, re.M | re.S))
    for table in ("direct", "streamed", "fma", "gemv", "sgemm"):
        assert tables[table].count("Tile(") == len(getattr(SM90, table)), table
    found = {x: float(y) for x, y in re.findall(r"^(\w+)=([\d.e+-]+),$", done.stdout, re.M)}
    assert {*found} <= {x.name for x in fields(SM90)} and len(found) > 40
    assert found["streamed_start"] > 1.3 * SM90.streamed_start
    off = [float(x) for x in re.findall(r": off by ([\d.]+) % on weighted average", done.stdout)]
    assert len(off) == 5 and max(off) < 30
    shares = re.findall(r", margin 1.0: ([\d.]+) × SGEMM, ([\d.]+) with the best", done.stdout)
    assert len(shares) == 4 and all(0.9 < float(x) <= float(best) for x, best in shares)
