"""Products of float32 multiply-adds on the emulator, by a route of choice."""

from __future__ import annotations

from typing import Any

import emulation
import numpy as np

from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import program
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.program import Factor, Job, Route
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.planning.times import FMA
from gemmlab.linalg.shapes import Stack
from gemmlab.problems.rounding import sum_bound_u

U = 2.0**-24


def run(
    a: np.ndarray,
    b: np.ndarray,
    route: Route,
    *,
    way: str = "nn",
    alpha: float = 1.0,
    beta: float = 0.0,
    added: tuple[Stack, np.ndarray] | None = None,
    gap: int = 0,
    **checks: Any,
) -> np.ndarray:
    """alpha·a·b + beta·(what is added, or 3) for a (batch, m, k) and b (k, n), or (batch, k, n).

    way: "t" for each factor that is the transpose of what lies in memory. gap: how many NaN precede
    each factor, and follow each of its lines.
    """
    memory = emulation.DeviceImage(**checks)
    (batch, m, k), n = a.shape, b.shape[-1]
    arrays, steps, strides = {}, list[int](), list[tuple[int, int]]()
    for name, x, flip in zip("ab", (a, b), way, strict=True):
        lines = x.swapaxes(-1, -2) if flip == "t" else x
        padded = np.pad(lines, [(0, 0)] * (x.ndim - 1) + [(0, gap)], constant_values=np.nan)
        arrays[name] = np.concatenate([np.full(gap, np.nan, "f4"), padded.ravel()])
        pitch = padded.shape[-1]
        steps.append(padded.shape[-2] * pitch if x.ndim > 2 and batch > 1 else 0)
        strides.append((1, pitch) if flip == "t" else (pitch, 1))
    (row_a, column_a), (row_b, column_b) = strides
    left = Stack(m, k, row_a, column_a, batch, steps[0]).operand()
    right = Stack(k, n, row_b, column_b, batch, steps[1]).transposed.operand()
    assert left is not None and right is not None
    d, source = added or (None, np.empty(1))
    c = np.full((batch, m, n), 3.0 if beta and d is None else np.nan, np.float32)
    job = Job(
        Factor("a", left, FMA),
        Factor("b", right, FMA),
        Stack(m, n, n, 1, batch, m * n if batch > 1 else 0),
        Choice(FMA, "", None, SM90),
        alpha,
        beta,
        d=d,
        route=route,
    )
    at = {name: memory.place(x) for name, x in {"c": c, "d": source}.items()}
    at |= {name: memory.place(x) + 4 * gap for name, x in arrays.items()}
    assert job.sizes(132) == (0, 0, 0, 0)
    (launch,) = job.launches(WorkspaceAddresses(0, 0, 0), 132)
    memory.run(*program.placed([launch], at))
    return c


def check(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Each element keeps the bound of the contract."""
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    error = np.abs(c - exact)
    assert np.isfinite(c).all()
    assert (error <= sum_bound_u(a.shape[-1]) * U * size).all()
