"""The plug-in for pytest, on kernels of a user's project."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import gemmlab
from gemmlab.testing import (
    Counters,
    Snapshot,
    assert_no_findings,
    assert_no_races,
    difference,
    gpu_counters,
)

COPY = """\
//! gemmlab args=x:f32[n],y:f32[n],n n=4096 block=256 grid=ceil_div(n,256)
extern "C" __global__ void copy(const float* x, float* y, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i];
}
"""
SHIFT = """\
//! gemmlab args=x:f32[64] block=64 grid=1
extern "C" __global__ void shift(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = s[(threadIdx.x + 1) % 64];
}
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "kernel.cu"
        path.write_text(text)
        return path

    return write


def test_counters_of_a_file_text_and_rung(file, gpu_snapshot):
    found = gpu_counters(file(COPY), "n=1000")
    assert (found.load_sectors, found.store_sectors, found.sectors) == (125, 125, 250)
    assert found.requests == 64 and found.bank_conflicts == 0 and found.instructions > 0
    arrays = [np.zeros(1000, np.float32) for _ in range(2)]
    same = gpu_counters(COPY, grid=4, block=256, args=[*arrays, 1000])
    assert dict(same) == dict(found) and "sectors" in repr(same)
    again = gpu_counters(gemmlab.load(COPY), grid=4, block=256, args=[*arrays, 1000])
    assert dict(again) == dict(found)
    assert gpu_counters("transpose:shared", "m=64", "n=64").bank_conflicts > 0
    gpu_snapshot(found)
    gpu_snapshot(gpu_counters("padded", "m=128", "n=128", "k=8"), "padded")


def test_a_race_is_an_assertion_with_its_lines(file):
    assert_no_races(file(COPY))
    assert_no_findings(file(COPY))
    with pytest.raises(AssertionError, match=r"(?s)s\[1\] at line 5.*__syncthreads.*after line 4"):
        assert_no_races(file(SHIFT))


def test_a_snapshot_is_written_compared_and_accepted(tmp_path):
    path = tmp_path / "counters" / "x.json"
    Snapshot(path, update=False)({"loads": 4096, "zero": 0})
    assert json.loads(path.read_text()) == {"1": {"loads": 4096}}
    Snapshot(path, update=False)(Counters({"loads": 4096}))
    with pytest.raises(AssertionError) as told:
        Snapshot(path, update=False)({"loads": 8192, "stores": 3})
    lines = str(told.value).splitlines()
    assert lines[0].split() == ["counter", "stored", "now"]
    assert lines[1].split() == ["stores", "0", "3", "new"]
    assert lines[2].split() == ["loads", "4,096", "8,192", "×2"]
    assert "--update-counters" in lines[3]
    Snapshot(path, update=True)({"loads": 8192})
    Snapshot(path, update=False)({"loads": 8192})
    assert difference({"a": 1}, {"a": 1}) == ""


PROJECT = f"""
import numpy as np
from gemmlab.testing import gpu_counters

def test_sectors(gpu_snapshot):
    args = [np.zeros(32, np.float32), np.zeros(32, np.float32), 32]
    found = gpu_counters({COPY!r}, grid=1, block=32, args=args)
    assert found.sectors <= 8
    gpu_snapshot(found)
"""


@pytest.mark.slow
def test_the_plug_in_serves_a_project_of_its_own(tmp_path):
    def run(*options):
        command = [sys.executable, "-m", "pytest", "-p", "gemmlab.testing", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    (tmp_path / "test_project.py").write_text(PROJECT)
    assert run().returncode == 0
    [path] = (tmp_path / "__counters__").iterdir()
    written = path.read_text()
    path.write_text(written.replace(": 4,", ": 5,", 1))
    told = run()
    assert told.returncode == 1 and re.search(r"counter +stored +now", told.stdout), told.stdout
    assert run("--update-counters").returncode == 0
    assert path.read_text() == written
