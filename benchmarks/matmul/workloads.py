"""Two programs in float32, with SGEMM and with gemmlab."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import gemmlab
from benchmarks.gpu import Gpu
from benchmarks.record import Row
from benchmarks.timing import in_turn

RUNS = 3
NEAREST, CHUNK = 10, 16384
MEANS_SIZES = (262144, 4096, 512)  # points, others, dimensions
NEIGHBOURS_SIZES = (32768, 65536, 768)


def workloads(gpu: Gpu) -> Iterator[Row]:
    yield workload(gpu, "k-means, 10 rounds", means, *MEANS_SIZES)
    yield workload(gpu, "10 nearest neighbours", neighbours, *NEIGHBOURS_SIZES)


def workload(
    gpu: Gpu, name: str, program: Callable[..., Any], points: int, others: int, dims: int
) -> Row:
    x, y = gpu.normal(points, dims, seed=5), gpu.normal(others, dims, seed=6)
    ways = {"sgemm": gpu.torch.matmul, "gemmlab": gemmlab.matmul}
    found = {way: program(gpu, x, y, product) for way, product in ways.items()}
    tier = gemmlab.last_plan().tier
    runs = {
        way: lambda product=product: gpu.seconds(lambda: program(gpu, x, y, product))
        for way, product in ways.items()
    }
    times = in_turn(runs, RUNS)
    gpu.release()
    return {
        **{"workload": name, "points": points, "others": others, "dims": dims},
        **{f"{way} ms": float(f"{1e3 * statistics.median(times[way]):.4g}") for way in ways},
        "same": (found["sgemm"] == found["gemmlab"]).double().mean().item(),
        "tier": tier,
    }


def neighbours(gpu: Gpu, x: Any, y: Any, product: Callable[..., Any]) -> Any:
    """Indices (points, 10) of the rows of y that are nearest to each row of x, unordered."""
    norms = (y * y).sum(1)
    chunks = []
    for part in x.split(CHUNK):
        distances = norms - 2 * product(part, y.T)
        chunks.append(distances.topk(NEAREST, largest=False).indices.sort().values)
    return gpu.torch.cat(chunks)


def means(gpu: Gpu, x: Any, y: Any, product: Callable[..., Any]) -> Any:
    """The nearest center (points,) of each row of x after ten rounds of Lloyd's algorithm."""
    for _ in range(10):
        nearest = ((y * y).sum(1) - 2 * product(x, y.T)).argmin(1)
        count = gpu.torch.bincount(nearest, minlength=len(y)).clamp_min(1)
        y = gpu.torch.zeros_like(y).index_add_(0, nearest, x) / count[:, None]
    return nearest
