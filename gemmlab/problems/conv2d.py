"""The convolution of an image with 5×5 weights, as neural networks define it: no flip.

    y[i, j] = Σ x[i + r - 2, j + s - 2] · w[r, s],   r and s from 0 to 4

Every kernel of this problem takes x, float32 (h, w), weights (5, 5), y (h, w), and h and w, int32.
Outside the image x is 0. Each result is a sum of 25 products (rounding.py).
"""

from __future__ import annotations

import numpy as np

from gemmlab.problems.arrays import ArrayProblem
from gemmlab.problems.problem import Shapes
from gemmlab.problems.rounding import sum_bound_u

SIDE = 5


def conv2d(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    wide = np.pad(x, SIDE // 2)
    windows = np.lib.stride_tricks.sliding_window_view(wide, weights.shape)
    return np.asarray(np.einsum("ijrs,rs->ij", windows, weights))


CONV2D = ArrayProblem(
    name="conv2d",
    axes=("h", "w"),
    inputs={"x": "h,w", "weights": f"{SIDE},{SIDE}"},
    output={"y": "h,w"},
    reference=conv2d,
    bound=sum_bound_u(SIDE * SIDE),
    magnitude=lambda x, weights: conv2d(np.abs(x), np.abs(weights)),
    operations=lambda h, w: 2 * SIDE * SIDE * h * w,
    judged=Shapes(
        small=((33, 65), (1, 1), (3, 200), (200, 4), (64, 64)),
        large=((257, 1025), (2048, 2048)),
        counted=(256, 256),
    ),
)
