"""Host time of each kind of call."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import gemmlab
from benchmarks.gpu import Gpu, Work
from benchmarks.record import Row
from benchmarks.timing import host_us, in_turn, quantiles

SIZE = 512
BURST = 200  # consecutive calls
ROUNDS = 150  # bursts per kind of call
LIBRARIES = ("torch", "cupy")


def overhead(gpu: Gpu) -> Iterator[Row]:
    """Microseconds until a call returns; the kinds of calls take turns."""
    calls = {f"{x}|{name}": call for x in LIBRARIES for name, call in calls_of(gpu, x).items()}
    for call in calls.values():
        call()
    bursts = {
        name: partial(host_us, gpu, call, BURST, 1, wait=False) for name, call in calls.items()
    }
    for name, times in in_turn(bursts, ROUNDS).items():
        library, _, kind = name.partition("|")
        yield {"library": library, "call": kind, **quantiles(times, "us", 2)}


def calls_of(gpu: Gpu, library: str) -> dict[str, Work]:
    """Products of a library's matrices, by name."""
    torch = gpu.torch
    a, b, c = (gpu.normal(SIZE, SIZE, seed=i) for i in range(3))
    other = torch.matmul
    if library == "cupy":
        import cupy

        a, b, c, other = cupy.asarray(a), cupy.asarray(b), cupy.asarray(c), cupy.matmul
    calls: dict[str, Work] = {f"{library}.matmul": lambda: other(a, b)}
    for tier in ("fp16x3", "ieee"):
        calls[f"matmul, {tier}"] = partial(gemmlab.matmul, a, b, precision=tier)
        calls[f"matmul to out, {tier}"] = partial(gemmlab.matmul, a, b, out=c, precision=tier)
        product = gemmlab.Matmul(a, b, out=c, precision=tier)
        product.plan()
        calls[f"execute, {tier}"] = product.execute
    ours = partial(gemmlab.matmul, precision="fp16x3")
    turns = itertools.cycle([a[: SIZE // 16 * i] for i in range(1, 17)])
    return calls | {
        "matmul, fp16x3, alpha, beta, c is out": partial(ours, a, b, c, out=c, alpha=0.5, beta=0.5),
        "matmul, fp16x3, another stream given": partial(ours, a, b, stream=gpu.other_stream()),
        "matmul, fp16x3, 16 shapes in turn": lambda: ours(next(turns), b),
    }
