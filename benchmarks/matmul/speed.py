"""Times and energy of square products and of shapes of every kind."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator

import gemmlab
from benchmarks.gpu import Gpu, Work
from benchmarks.record import Row
from benchmarks.timing import host_us, replays, spread

SQUARES = (1024, 2048, 4096, 8192, 16384)
METERED = (4096, 8192)  # squares whose energy is measured
ROUNDS = 15
COOLING_S, METERED_S = 1.0, 1.0
# m, n, k, batch, transposes of a and b
SHAPES = [(n, n, n, 1, "nn") for n in (64, 128, 256, 384, 512, 640, 768, 896, 1000, 1536, 3072)]
SHAPES += [
    (*sizes, "nn")
    for sizes in (
        *((4096, 4096, k, 1) for k in (16, 64, 128, 256)),
        *((m, 4096, 4096, 1) for m in (1, 16, 64, 128, 256, 512)),
        *((4096, n, 4096, 1) for n in (1, 16, 64, 128, 256)),
        (8192, 8192, 128, 1),
        (128, 16384, 16384, 1),
        (256, 8192, 8192, 1),
        (8192, 256, 8192, 1),
        (128, 128, 65536, 1),
        (256, 256, 16384, 1),
        (512, 512, 16384, 1),
        (777, 1033, 511, 1),
        (100000, 64, 64, 1),
        (65536, 128, 128, 1),
        (65536, 256, 256, 1),
        (200000, 32, 512, 1),
        (4096, 14336, 4096, 1),
        (32, 32, 32, 4096),
        (64, 64, 64, 1000),
        (128, 128, 128, 64),
        (256, 256, 256, 64),
        (512, 512, 512, 16),
        (1024, 1024, 1024, 16),
        (1024, 64, 1024, 32),
    )
]
SHAPES += [(1024, 1024, 1024, 1, way) for way in ("nt", "tn", "tt")]
SHAPES += [(65536, 256, 256, 1, "nt"), (4097, 4097, 4097, 1, "tt")]

# Further shapes, drawn once and for all: sizes and stacks with evenly distributed logarithms.
DRAWN, SEED = 60, 19
SIDES, STACKS = (16, 8192), (1, 256)
MOST_ELEMENTS = 2**28  # of the three matrices; shapes with more are drawn again


def squares(gpu: Gpu) -> Iterator[Row]:
    """Time every way to multiply two float32 or float16 matrices, at each size."""
    for n in SQUARES:
        yield square(gpu, n)
        gpu.release()


def square(gpu: Gpu, n: int) -> Row:
    matmul = gpu.torch.matmul
    a, b, c, d = (gpu.normal(n, n, seed=seed) for seed in range(1, 5))
    x, y, z = (matrix.half() for matrix in (a, b, c))

    def tf32() -> None:
        with gpu.tf32():
            matmul(a, b, out=c)

    def three() -> None:
        for _ in range(3):
            matmul(x, y, out=z)

    calls: dict[str, Work] = {
        "default": lambda: gemmlab.matmul(a, b, out=c),
        "default + c": lambda: gemmlab.matmul(a, b, d, out=d, alpha=1.0, beta=0.5),
        "fp16x3": lambda: gemmlab.matmul(a, b, out=c, precision="fp16x3"),
        "bf16x6": lambda: gemmlab.matmul(a, b, out=c, precision="bf16x6"),
        "sgemm": lambda: matmul(a, b, out=c),
        "tf32": tf32,
        "fp16": lambda: matmul(x, y, out=z),
        "three fp16": three,
    }
    times = replays(gpu, calls, ROUNDS)
    row = {"n": n, **gpu.state()}
    row |= {name: spread(seconds, 2.0 * n**3) for name, seconds in times.items()}
    for name in ("sgemm", "default"):
        time.sleep(COOLING_S)  # let the chip cool down
        alone = replays(gpu, {name: calls[name]}, ROUNDS)
        row[f"{name} alone"] = spread(alone[name], 2.0 * n**3)
    row["eager us"] = {name: host_us(gpu, calls[name], 10, 3) for name in ("default", "sgemm")}
    if n in METERED:
        row["joules"] = {name: energy(gpu, call) for name, call in calls.items()}
    return row


def energy(gpu: Gpu, call: Work) -> float:
    """Joules per call, averaged over about a second of calls."""
    count = math.ceil(METERED_S / gpu.seconds(call))
    gpu.synchronize()
    before = gpu.joules()
    for _ in range(count):
        call()
    gpu.synchronize()
    return round((gpu.joules() - before) / count, 3)


def shapes(gpu: Gpu) -> Iterator[Row]:
    """The default and SGEMM at shapes of every kind."""
    for case in SHAPES:
        yield shape(gpu, *case)
        gpu.release()


def drawn(gpu: Gpu) -> Iterator[Row]:
    """The same at shapes that nobody chose."""
    for case in drawn_shapes():
        yield shape(gpu, *case)
        gpu.release()


def drawn_shapes(seed: int = SEED) -> list[tuple[int, int, int, int, str]]:
    """m, n, k, batch, transposes; the same on every machine."""
    numbers = random.Random(seed)
    found: list[tuple[int, int, int, int, str]] = []

    def size(least: int, most: int) -> int:
        return round(least * (most / least) ** numbers.random())

    while len(found) < DRAWN:
        m, n, k, batch = *(size(*SIDES) for _ in "mnk"), size(*STACKS)
        way = "".join("nt"[numbers.random() < 0.5] for _ in "ab")
        if batch * (m * k + k * n + m * n) <= MOST_ELEMENTS:
            found.append((m, n, k, batch, way))
    return found


def shape(gpu: Gpu, m: int, n: int, k: int, batch: int, way: str) -> Row:
    stack = (batch,) if batch > 1 else ()
    a = gpu.normal(*stack, *((m, k) if way[0] == "n" else (k, m)), seed=1)
    b = gpu.normal(*stack, *((k, n) if way[1] == "n" else (n, k)), seed=2)
    a, b = (x.mT if t == "t" else x for x, t in zip((a, b), way, strict=True))
    c = gpu.empty(*stack, m, n)
    calls: dict[str, Work] = {
        "default": lambda: gemmlab.matmul(a, b, out=c),
        "sgemm": lambda: gpu.torch.matmul(a, b, out=c),
    }
    times = replays(gpu, calls, ROUNDS)
    calls["default"]()
    plan, flops = gemmlab.last_plan(), 2.0 * m * n * k * batch
    row = {
        **{"m": m, "n": n, "k": k, "batch": batch, "transposed": way},
        **{"tier": plan.tier, "ran": plan.report().tier, "reason": plan.reason},
        **gpu.state(),
    }
    row |= {name: spread(seconds, flops) for name, seconds in times.items()}
    row["eager us"] = {name: host_us(gpu, call, 50, 5) for name, call in calls.items()}
    return row
