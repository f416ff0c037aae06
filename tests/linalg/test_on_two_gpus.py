"""Products on a GPU that is not the current one; skipped unless there are two."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from test_on_gpu import PRECISIONS, error

import gemmlab
from gemmlab.errors import ArrayError
from gemmlab.kernels.gemm.sm90.config import SCHEMES

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("there are no two GPUs", allow_module_level=True)
if torch.cuda.get_device_capability(1) != (9, 0):
    pytest.skip("the kernels are for compute capability 9.0", allow_module_level=True)

N = 1024
MOST = 8.0  # units of 2^-24: a few for SGEMM, 10^5 if zeros are read


def pair(device: int, n: int = N) -> list[Any]:
    """Return two tensors on that GPU, and the same numbers in float64 on the host."""
    rng = np.random.default_rng(device)
    values = [rng.standard_normal((n, n)).astype(np.float32) for _ in "ab"]
    return [torch.asarray(x).to(f"cuda:{device}") for x in values] + [
        x.astype(float) for x in values
    ]


@pytest.mark.parametrize("step", [1, 2], ids=["in place", "copied first"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_operands_gpu_computes(precision: str | None, step: int) -> None:
    x, y, a, b = pair(1)
    x, y, a, b = x[:, ::step], y[::step], a[:, ::step], b[::step]
    out = torch.zeros(N, N, device="cuda:1")
    with torch.cuda.device(0):
        result = gemmlab.matmul(x, y, precision=precision)
        assert gemmlab.matmul(x, y, out=out, precision=precision) is out
        assert torch.cuda.current_device() == 0
    assert result.device.index == 1 and torch.equal(result, out)
    assert error(result, a, b) <= MOST
    assert "GPU 1" in str(gemmlab.last_plan())
    if gemmlab.last_plan().tier in SCHEMES:  # which count what they find
        assert gemmlab.last_plan().report().not_finite == 0


def test_gpus_take_turns_and_serve_threads() -> None:
    """Each GPU has its own workspaces, kernels and cuBLAS handle."""
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for turn in range(8):
            device, precision = (seed + turn) % 2, PRECISIONS[(seed + turn) % len(PRECISIONS)]
            x, y, a, b = pair(device)
            found = error(gemmlab.matmul(x, y, precision=precision), a, b)
            if not found <= MOST:
                wrong.append((seed, device, precision, found))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("precision", PRECISIONS)
def test_prepared_packed_and_recorded_on_the_other_gpu(precision: str | None) -> None:
    x, y, a, b = pair(1)
    out = torch.zeros(N, N, device="cuda:1")
    with torch.cuda.device(0), gemmlab.Matmul(x, y, out=out, precision=precision) as product:
        product.plan()
        product.execute()
        assert error(out, a, b) <= MOST
    if precision in (None, *SCHEMES):
        with torch.cuda.device(0):
            packed = gemmlab.pack(y, side="right", precision=precision)
            assert error(gemmlab.matmul(x, packed, precision=precision), a, b) <= MOST
    with torch.cuda.device(1):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # PyTorch's own is one GPU's
            result = gemmlab.matmul(x, y, precision=precision)
    x.mul_(2)
    torch.cuda.synchronize(1)
    graph.replay()
    torch.cuda.synchronize(1)
    assert error(result, 2 * a, b) <= MOST


def test_a_stream_of_the_other_gpu_may_be_given() -> None:
    x, y, a, b = pair(1)
    stream = torch.cuda.Stream(device=1)
    torch.cuda.synchronize(1)
    result = gemmlab.matmul(x[:, ::2], y[::2], precision="fp16x3", stream=stream)
    stream.synchronize()
    assert error(result, a[:, ::2], b[::2]) <= MOST


def test_arrays_on_two_gpus_are_refused_and_nothing_is_written() -> None:
    (x, y, *_), (z, *_) = pair(0), pair(1)
    out = torch.zeros(N, N, device="cuda:1")
    for arguments, options in (((x, z), {}), ((x, y), {"out": out}), ((x, y, z), {"beta": 1})):
        with pytest.raises(ArrayError, match=r"on GPU 0 and .* on GPU 1"):
            gemmlab.matmul(*arguments, **options)
    assert not out.any()


@pytest.mark.parametrize("precision", ["fp16x3", "ieee"])
def test_cupys_arrays_on_the_other_gpu(precision: str) -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    x, y, a, b = pair(1)
    with cupy.cuda.Device(1):
        left, right = (cupy.asarray(z.cpu().numpy()) for z in (x, y))
    with cupy.cuda.Device(0):
        result = gemmlab.matmul(left, right, precision=precision)
        mixed = gemmlab.matmul(x, right, precision=precision)
        assert cupy.cuda.runtime.getDevice() == 0
    assert result.device.id == 1 and error(result, a, b) <= MOST
    assert type(mixed) is torch.Tensor and mixed.device.index == 1 and error(mixed, a, b) <= MOST
