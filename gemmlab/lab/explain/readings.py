"""Nsight Compute's cache measurements for some rungs, stored beside this file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from gemmlab import problems
from gemmlab.emulator.counters.rules import SECTOR_BYTES
from gemmlab.hardware import specs

_FILE = "caches-h200.json"
CUBLAS = "cublas"  # named as a rung
_COMPANIONS = ("naive", "float4", CUBLAS)  # shown with every rung, for comparison


@dataclass(frozen=True)
class Reading:
    """One launch, with empty caches at the start."""

    device: str
    rung: str
    layout: str
    shape: dict[str, int]
    flops: int
    peak_tflops: float  # float32, by the device's data sheet
    l1_bytes: int  # loaded from L1, in whole sectors
    l1_hit: float  # hit rate, 0 to 1
    l2_bytes: int  # read by L1 from L2
    dram_bytes: int  # read from device memory
    dram_written: int
    time_s: float

    @property
    def tflops(self) -> float:
        return self.flops / self.time_s / 1e12

    @property
    def intensity(self) -> float:
        """FLOPs per byte that device memory moved."""
        return self.flops / (self.dram_bytes + self.dram_written)


def readings(problem: str, rung: str, layout: str) -> tuple[Reading, ...]:
    """Return the readings of a rung in a layout, then those of `_COMPANIONS` at the same shapes."""
    made = [r for r in all_readings(problem) if r.layout == layout]
    own = [r for r in made if r.rung == rung]
    shapes = [r.shape for r in own]
    others = [r for r in made if r.rung in _COMPANIONS and r.shape in shapes]
    return (*own, *(r for r in others if r.rung != rung))


def all_readings(problem: str) -> tuple[Reading, ...]:
    """Return the readings of all rungs of a problem, and of cuBLAS if it was read."""
    document = _document()
    made = [r for r in document["readings"] if r["problem"] == problem]
    return tuple(_reading(document["gpu"], r) for r in made)


@cache
def _document() -> dict[str, Any]:
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _reading(device: str, raw: dict[str, Any]) -> Reading:
    counters, gpu = raw["counters"], specs.gpu(device)
    assert gpu, f"{_FILE} is from a GPU that is not in the table"
    # Loads, and asynchronous copies to shared memory (LDGSTS).
    sectors, hits = (
        sum(counters.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum", 0) for op in ops)
        for ops in (("ld", "ldgsts"), ("ld_lookup_hit", "ldgsts_lookup_hit"))
    )
    return Reading(
        device,
        raw["rung"],
        raw["layout"],
        raw["shape"],
        problems.find(raw["problem"]).flops(raw["shape"]),
        gpu.fp32_tflops,
        SECTOR_BYTES * sectors,
        hits / sectors if sectors else 0.0,
        SECTOR_BYTES * counters["lts__t_sectors_srcunit_tex_op_read.sum"],
        counters["dram__bytes_read.sum"],
        counters["dram__bytes_write.sum"],
        counters["gpu__time_duration.sum"] / 1e9,
    )
