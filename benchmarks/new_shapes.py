"""What products of new shapes cost the host; needs PyTorch. Half a minute of GPU time.

    python -m benchmarks new-shapes benchmarks/h100/new-shapes.json

Each way to multiply has a fresh process for each of two cases:

shapes   600 products of different sizes, each from an idle GPU until the call returns; the host's
         microseconds of each call
ragged   300 products of 1 to 2048 rows with one 4096×4096 matrix, three times over; milliseconds
         until the GPU has finished, with everything that the process loads in the first turn

Run it once before, because the first process may compile Python files.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import children
from benchmarks.gpu import Gpu
from benchmarks.measurement import Cases, Measurement
from benchmarks.record import Row
from benchmarks.timing import quantiles
from gemmlab.report.markdown import table

WAYS = ("torch.matmul", "gemmlab.matmul", "torch.matmul with enable()")
SHAPES, SIDES = 600, (200, 3000)
PRODUCTS, ROWS, WEIGHT, TURNS = 300, (1, 2048), 4096, 3

Multiply = Callable[[Any, Any], Any]


def shapes(gpu: Gpu, multiply: Multiply) -> Row:
    memory = gpu.normal(SIDES[1] ** 2)
    sizes: dict[tuple[int, ...], None] = {}  # without repetitions, in order
    while len(sizes) < SHAPES:
        sizes[tuple(random.randint(*SIDES) for _ in "mnk")] = None
    times = []
    for m, n, k in sizes:
        a, b = memory[: m * k].view(m, k), memory[: k * n].view(k, n)
        times.append(1e6 * gpu.wall(partial(multiply, a, b), wait=False))
        gpu.synchronize()
    return {"first_us": times[0], **quantiles(times, "us")}


def ragged(gpu: Gpu, multiply: Multiply) -> Row:
    weight = gpu.normal(WEIGHT, WEIGHT)
    rows = [random.randint(*ROWS) for _ in range(PRODUCTS)]
    factors = [gpu.normal(count, WEIGHT) for count in rows]

    def turn() -> None:
        for factor in factors:
            multiply(factor, weight)

    return {"ms": [1e3 * gpu.wall(turn) for _ in range(TURNS)]}


def child(case: str, way: str) -> Row:
    """A case in this process."""
    import gemmlab.torch

    gpu = Gpu()
    if way.endswith("enable()"):
        gemmlab.torch.enable()
    random.seed(7)
    multiply = gemmlab.matmul if way == "gemmlab.matmul" else gpu.torch.matmul
    return {"shapes": shapes, "ragged": ragged}[case](gpu, multiply)


def fresh(case: str, way: str, gpu: Gpu) -> Any:
    children.check_kernels()
    return children.call("new_shapes", "child", case, way)


def cases(case: str) -> Cases:
    return {way: partial(fresh, case, way) for way in WAYS}


def new_shapes(record: Row) -> dict[str, str]:
    headings = ["call", "µs of the host, new shape", "ragged products, ms: first turn"]
    rows = []
    for way in WAYS:
        each, (first, *later) = record["shapes"][way], record["ragged"][way]["ms"]
        host = f"{each['us']:.0f} ({each['p10']:.0f}–{each['p90']:.0f})"
        rows.append([f"`{way}`", host, f"{first:.0f}", f"{statistics.mean(later):.0f}"])
    return {"new-shapes": table([*headings, "later turns"], rows)}


MEASUREMENT = Measurement(
    parts={"ragged": cases("ragged"), "shapes": cases("shapes")},
    pages={"matmul-results.md": new_shapes},
)
