"""The least time of a launch by each unit of a GPU, from counts.

A bound is not an estimate: latencies, barriers and L2 also cost time, which counts do
not show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gemmlab.hardware.specs import Gpu, architecture
from gemmlab.lab import metrics
from gemmlab.lab.records import Record

LINE_SECTORS = 4  # that L1 moves per clock


@dataclass(frozen=True)
class Bound:
    """The least time of a launch, and what sets it."""

    seconds: float
    limit: str
    limits: Mapping[str, float]  # seconds by what limits


def bound(
    counters: Mapping[str, int],
    flops: int,
    least_bytes: int,
    blocks: int,
    gpu: Gpu,
    larger: float = 1.0,
) -> Bound | None:
    """Return the bound of a launch with these counts; None without counts.

    flops: in float32; 0 if they are unknown or those of tensor cores. least_bytes: each input read
    once, each output written once. larger: the work of the launch in question over that of the
    counted one. `counters` are of the counted launch; `flops`, `least_bytes` and `blocks` are of
    the one in question.
    """
    found = limits_s(counters, flops, least_bytes, blocks, gpu, larger)
    if not found:
        return None
    limit = max(found, key=lambda name: found[name])
    return Bound(found[limit], limit, found)


def limits_s(
    counters: Mapping[str, int],
    flops: int,
    least_bytes: int,
    blocks: int,
    gpu: Gpu,
    larger: float = 1.0,
) -> dict[str, float]:
    """Return the seconds by what limits; as for `bound`.

    Work per multiprocessor is that of the one with the most blocks.
    """
    issued = counters.get(metrics.MACHINE_INSTRUCTIONS, counters.get(metrics.PTX_INSTRUCTIONS))
    if issued is None:
        return {}
    uneven = math.ceil(blocks / gpu.sms) * gpu.sms / blocks if blocks else 1.0
    clocks_per_s = gpu.sms * gpu.boost_mhz * 1e6
    known = architecture(gpu.arch)
    passes: float = sum(
        counters.get(name, 0)
        for name in (metrics.SHARED_LOAD_WAVEFRONTS, metrics.SHARED_STORE_WAVEFRONTS)
    )
    for name in (metrics.GLOBAL_LOAD_SECTORS, metrics.GLOBAL_STORE_SECTORS):
        passes += counters.get(name, 0) / LINE_SECTORS
    moved = max(0.0, least_bytes - gpu.l2_mb * 2**20)
    return {
        "instructions": larger * uneven * issued / known.partitions / clocks_per_s,
        "shared memory and L1": larger * uneven * passes / clocks_per_s,
        "FP32 lanes": uneven * flops / 2 / known.fp32_lanes / clocks_per_s,
        "device memory": moved / (gpu.bandwidth_gbs * 1e9),
    }


def of_record(record: Record, gpu: Gpu) -> Bound | None:
    """Return the bound of a climb's launch; None if it was not counted."""
    if record.counters is None or record.launch is None:
        return None
    blocks = math.prod(record.launch["grid"])
    flops = 0 if uses_tensor_cores(record.counters) else record.flops
    return bound(record.counters, flops, record.min_bytes, blocks, gpu)


def uses_tensor_cores(counters: Mapping[str, int]) -> bool:
    return any("tensor" in name and count for name, count in counters.items())
