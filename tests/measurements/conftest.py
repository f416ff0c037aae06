"""The GPU of the measurements: PyTorch's CPU in its place, and the real one where there is one."""

import pytest
from cpu import Cpu, without_tensor_cores
from machine import DEVICES

from benchmarks.gpu import Gpu


@pytest.fixture(params=DEVICES)
def gpu(request, monkeypatch):
    if request.param == "cuda":
        return Gpu()
    without_tensor_cores(monkeypatch)
    return Cpu()
