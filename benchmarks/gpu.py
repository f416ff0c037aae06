"""GPU 0 as measurements use it: random matrices, clocks, sensors. Tests use a CPU instead."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.record import Row

Work = Callable[[], Any]

_PACKAGES = ("gemmlab", "torch", "triton", "jax", "cuda-bindings")


class Gpu:
    """PyTorch on GPU 0, the launches of gemmlab's device, and the card's sensors."""

    place = "cuda"  # PyTorch's name of the device

    @cached_property
    def torch(self) -> Any:
        import torch

        return torch

    @cached_property
    def device(self) -> Any:
        """gemmlab's device, for kernels that are launched without PyTorch."""
        from gemmlab.devices import open_device

        return open_device("cuda")

    @cached_property
    def _nvml(self) -> tuple[Any, Any]:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)

    # What was measured on what

    def facts(self) -> Row:
        """The GPU, its driver, the date, and the versions of the packages that are installed."""
        query = [
            "nvidia-smi",
            "--query-gpu=name,driver_version",
            "--format=csv,noheader",
            "-i",
            "0",
        ]
        gpu, driver = subprocess.check_output(query, text=True).strip().split(", ")
        return {"gpu": gpu, "driver": driver, "date": time.strftime("%Y-%m-%d"), **versions()}

    def state(self) -> Row:
        """Current clock in MHz, power in W, temperature in °C."""
        nvml, card = self._nvml
        return {
            "sm_mhz": nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
            "power_w": nvml.nvmlDeviceGetPowerUsage(card) / 1000,
            "temperature_c": nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
        }

    def joules(self) -> float:
        """Energy that the card has used so far."""
        nvml, card = self._nvml
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(card)) / 1000

    # Inputs

    def normal(self, *shape: int, seed: int = 0) -> Any:
        return self.draw("normal", shape, seed)

    def draw(self, family: str, shape: Sequence[int], seed: int) -> Any:
        """Random float32 numbers of a family; some families have a width, as in "lognormal 2"."""
        torch, (name, _, width) = self.torch, family.partition(" ")
        generator = torch.Generator(self.place).manual_seed(seed)
        normal = torch.randn(tuple(shape), device=self.place, generator=generator)
        if name == "normal":
            return normal
        uniform = torch.rand(tuple(shape), device=self.place, generator=generator)
        return {
            "uniform": lambda: uniform,
            "plus-minus": lambda: 2 * uniform - 1,
            "half-normal": lambda: normal.abs(),
            "signed-lognormal": lambda: (uniform - 0.5) * (float(width) * normal).exp(),
            "lognormal": lambda: (float(width) * normal).exp(),
        }[name]()

    def numbers(self, array: np.ndarray) -> Any:
        """A NumPy array on the GPU."""
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.place)

    def placed(self, array: np.ndarray) -> Any:
        """A NumPy array in memory of `device`, as an argument of a launch."""
        from gemmlab.devices.device import Span

        buffer = self.device.allocate(array.nbytes)
        buffer.write(array)
        return Span(buffer, 0, array.nbytes)

    def empty(self, *shape: int) -> Any:
        return self.torch.empty(shape, device=self.place)

    def other_stream(self) -> Any:
        """A stream that is not the current one, as gemmlab takes it."""
        return self.torch.cuda.Stream().cuda_stream

    # Time

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def seconds(self, work: Work) -> float:
        """GPU time of some work."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in "be")
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def laps(self, work: Work, count: int) -> list[float]:
        """Seconds of each of `count` consecutive runs of `work`, while the host runs ahead.

        One untimed run comes first: after a pause, it also contains the time in which the host gets
        ahead.
        """
        work()
        marks = [self.torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        marks[-1].synchronize()
        return [float(a.elapsed_time(b)) / 1e3 for a, b in pairwise(marks)]

    def busy(self, work: Work) -> float:
        """Seconds for which some work keeps the GPU busy, without waits for the host."""
        profiler = self.torch.profiler
        with profiler.profile(
            activities=[profiler.ProfilerActivity.CUDA], acc_events=True
        ) as profile:
            work()
            self.synchronize()
        on_gpu = self.torch.autograd.DeviceType.CUDA
        busy, end = 0.0, 0.0
        spans = [x.time_range for x in profile.events() if x.device_type == on_gpu]
        for span in sorted(spans, key=lambda span: span.start):
            busy += max(0.0, span.end - max(end, span.start))
            end = max(end, span.end)
        return 1e-6 * busy

    def graph(self, calls: Sequence[Work]) -> Work:
        """One replay of all the calls, as a CUDA graph."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for call in calls:
                call()
        return graph.replay

    def wall(self, work: Work, wait: bool = True) -> float:
        """Seconds from an idle GPU until it is idle again, or until the host has returned."""
        self.synchronize()
        start = time.perf_counter()
        result = work()
        if wait:
            self.synchronize()
        seconds = time.perf_counter() - start
        del result  # freed after the clock has stopped
        return seconds

    @contextlib.contextmanager
    def tf32(self) -> Iterator[None]:
        """PyTorch's own products of float32 matrices are computed in TF32."""
        self.torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            self.torch.set_float32_matmul_precision("highest")

    def release(self) -> None:
        """Return memory between parts."""
        if "torch" in self.__dict__:
            import gemmlab

            self.synchronize()
            gemmlab.free_workspaces()
            self.torch.cuda.empty_cache()


def versions() -> Row:
    found = {}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
