"""Contenders timed in turn, so that a drift of the clock affects all of them alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from benchmarks.gpu import Gpu, Work
from benchmarks.record import Row

T = TypeVar("T")

SHORTEST_S = 2e-3  # of a graph
MOST_CALLS = 50  # of a graph


def in_turn(runs: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each run measured, all of them once per round."""
    found: dict[str, list[T]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(run())
    return found


def replays(gpu: Gpu, calls: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Seconds per call of each contender, as CUDA graphs that are replayed in turn.

    All graphs have the same number of calls, which share the time to start a graph.
    """
    for call in calls.values():
        for _ in range(3):  # plans, records, replays
            call()
    gpu.synchronize()
    quickest = min(gpu.seconds(call) for call in calls.values())
    count = max(1, min(MOST_CALLS, math.ceil(SHORTEST_S / quickest)))
    graphs = {name: gpu.graph([call] * count) for name, call in calls.items()}
    return of_graphs(gpu, {name: (graph, count) for name, graph in graphs.items()}, rounds)


def of_graphs(
    gpu: Gpu, graphs: Mapping[str, tuple[Work, int]], rounds: int
) -> dict[str, list[float]]:
    """Seconds per call of graphs with the given numbers of calls."""
    totals = in_turn(
        {name: partial(gpu.seconds, graph) for name, (graph, _) in graphs.items()}, rounds
    )
    return {name: [s / graphs[name][1] for s in samples] for name, samples in totals.items()}


def percentiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """10th, 50th and 90th percentile: samples, not values between them."""
    ordered = sorted(samples)
    low, middle, high = (ordered[int(share * (len(ordered) - 1))] for share in (0.1, 0.5, 0.9))
    return low, middle, high


def spread(seconds: Sequence[float], flops: float) -> Row:
    """Median in microseconds; TFLOPS: median, 10th and 90th percentile."""
    low, middle, high = percentiles(seconds)
    rates = [round(flops / s / 1e12, 1) for s in (middle, high, low)]
    return {"us": round(middle * 1e6, 2), **dict(zip(("tflops", "p10", "p90"), rates, strict=True))}


def host_us(gpu: Gpu, call: Work, calls: int, bursts: int, wait: bool = True) -> float:
    """Microseconds per call of bursts, until completion or on the host alone; the median."""

    def burst() -> None:
        for _ in range(calls):
            call()

    found = [gpu.wall(burst, wait) / calls * 1e6 for _ in range(bursts)]
    return round(statistics.median(found), 2)


def quantiles(samples: Sequence[float], unit: str, digits: int | None = None) -> Row:
    """The median under the name of its unit, with the 10th and 90th percentile, interpolated."""
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    values: dict[str, Any] = {unit: statistics.median(samples), "p10": tenths[0], "p90": tenths[-1]}
    return values if digits is None else {k: round(v, digits) for k, v in values.items()}
