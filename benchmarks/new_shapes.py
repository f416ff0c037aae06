"""What products of new shapes cost the host; needs PyTorch. Three minutes of GPU time.

    python -m benchmarks new-shapes benchmarks/h200/new-shapes.json

There are two cases:

shapes   600 products of different sizes for each way to multiply, 100 in turn, in one fresh
         process; the host's microseconds of each call until it returns. In one process the
         program waits for the GPU before each call (idle), in another one only before each
         hundred (busy)
ragged   300 products of 1 to 2048 rows with one 4096×4096 matrix, three times over, in a fresh
         process for each way; milliseconds until the GPU has finished, with everything that the
         process loads in the first turn

All processes run five times, in turn; the medians are recorded. Run it once before, because the
first process may compile Python files.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import Any

from benchmarks import children
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement
from benchmarks.record import Row
from benchmarks.timing import in_turn, quantiles
from gemmlab.report.markdown import table

CASES = ("idle", "busy")
WAYS = ("torch.matmul", "gemmlab.matmul", "torch.matmul with enable()")
SHAPES, IN_TURN, SIDES = 600, 100, (200, 3000)
PRODUCTS, ROWS, WEIGHT, TURNS = 300, (1, 2048), 4096, 3
PROCESSES = 5  # of each kind

Multiply = Callable[[Any, Any], Any]


@contextmanager
def multiplying(gpu: Gpu, way: str) -> Iterator[Multiply]:
    """The function that multiplies in a way, which applies within the context."""
    import gemmlab.torch  # imports PyTorch

    with gemmlab.torch.enabled() if way.endswith("enable()") else nullcontext():
        yield gemmlab.matmul if way == "gemmlab.matmul" else gpu.torch.matmul


def shapes(gpu: Gpu, case: str) -> Row:
    memory = gpu.normal(SIDES[1] ** 2)
    sizes: dict[tuple[int, ...], None] = {}  # without repetitions, in order
    while len(sizes) < SHAPES * len(WAYS):
        sizes[tuple(random.randint(*SIDES) for _ in "mnk")] = None
    others, times = iter(sizes), {way: list[float]() for way in WAYS}
    for _ in range(SHAPES // IN_TURN):
        for way in WAYS:
            gpu.synchronize()
            with multiplying(gpu, way) as multiply:
                for m, n, k in islice(others, IN_TURN):
                    a, b = memory[: m * k].view(m, k), memory[: k * n].view(k, n)
                    if case == "idle":
                        gpu.synchronize()
                    start = time.perf_counter()
                    result = multiply(a, b)
                    times[way].append(1e6 * (time.perf_counter() - start))
                    del result  # freed after the clock has stopped
    return {way: quantiles(times[way], "us") for way in WAYS}


def ragged(gpu: Gpu, way: str) -> Row:
    weight = gpu.normal(WEIGHT, WEIGHT)
    rows = [random.randint(*ROWS) for _ in range(PRODUCTS)]
    factors = [gpu.normal(count, WEIGHT) for count in rows]

    with multiplying(gpu, way) as multiply:

        def turn() -> None:
            for factor in factors:
                multiply(factor, weight)

        return {"ms": [1e3 * gpu.wall(turn) for _ in range(TURNS)]}


def child(case: str, *option: str) -> Row:
    """A case in this process."""
    random.seed(7)
    measures: dict[str, Callable[..., Row]] = {"shapes": shapes, "ragged": ragged}
    return measures[case](Gpu(), *option)


def fresh(case: str, options: Iterable[str]) -> Callable[[Gpu], Row]:
    def measure(_: Gpu) -> Row:
        children.check_kernels()
        call = partial(children.call, "new_shapes", "child", case)
        found = in_turn({option: partial(call, option) for option in options}, PROCESSES)
        return {option: medians(rows) for option, rows in found.items()}

    return measure


def medians(rows: Sequence[Any]) -> Any:
    """Return dictionaries or lists of numbers as one, with the median of each number."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: medians([row[key] for row in rows]) for key in first}
    if isinstance(first, list):
        return [medians(numbers) for numbers in zip(*rows, strict=True)]
    return statistics.median(rows)


def new_shapes(record: Row) -> dict[str, str]:
    headings = ["call", *(f"new shape, µs of the host: {case}" for case in CASES)]
    headings += "ragged products, ms: first turn", "later turns"
    rows = []
    for way in WAYS:
        each = (record["shapes"]["in turn"][case][way] for case in CASES)
        hosts = [f"{x['us']:.0f} ({x['p10']:.0f}–{x['p90']:.0f})" for x in each]
        first, *later = record["ragged"]["in turn"][way]["ms"]
        rows.append([f"`{way}`", *hosts, f"{first:.0f}", f"{statistics.mean(later):.0f}"])
    return {"new-shapes": table(headings, rows)}


MEASUREMENT = Measurement(
    parts={
        "ragged": {"in turn": fresh("ragged", WAYS)},
        "shapes": {"in turn": fresh("shapes", CASES)},
    },
    pages={"matmul-results.md": new_shapes},
)
