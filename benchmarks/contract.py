"""The accuracy of matmul for families of matrices, against its contract. 20 seconds of GPU time.

    python -m benchmarks contract benchmarks/h100/contract.json

Needs PyTorch. The families are those of `families.py`, which tests use as well. An error is the
largest |C - AB| / (|A||B|) of an element, in units of u = 2⁻²⁴, against float64. A time is the
median of `ROUNDS` products from an idle GPU until it is idle again, in turn with cuBLAS SGEMM.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np

import gemmlab
from benchmarks import accuracy
from benchmarks.families import FAMILIES, Family
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from benchmarks.timing import in_turn
from gemmlab.problems.rounding import sum_bound_u
from gemmlab.report.markdown import table

M, N, K = 2048, 2048, 4096
ROUNDS = 9


def rows(gpu: Gpu) -> Iterator[Row]:
    for name, make in FAMILIES.items():
        yield row(gpu, name, make)


def row(gpu: Gpu, name: str, make: Family) -> Row:
    a, b = (gpu.numbers(x) for x in make(np.random.default_rng(len(name)), M, N, K))
    found, plain = gemmlab.matmul(a, b), a @ b
    report = gemmlab.last_plan().report()
    ways = {"gemmlab": gemmlab.matmul, "sgemm": gpu.torch.matmul}
    runs = {
        way: lambda multiply=multiply: gpu.wall(lambda: multiply(a, b))
        for way, multiply in ways.items()
    }
    times = in_turn(runs, ROUNDS)
    exact = accuracy.exact(a, b)
    return {
        "family": name,
        "error_u": accuracy.worst_u(found, *exact),
        "sgemm_u": accuracy.worst_u(plain, *exact),
        "fp16x3_u": accuracy.worst_u(gemmlab.matmul(a, b, precision="fp16x3"), *exact),
        "tier": report.tier,
        "at_risk": report.at_risk,
        "wide": report.wide,
        "doubtful": report.doubtful,
        **{f"{way}_s": statistics.median(samples) for way, samples in times.items()},
    }


def contract(record: Row) -> dict[str, str]:
    about = (
        f"{record['gpu']}, PyTorch {record['torch']}, {M}×{N}×{K}. Errors are the largest "
        "\\|C − AB\\| / (\\|A\\|\\|B\\|) of an element in u = 2⁻²⁴; the contract allows "
        f"{sum_bound_u(K):.0f} u. *Repaired* elements of C were computed again in float32."
    )
    headings = ["family", "gemmlab, u", "SGEMM, u", "fp16x3 by name, u", "ran", "repaired", "µs"]
    lines = [
        [
            row["family"],
            *(f"{row[name]:.3g}" for name in ("error_u", "sgemm_u", "fp16x3_u")),
            row["tier"],
            f"{row['doubtful']:,}" if row["doubtful"] is not None else "",
            *(f"{1e6 * row[name]:.0f}" for name in ("gemmlab_s", "sgemm_s")),
        ]
        for row in record["rows"]
    ]
    return {"contract": f"{about}\n\n{table([*headings, 'SGEMM, µs'], lines)}"}


MEASUREMENT = Measurement(parts={"rows": Rows(rows, ("family",))}, pages={"matmul.md": contract})
