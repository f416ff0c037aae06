"""y = (x - mean) / sqrt(variance + 1e-5) · gamma + beta, for each row of x.

Every kernel of this problem takes x, float32 (m, n), gamma and beta (n), y (m, n), and m and n,
int32. The magnitude has the rounding of the mean and the variance, both sums of n terms.
"""

from __future__ import annotations

import numpy as np

from gemmlab.problems.arrays import ArrayProblem
from gemmlab.problems.problem import Tensors
from gemmlab.problems.rounding import sum_bound_u

EPSILON = 1e-5


def layernorm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + EPSILON) * gamma + beta)


def magnitude(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    size = np.abs(x).mean(axis=-1, keepdims=True)
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + EPSILON)
    moved = (np.abs(x) + size) / deviation  # an error of the mean moves x by u·size
    spread = np.abs(centred) / deviation * (1 + size / deviation)
    return np.asarray((moved + spread) * np.abs(gamma) + np.abs(beta))


LAYERNORM = ArrayProblem(
    name="layernorm",
    axes=("m", "n"),
    inputs={"x": "m,n", "gamma": "n", "beta": "n"},
    output={"y": "m,n"},
    reference=layernorm,
    bound=lambda m, n: 8 + sum_bound_u(n),
    magnitude=magnitude,
    operations=lambda m, n: 8 * m * n,
    tensors=Tensors(
        {"x": ("m", "n"), "gamma": ("n",), "beta": ("n",), "y": ("m", "n")},
        "torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta)",
    ),
)
