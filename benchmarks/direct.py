"""Ways to multiply without packing both operands: all tiles and divisions of k, at many shapes.

`routes` are those of `tf32x3`, `fp16x3s` those with one packed operand, `fma` those of
multiply-adds.

    python -m benchmarks direct benchmarks/h200/direct.json

Also SGEMM, and the most promising ways, at 1979 shapes drawn at random, most of whose rows are not
aligned (`drawn`). `scripts/fit-direct` fits the times in `gemmlab/linalg/arch` to the record,
without the shapes of the pages. Times are of CUDA graphs of calls. Errors are the largest
|C - AB| / (|A||B|) of an element in u = 2^-24.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from math import inf
from statistics import geometric_mean
from typing import Any

import gemmlab
from benchmarks import accuracy
from benchmarks.gpu import Gpu, Work
from benchmarks.matmul import tables as matmul_tables
from benchmarks.matmul.results import DEPTHS, FAMILIES, SAMPLE
from benchmarks.matmul.speed import SHAPES, drawn_shapes
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.gemv import NEVER
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.program import Factor, Job, Route
from gemmlab.linalg.planning.tiers import Choice, fallback_of
from gemmlab.linalg.planning.times import (
    DIRECT,
    FASTEST,
    FMA,
    LEAST_DEPTH,
    ROUTED,
    STREAMED,
    Case,
)
from gemmlab.linalg.runtime.launches import Launcher
from gemmlab.linalg.shapes import Stack
from gemmlab.report.markdown import table

Shape = tuple[int, int, int, int, str]  # m, n, k, batch, transposes
NAMES = {DIRECT: "routes", FMA: FMA, STREAMED: STREAMED}  # of the routes of a tier in a row
ROUNDS = 4  # replays of a graph
GRAPH_S = 5e-4  # of calls in a graph
SLOWEST = 4  # times SGEMM, as predicted; slower routes are left out
SLOWEST_FMA = 2.5  # times the fastest one, as predicted
LARGEST = 2e11  # operations; of larger products, which are packed, no route is timed
CHECKED = 3e10  # operations; larger products are not compared with float64
# Further shapes of small k, whose products use other arithmetic.
SHALLOW = [(4096, 4096, k, 1, "nn") for k in (24, 32, 48, 96)]
SHALLOW += [
    (256, 256, 32, 1, "nn"),
    (512, 512, 96, 1, "tn"),
    (1024, 1024, 24, 1, "nt"),
    (2048, 2048, 48, 1, "tt"),
    (8192, 8192, 64, 1, "nn"),
    (64, 8192, 64, 1, "nn"),
    (20000, 256, 96, 1, "nt"),
    (1024, 512, 24, 16, "nn"),
    (256, 256, 64, 64, "tn"),
    (128, 128, 96, 200, "nn"),
    (512, 64, 48, 64, "nn"),
]
# Products with a vector, a row times a matrix of either order: a matrix times a column runs in the
# same kernel, with the operands exchanged.
VECTORS = [
    (1, n, k, 1, way)
    for n, k in (
        *((64, 64), (512, 512), (4096, 512), (512, 4096), (2048, 2048), (4096, 4096)),
        *((4095, 4097), (300, 20000), (50257, 768), (11008, 4096), (16384, 16384)),
    )
    for way in ("nn", "nt")
]
DRAWN_VECTORS, LARGEST_VECTOR = 240, 2**27  # how many more, at random; elements of a matrix
# Of the shapes of `drawn`: seeds, which those of the pages do not have, and operations at most.
SEEDS, LARGEST_DRAWN = range(1000, 1036), 3e10
# Drawn products with fewer multiply-adds, or less depth, are not packed: that is far slower.
LEAST_PACKED, LEAST_PACKED_K = 1e8, 48
LEAST_STREAMED = 3e7  # multiply-adds of a drawn product that may be fastest with one packed operand
LARGEST_FMA = 3e9  # multiply-adds of a drawn product that multiply-adds may compute fastest
PROMISING = {DIRECT: 3, FMA: 2, STREAMED: 2}  # routes that are predicted to be fastest
DIGITS = 4  # of the microseconds of drawn products


def routes(gpu: Gpu) -> Iterator[Row]:
    """SGEMM, `fp16x3`, and each route: its index in `routes` of the tier, µs, error."""
    launcher = Launcher(0)
    row(gpu, launcher, *SHAPES[0])  # the first graphs of a process are slower
    for case in (*(x for x in SHAPES if min(x[:2]) > 1), *SHALLOW):
        yield row(gpu, launcher, *case)
        gpu.release()


def row(gpu: Gpu, launcher: Any, m: int, n: int, k: int, batch: int, way: str) -> Row:
    a, b, c = arrays(gpu, m, n, k, batch, way)
    work, exact, size = 2 * m * n * k * batch, None, None
    if work <= CHECKED:
        exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    found: Row = {"m": m, "n": n, "k": k, "batch": batch, "transposed": way}
    found["sgemm"] = microseconds(gpu, partial(gpu.torch.matmul, a, b, out=c))
    packed = bound(gpu, launcher, a, b, c, choice_of(FASTEST))
    found |= {FASTEST: microseconds(gpu, packed), "routes": [], STREAMED: [], FMA: []}
    if work > LARGEST:
        return found

    def measured(tier: str, index: int) -> list[float | None]:
        call = bound(gpu, launcher, a, b, c, choice_of(tier), index)
        c.fill_(float("nan"))
        call()
        error = None if exact is None else float(((c.double() - exact).abs() / size).max()) * 2**24
        return [index, microseconds(gpu, call), error and round(error, 2)]

    for tier in (DIRECT, STREAMED):
        for index, seconds in enumerate(seconds_of(tier, m, n, k, batch, way)):
            if seconds * 1e6 <= SLOWEST * found["sgemm"]:
                found[NAMES[tier]].append(measured(tier, index))
    found[FMA] = [measured(FMA, index) for index in promising(m, n, k, batch, way)]
    return found


def choice_of(tier: str, fallback: str | None = None) -> Choice:
    """The tier, with a fallback, or with the one that it cannot do without."""
    return Choice(tier, "measured", fallback or (DIRECT if tier == STREAMED else None), SM90)


def seconds_of(tier: str, m: int, n: int, k: int, batch: int, way: str) -> list[float]:
    """Predicted seconds of each route of a tier."""
    k_major, sms = (way[0] == "n", way[1] == "t"), SM90.multiprocessors
    found: list[float] = ROUTED[tier].seconds_of(m, n, k, batch, k_major, SM90, sms)
    return found


def promising(m: int, n: int, k: int, batch: int, way: str) -> list[int]:
    """The routes of `fma` that may be the fastest."""
    times = seconds_of(FMA, m, n, k, batch, way)
    return [i for i, seconds in enumerate(times) if seconds <= SLOWEST_FMA * min(times)]


def vectors(gpu: Gpu) -> Iterator[Row]:
    """SGEMM, and each route of products with a vector: its index, µs, error."""
    launcher = Launcher(0)
    row(gpu, launcher, *SHAPES[0])  # the first graphs of a process are slower
    for m, n, k, batch, way in (*VECTORS, *drawn_vectors()):
        a, b, c = arrays(gpu, m, n, k, batch, way)
        exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        found: Row = {"m": m, "n": n, "k": k, "batch": batch, "transposed": way}
        found["sgemm"] = digits(microseconds(gpu, partial(gpu.torch.matmul, a, b, out=c)))
        found[FMA] = []
        for index, seconds in enumerate(seconds_of(FMA, m, n, k, batch, way)):
            if seconds >= NEVER:
                continue
            call = bound(gpu, launcher, a, b, c, Choice(FMA, "measured", arch=SM90), index)
            c.fill_(float("nan"))
            call()
            error = float(((c.double() - exact).abs() / size).max()) * 2**24
            found[FMA].append([index, digits(microseconds(gpu, call)), round(error, 2)])
        yield found
        gpu.release()


def drawn_vectors() -> list[Shape]:
    """Products with a vector, with evenly distributed logarithms of their sizes."""
    rng, found = random.Random(1), list[Shape]()
    while len(found) < DRAWN_VECTORS:
        n, k, batch = (round(2 ** rng.uniform(*ends)) for ends in ((1, 17), (3, 17), (-8, 8)))
        batch, aligned = max(batch, 1), rng.random() < 0.5
        if aligned:
            n, k = (-(-x // 4) * 4 for x in (n, k))
        if n * k * batch <= LARGEST_VECTOR:
            found.append((1, n, k, batch, rng.choice(("nn", "nt"))))
    return found


def drawn(gpu: Gpu) -> Iterator[Row]:
    """SGEMM, and the ways that are predicted to be fastest, at shapes drawn at random."""
    launcher = Launcher(0)
    for shape in few_operations(SEEDS):
        yield drawn_row(gpu, launcher, *shape)
        gpu.release()


def drawn_row(gpu: Gpu, launcher: Any, m: int, n: int, k: int, batch: int, way: str) -> Row:
    a, b, c = arrays(gpu, m, n, k, batch, way)

    def measured(tier: str, fallback: str | None, index: int | None) -> float:
        call = bound(gpu, launcher, a, b, c, choice_of(tier, fallback), index)
        return digits(microseconds(gpu, call))

    found: Row = {"m": m, "n": n, "k": k, "batch": batch, "transposed": way}
    found["sgemm"] = digits(microseconds(gpu, partial(gpu.torch.matmul, a, b, out=c)))
    if m * n * k * batch > LEAST_PACKED and k >= LEAST_PACKED_K:
        fallback = fallback_of(FASTEST, Case(m, n, k, batch, SM90.capability))
        found[FASTEST] = measured(FASTEST, fallback, None)
    for tier, indexes in fastest_routes(m, n, k, batch, way).items():
        found[NAMES[tier]] = [[index, measured(tier, None, index)] for index in indexes]
    return found


def few_operations(seeds: Iterable[int]) -> list[Shape]:
    """The drawn shapes whose products do not take long."""
    shapes = (shape for seed in seeds for shape in drawn_shapes(seed))
    return [shape for shape in shapes if 2 * math.prod(shape[:4]) <= LARGEST_DRAWN]


def fastest_routes(m: int, n: int, k: int, batch: int, way: str) -> dict[str, list[int]]:
    """Of each tier that may be the fastest: its most promising routes, best first."""
    possible = {DIRECT: k >= LEAST_DEPTH, FMA: m * n * k * batch <= LARGEST_FMA}
    possible[STREAMED] = possible[DIRECT] and m * n * k * batch > LEAST_STREAMED
    found = {}
    for tier in (x for x, may in possible.items() if may):
        times = seconds_of(tier, m, n, k, batch, way)
        found[tier] = sorted(range(len(times)), key=times.__getitem__)[: PROMISING[tier]]
    return found


def digits(microseconds: float) -> float:
    """Rounded, for a shorter record."""
    return float(f"{microseconds:.{DIGITS}g}")


def arrays(gpu: Gpu, m: int, n: int, k: int, batch: int, way: str) -> tuple[Any, Any, Any]:
    """Two factors, as their transposes if `way` has a t, and room for the product."""
    stack = (batch,) if batch > 1 else ()
    a = gpu.normal(*stack, *((m, k) if way[0] == "n" else (k, m)), seed=1)
    b = gpu.normal(*stack, *((k, n) if way[1] == "n" else (n, k)), seed=2)
    a, b = (x.mT if t == "t" else x for x, t in zip((a, b), way, strict=True))
    return a, b, gpu.empty(*stack, m, n)


def bound(
    gpu: Gpu, launcher: Any, a: Any, b: Any, c: Any, choice: Choice, index: int | None = None
) -> Work:
    """A product, which adds itself to the current stream. index: of its route; None: the best."""
    (m, k), n, batch = a.shape[-2:], b.shape[-1], a.shape[0] if a.ndim > 2 else 1
    steps = [x.stride(0) if batch > 1 else 0 for x in (a, b, c)]
    left = Stack(m, k, a.stride(-2), a.stride(-1), batch, steps[0]).operand()
    right = Stack(k, n, b.stride(-2), b.stride(-1), batch, steps[1]).transposed.operand()
    assert left is not None and right is not None
    route: Route | None = None
    if index is not None:
        k_major = left.k_major, right.k_major
        route = ROUTED[choice.tier].routes(SM90, k_major, k)[index]
    rest = choice.tier, choice.fallback
    factors = Factor("a", left, *rest), Factor("b", right, *rest)
    job = Job(*factors, Stack(m, n, n, 1, batch, steps[2]), choice, route=route)
    sms = SM90.multiprocessors
    spaces = [gpu.empty(size // 4 + 1).zero_() for size in (*job.sizes(sms), plan.REPORT_BYTES)]
    at_left, at_right, totals, notes, report = (space.data_ptr() for space in spaces)
    memory = WorkspaceAddresses(at_left, at_right, report, totals, notes)
    launches = launcher.bind(job.launches(memory, sms))
    addresses = a.data_ptr(), b.data_ptr(), c.data_ptr(), c.data_ptr()

    def run(_: Any = spaces) -> None:  # keeps the memory alive
        stream = gpu.torch.cuda.current_stream().cuda_stream
        for launch in launches:
            launch.launch(stream, addresses)

    return run


def microseconds(gpu: Gpu, call: Work) -> float:
    """The median of replays of a graph of calls."""
    call()
    gpu.synchronize()
    count = max(2, min(20, round(GRAPH_S / gpu.seconds(call))))
    graph = gpu.graph([call] * count)
    graph()
    times = [gpu.seconds(graph) / count for _ in range(ROUNDS)]
    return round(statistics.median(times) * 1e6, 2)


def errors(gpu: Gpu) -> Iterator[Row]:
    """`tf32x3`, `fp16x3s` and SGEMM against float64, at the depths of the default's table."""
    for tier, k in product((DIRECT, STREAMED), DEPTHS):
        for family in FAMILIES if k >= LEAST_DEPTH else ():
            a, b = gpu.draw(family, (SAMPLE, k), 1), gpu.draw(family, (k, SAMPLE), 2)
            c, again = (gemmlab.matmul(a, b, precision=tier) for _ in range(2))
            exact = accuracy.exact(a, b)
            yield {
                **{"family": family, "k": k, "ran": tier, "repeats": gpu.torch.equal(c, again)},
                **accuracy.errors(c, *exact),
                "sgemm": accuracy.errors(a @ b, *exact),
            }


def tables(record: Row) -> dict[str, str]:
    """The fastest route at each shape, and the largest error of any."""
    headings = [
        "m × n × k",
        "SGEMM",
        "`fp16x3`",
        "`fp16x3s`",
        "`tf32x3`",
        "`fma`",
        "SGEMM / fastest",
        "error, u",
    ]
    lines, factors = [], []
    vectors = [row for row in record["vectors"] if shape_of(row) in VECTORS]
    for row in (*record["routes"], *vectors):
        routes = [row.get(NAMES[x], ()) for x in (STREAMED, DIRECT, FMA)]
        times = [row["sgemm"], row.get("fp16x3", inf)]
        times += [min((time for _, time, _ in x), default=inf) for x in routes]
        every = [error for x in routes for *_, error in x if error is not None]
        factors.append(row["sgemm"] / min(times))
        ends = f"{factors[-1]:.2f}×", f"{max(every):.1f}" if every else "–"
        texts = [f"{time:.1f}" if time < inf else "–" for time in times]
        lines.append([shape_text(row), *texts, *ends])
    mean = f"geometric mean {geometric_mean(factors):.2f}×"
    text = f"{record['gpu']}, µs in CUDA graphs; {mean}."
    tables = {"direct": f"{text}\n\n{table(headings, lines)}"}
    if "errors" in record:
        tables["direct-errors"] = matmul_tables.errors(record["errors"])
    return tables


def shape_of(row: Row) -> Shape:
    m, n, k, batch, way = (row[x] for x in ("m", "n", "k", "batch", "transposed"))
    return m, n, k, batch, way


def shape_text(row: Row) -> str:
    stack = f"{row['batch']} × " if row["batch"] > 1 else ""
    way = "" if row["transposed"] == "nn" else f", {row['transposed']}"
    return f"{stack}{row['m']} × {row['n']} × {row['k']}{way}"


MEASUREMENT = Measurement(
    parts={
        "routes": Rows(routes, ("m", "n", "k", "batch", "transposed")),
        "vectors": Rows(vectors, ("m", "n", "k", "batch", "transposed")),
        "errors": Rows(errors, ("family", "k", "ran")),
        "drawn": Rows(drawn, ("m", "n", "k", "batch", "transposed")),
    },
    pages={"matmul-results.md": tables},
    depth=2,
)
