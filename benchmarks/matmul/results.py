"""Errors of products, and of linear systems solved with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gemmlab
from benchmarks import accuracy
from benchmarks.gpu import Gpu
from benchmarks.record import Row

FAMILIES = ["normal", "uniform", "plus-minus", "half-normal"]
FAMILIES += ["signed-lognormal 1", "signed-lognormal 2", "signed-lognormal 4", "signed-lognormal 8"]
# All of one sign: truncated sums are biased most.
FAMILIES += ["lognormal 1", "lognormal 1.25", "lognormal 2", "lognormal 3", "lognormal 4"]
DEPTHS = (16, 64, 256, 1024, 4096, 8192, 16384, 65536)
SAMPLE = 1024  # rows and columns
LU_BLOCK = 256
SYSTEMS = 8  # per kind and size
SIZES = (2048, 8192)  # of systems

Multiply = Callable[[Any, Any], Any]


def errors(gpu: Gpu) -> Iterator[Row]:
    """The default and SGEMM against float64."""
    for k in DEPTHS:
        for family in FAMILIES:
            a, b = gpu.draw(family, (SAMPLE, k), 1), gpu.draw(family, (k, SAMPLE), 2)
            c = gemmlab.matmul(a, b)
            report = gemmlab.last_plan().report()
            same = gpu.torch.equal(c, gemmlab.matmul(a, b))
            exact = accuracy.exact(a, b)
            yield {
                "family": family,
                "k": k,
                "ran": report.tier,
                "at_risk": report.at_risk,
                "wide": report.wide,
                "repeats": same,
                **accuracy.errors(c, *exact),
                "sgemm": accuracy.errors(a @ b, *exact),
            }


def solves(gpu: Gpu) -> Iterator[Row]:
    """Residuals of linear systems solved by LU, with our products or SGEMM's as updates.

    |b - Ax| over 2^-24·|A||x|, with Euclidean norms, A's as a vector; one number per system.
    """
    ways: dict[str, Multiply] = {
        "fp16x3": lambda p, q: gemmlab.matmul(p, q, precision="fp16x3"),
        "default": gemmlab.matmul,
        "sgemm": gpu.torch.matmul,
    }
    for family in ("normal", "uniform"):
        for n in SIZES:
            row: Row = {"family": family, "n": n} | {name: [] for name in ways}
            for seed in range(SYSTEMS):
                a, x = gpu.draw(family, (n, n), 2 * seed), gpu.normal(n, 1, seed=2 * seed + 1)
                right = (a.double() @ x.double()).float()
                for name, product in ways.items():
                    row[name].append(float(f"{residual(gpu, a, right, product):.3g}"))
            yield row


def residual(gpu: Gpu, a: Any, right: Any, product: Multiply) -> float:
    """Residual of the system a·x = right, solved with `factored`."""
    torch = gpu.torch
    lu, order = factored(gpu, a.clone(), product)
    lower = torch.linalg.solve_triangular(lu, right[order], upper=False, unitriangular=True)
    found = torch.linalg.solve_triangular(lu, lower, upper=True).double()
    exact = a.double()
    scale = accuracy.U * exact.norm() * found.norm()
    return float(((right.double() - exact @ found).norm() / scale).item())


def factored(gpu: Gpu, a: Any, product: Multiply) -> tuple[Any, Any]:
    """Blocked in-place LU with partial pivoting; `product` updates the trailing matrix."""
    torch, n = gpu.torch, len(a)
    order = torch.arange(n, device=gpu.place)
    for i in range(0, n, LU_BLOCK):
        j = min(i + LU_BLOCK, n)
        panel, pivots = torch.linalg.lu_factor(a[i:, i:j])
        swaps = torch.lu_unpack(panel, pivots, unpack_data=False)[0].argmax(0)
        a[i:] = a[i:][swaps]
        order[i:] = order[i:][swaps]
        a[i:, i:j] = panel
        if j < n:
            a[i:j, j:] = torch.linalg.solve_triangular(
                panel[: j - i], a[i:j, j:], upper=False, unitriangular=True
            )
            a[j:, j:] -= product(a[j:, i:j], a[i:j, j:])
    return a, order
