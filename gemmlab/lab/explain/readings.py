"""Nsight Compute's cache measurements, stored beside this file: a file for each GPU."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from gemmlab import problems
from gemmlab.emulator.counters import pipes
from gemmlab.emulator.counters.rules import SECTOR_BYTES
from gemmlab.hardware import specs
from gemmlab.lab import peaks
from gemmlab.lab.peaks import Peak

_FILES = ("caches-h200.json", "caches-h100.json")
CUBLAS = "cublas"  # named as a rung
_COMPANIONS = ("naive", "float4", CUBLAS)  # shown with every rung, for comparison


@dataclass(frozen=True)
class Reading:
    """One product, with empty caches at the start of each of its launches."""

    device: str
    problem: str
    rung: str
    layout: str
    shape: dict[str, int]
    flops: int
    l1_bytes: int  # loaded from L1, in whole sectors, and by bulk copies
    l1_hit: float  # hit rate, 0 to 1
    l2_bytes: int  # read by L1 from L2
    dram_bytes: int  # read from device memory
    dram_written: int
    time_s: float

    @property
    def tflops(self) -> float:
        return self.flops / self.time_s / 1e12

    @property
    def peak(self) -> Peak:
        """What bounds its FLOPs, by the device's data sheet."""
        gpu = specs.gpu(self.device)
        assert gpu, f"{self.device} is not in the table of GPUs"
        products = peaks.recorded_products(self.problem, self.rung)
        if products and gpu.tensor_tflops is not None:
            return peaks.of_tensor_cores(gpu.tensor_tflops, products)
        return Peak(peaks.FP32_PEAK, gpu.fp32_tflops)

    @property
    def share(self) -> float:
        """Of the peak."""
        return self.tflops / self.peak.tflops

    @property
    def intensity(self) -> float:
        """FLOPs per byte that device memory moved."""
        return self.flops / (self.dram_bytes + self.dram_written)


def readings(problem: str, rung: str, layout: str, gpu: str) -> tuple[Reading, ...]:
    """Return a reading of a rung for each shape, then those of `_COMPANIONS` on the same GPU.

    Of several GPUs the one named `gpu` comes first: another's reading is returned for shapes that
    were not read on it.
    """
    made = [r for r in all_readings(problem) if r.layout == layout]
    product = specs.gpu(gpu)
    ordered = sorted(made, key=lambda r: specs.gpu(r.device) != product)
    own: list[Reading] = []
    for reading in ordered:
        if reading.rung == rung and reading.shape not in [r.shape for r in own]:
            own.append(reading)
    places = [(r.device, r.shape) for r in own]
    others = [r for r in ordered if r.rung in _COMPANIONS and (r.device, r.shape) in places]
    return (*own, *(r for r in others if r.rung != rung))


def largest(problem: str, rung: str, layout: str, gpu: str) -> Reading | None:
    """Return the reading of a rung's largest shape, of those that `readings` returns."""
    own = [r for r in readings(problem, rung, layout, gpu) if r.rung == rung]
    return max(own, key=lambda r: r.flops, default=None)


def all_readings(problem: str) -> tuple[Reading, ...]:
    """Return the readings of all rungs of a problem, and of cuBLAS if it was read."""
    return tuple(
        _reading(document["gpu"], one)
        for document in _documents()
        for one in document["readings"]
        if one["problem"] == problem
    )


@cache
def _documents() -> list[dict[str, Any]]:
    folder = resources.files(__package__)
    return [json.loads(folder.joinpath(name).read_text(encoding="utf-8")) for name in _FILES]


def _reading(device: str, raw: dict[str, Any]) -> Reading:
    counters = raw["counters"]
    # Loads, and asynchronous copies to shared memory (LDGSTS).
    sectors, hits = (
        sum(counters.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum", 0) for op in ops)
        for ops in (("ld", "ldgsts"), ("ld_lookup_hit", "ldgsts_lookup_hit"))
    )
    copied = counters.get(pipes.BYTES["tma_ld"], 0)
    loaded = SECTOR_BYTES * sectors + copied
    return Reading(
        device,
        raw["problem"],
        raw["rung"],
        raw["layout"],
        raw["shape"],
        problems.find(raw["problem"]).flops(raw["shape"]),
        loaded,
        SECTOR_BYTES * hits / loaded if loaded else 0.0,
        SECTOR_BYTES * counters["lts__t_sectors_srcunit_tex_op_read.sum"],
        counters["dram__bytes_read.sum"],
        counters["dram__bytes_write.sum"],
        counters["gpu__time_duration.sum"] / 1e9,
    )
