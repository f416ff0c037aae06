"""y = softmax(x) of each row: y[i, j] = exp(x[i, j] - max) / Σ exp(x[i, j] - max).

Every kernel of this problem takes x and y, float32 (m, n), and m and n, int32. The difference from
the maximum is rounded once, so exp has a relative error of up to u·|x - max|; the sum adds its own
errors, weighted by the results. The magnitude includes both.
"""

from __future__ import annotations

import numpy as np

from gemmlab.problems.arrays import ArrayProblem
from gemmlab.problems.problem import Tensors
from gemmlab.problems.rounding import sum_bound_u


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def magnitude(x: np.ndarray) -> np.ndarray:
    y, below = softmax(x), np.abs(x - x.max(axis=-1, keepdims=True))
    return np.asarray(y * (1 + below + (y * below).sum(axis=-1, keepdims=True)))


SOFTMAX = ArrayProblem(
    name="softmax",
    axes=("m", "n"),
    inputs={"x": "m,n"},
    output={"y": "m,n"},
    reference=softmax,
    bound=lambda m, n: 8 + sum_bound_u(n),
    magnitude=magnitude,
    operations=lambda m, n: 4 * m * n,
    tensors=Tensors({"x": ("m", "n"), "y": ("m", "n")}, "torch.softmax(x, -1)"),
)
