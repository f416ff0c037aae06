"""The inclusive prefix sums of each row: y[i, j] = x[i, 0] + … + x[i, j].

Every kernel of this problem takes x and y, float32 (m, n), and m and n, int32. Each result is a sum
of at most n terms (rounding.py).
"""

from __future__ import annotations

import numpy as np

from gemmlab.problems.arrays import ArrayProblem
from gemmlab.problems.problem import Tensors
from gemmlab.problems.rounding import sum_bound_u

SCAN = ArrayProblem(
    name="scan",
    axes=("m", "n"),
    inputs={"x": "m,n"},
    output={"y": "m,n"},
    reference=lambda x: np.cumsum(x, axis=-1),
    bound=lambda m, n: sum_bound_u(n),
    magnitude=lambda x: np.cumsum(np.abs(x), axis=-1),
    operations=lambda m, n: m * n,
    tensors=Tensors({"x": ("m", "n"), "y": ("m", "n")}, "torch.cumsum(x, -1)"),
)
