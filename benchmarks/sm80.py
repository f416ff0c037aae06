"""`gemmlab.matmul` with its kernels for compute capability 8.0, on a later GPU. A minute.

    python -m benchmarks sm80 benchmarks/h100/sm80.json

The driver translates the kernels' PTX for sm_80. Their results are those of an A100, their speed is
not. TFLOPS: CUDA graphs, operands warm, in turn with torch.mm. Errors: the largest of an element,
in units of u = 2⁻²⁴ of |A||B|. Needs PyTorch and the CuTe DSL.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import gemmlab
from benchmarks import accuracy
from benchmarks.gpu import Gpu, Work
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from benchmarks.timing import replays
from gemmlab.compile.artifact import Artifact
from gemmlab.linalg.arch import ARCHITECTURES
from gemmlab.linalg.arch.sm80 import SM80
from gemmlab.linalg.runtime import built, driver
from gemmlab.report.markdown import table

ROUNDS = 10
WAYS = {"fp16x3": "fp16x3", "bf16x6": "bf16x6", "default": None}  # name -> precision
SQUARES = [(n, "nn") for n in (512, 1024, 2048, 4096, 8192)] + [
    (4096, way) for way in ("nt", "tn", "tt")
]
SHAPES = [(512, 512, 512), (333, 777, 555), (1024, 1000, 4096), (300, 200, 20000)]
FAMILIES = ("normal", "uniform", "half-normal", "lognormal 1", "signed-lognormal 4")


@cache
def pretend(gpu: Gpu) -> None:
    """From now on, this process has kernels for 8.0 alone, and they run on its GPU."""
    load = driver.load

    def load_ptx(artifact: Artifact) -> Any:
        return load(replace(artifact, cubin=artifact.ptx.encode() + b"\0"))

    driver.load = load_ptx
    built.find = lambda code: None  # built kernels have no PTX
    ARCHITECTURES.clear()
    ARCHITECTURES[gpu.torch.cuda.get_device_capability()] = SM80


def operands(gpu: Gpu, family: str, m: int, n: int, k: int, way: str) -> tuple[Any, Any]:
    """Matrices of a family; `t` in `way`: stored as their transposes."""
    pretend(gpu)
    a = gpu.draw(family, (m, k) if way[0] == "n" else (k, m), 1)
    b = gpu.draw(family, (k, n) if way[1] == "n" else (n, k), 2)
    return (a if way[0] == "n" else a.mT), (b if way[1] == "n" else b.mT)


def times(gpu: Gpu) -> Iterator[Row]:
    for n, way in SQUARES:
        a, b = operands(gpu, "normal", n, n, n, way)
        c = gpu.empty(n, n)
        calls: dict[str, Work] = {
            name: partial(gemmlab.matmul, a, b, out=c, precision=precision)
            for name, precision in WAYS.items()
        }
        calls["sgemm"] = partial(gpu.torch.mm, a, b, out=c)
        found = replays(gpu, calls, ROUNDS)
        rates = {x: round(2e-12 * n**3 / statistics.median(s), 2) for x, s in found.items()}
        yield {"n": n, "way": way, **rates}


def errors(gpu: Gpu) -> Iterator[Row]:
    for family in FAMILIES:
        for m, n, k in SHAPES:
            for way in ("nn", "tt")[: 2 if family == "normal" else 1]:
                a, b = operands(gpu, family, m, n, k, way)
                exact = accuracy.exact(a, b)
                row = {"family": family, "m": m, "n": n, "k": k, "way": way}
                products = {
                    name: gemmlab.matmul(a, b, precision=precision)
                    for name, precision in WAYS.items()
                }
                for name, c in {**products, "sgemm": a @ b}.items():
                    row[name] = round(accuracy.worst_u(c, *exact), 2)
                yield row


def speed(record: Row) -> dict[str, str]:
    names = {"fp16x3": "`fp16x3`", "bf16x6": "`bf16x6`", "sgemm": "cuBLAS SGEMM"}
    rows = [row for row in record["times"] if row["way"] == "nn" and row["n"] > 512]
    card = "H200" if "H200" in record["gpu"] else "H100"
    heads = [f"TFLOPS on an {card}, code for `sm_80`", *(f"{row['n']}³" for row in rows)]
    lines = [[label, *(f"{row[name]:.0f}" for row in rows)] for name, label in names.items()]
    return {"sm80": table(heads, lines)}


SAME = ("family", "m", "n", "k", "way")
MEASUREMENT = Measurement(
    parts={"times": Rows(times, ("n", "way")), "errors": Rows(errors, SAME)},
    pages={"matmul.md": speed},
    depth=2,
)
