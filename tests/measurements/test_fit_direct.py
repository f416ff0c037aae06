"""`scripts/fit-direct` fits the constants of predicted times to a record."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning.times import STREAMED

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_constants_are_fitted_to_a_record(tmp_path):
    """Times of `fp16x3s` are doubled, so the constant time of its products must grow.

    The products, a few of one layout, include some with as many rows as columns.
    """
    record = json.loads((ROOT / "benchmarks/h200/direct.json").read_text())
    for part in ("routes", "drawn", "vectors"):
        record[part] = [x for x in record[part] if x["transposed"] == "nn" and x["k"] > 512]
        record[part] = record[part][:: len(record[part]) // 20 + 1]
        for row in record[part]:
            for route in row.get(STREAMED, ()):
                route[1] *= 2
    assert any(x["m"] == x["n"] and x[STREAMED] for x in record["routes"])
    (tmp_path / "direct.json").write_text(json.dumps(record))
    command = [sys.executable, ROOT / "scripts/fit-direct", tmp_path / "direct.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
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
