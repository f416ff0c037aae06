"""The mean clock of a GPU during a run: its multiprocessors' own counters before and after it.

The driver's sensors are read too rarely for runs of milliseconds.
"""

from __future__ import annotations

import ctypes

from cuda.bindings import driver as cu

from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.core.packages import TORCH
from gemmlab.linalg.runtime import gpus
from gemmlab.linalg.runtime.driver import call, load

with TORCH.importing():
    import torch
    from torch import Tensor

_SOURCE = """
extern "C" __global__ void count(long long* clocks) {
    unsigned multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    clocks[multiprocessor] = clock64();
}
"""
_ROUNDS = 8  # blocks per multiprocessor, so that each one has some


class Counters:
    """The counters of all multiprocessors of the current GPU."""

    def __init__(self) -> None:
        gpu = gpus.gpu(torch.cuda.current_device())
        self._count = gpu.multiprocessors
        major, minor = gpu.capability
        self._kernel = load(compile_cuda(_SOURCE, arch=f"sm_{major}{minor}"))

    def read(self) -> Tensor:
        """Enqueue a reading on the current stream; 0 where no block ran."""
        clocks = torch.zeros(self._count, dtype=torch.int64, device="cuda")
        grid, block = (_ROUNDS * self._count, 1, 1), (1, 1, 1)
        stream = torch.cuda.current_stream().cuda_stream
        arguments = (clocks.data_ptr(),), (ctypes.c_void_p,)
        call(cu.cuLaunchKernel, self._kernel, *grid, *block, 0, stream, arguments, 0)
        return clocks


def mean(first: Tensor, last: Tensor, seconds: float) -> float:
    """Return the clock between two readings in hertz, of the median multiprocessor."""
    both = (first > 0) & (last > 0)
    return float((last - first)[both].double().median()) / seconds
