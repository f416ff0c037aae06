"""Products on several GPUs: the checks of mesh_ranks.py with NCCL, the example, host arrays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="torch is not installed")
GPUS = torch.cuda.device_count()
if GPUS < 2:
    pytest.skip(f"meshes need two GPUs; this machine has {GPUS}", allow_module_level=True)

import gemmlab.distributed as gd  # noqa: E402

HERE = Path(__file__).parent
# Multicast objects are not needed, and some systems forbid them.
QUIET = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}


@pytest.mark.parametrize("size", [2, 4])
def test_products_on_meshes(size: int) -> None:
    if size > GPUS:
        pytest.skip(f"{size} processes need as many GPUs; this machine has {GPUS}")
    command = [sys.executable, str(HERE / "mesh_ranks.py"), "cuda", str(size)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=os.environ | QUIET
    )
    assert done.returncode == 0, done.stderr
    (checks,) = json.loads(done.stdout).values()
    assert len(checks) > 7
    wrong = [f"{name}: {text}" for name, text in checks.items() if text]
    assert not wrong, "\n\n".join(wrong)


def test_the_example_runs_on_all_gpus() -> None:
    example = HERE.parents[1] / "examples" / "torchrun.py"
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={GPUS}"]
    done = subprocess.run(
        [sys.executable, *launcher, str(example)],
        capture_output=True, text=True, timeout=120, check=False, env=os.environ | QUIET,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = -(-1024 // GPUS)
    for rank in range(GPUS):
        shard = min(rows, 1024 - rank * rows)
        assert f"process {rank}: ({shard}, 1024) of (1024, 1024)" in done.stdout


def test_host_arrays_stream_through_all_gpus() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((3000, 3000), np.float32) for _ in "ab")
    exact = a[:64].astype(float) @ b.astype(float)
    size = np.abs(a[:64]).astype(float) @ np.abs(b).astype(float)
    every = list(range(GPUS))
    found = gd.matmul(a, b, devices=every, memory=1 << 26)  # several blocks on each GPU
    assert np.max(np.abs(found[:64] - exact) / size) < 8 * 2.0**-24
    shards = gd.matmul(a, b, devices=every, sharded=True)
    assert [shard.device.index for shard in shards] == every
    whole = torch.cat([shard.cpu() for shard in shards]).numpy()
    assert np.max(np.abs(whole[:64] - exact) / size) < 8 * 2.0**-24
    np.testing.assert_allclose(whole, found, rtol=0, atol=1e-3)
