"""One head of attention: out = softmax(q·kᵀ / 8)·v, with 64 numbers per query, key and value.

Every kernel of this problem takes q, k and v, float32 (t, 64), out (t, 64), and t, int32. A score
is a sum of 64 products, and exp turns its absolute error into a relative one; the result is a sum
of t products. The magnitude has the errors of the scores, weighted as the results are.
"""

from __future__ import annotations

import numpy as np

from gemmlab.problems.arrays import ArrayProblem
from gemmlab.problems.problem import Shapes
from gemmlab.problems.rounding import sum_bound_u
from gemmlab.problems.softmax import softmax

DEPTH = 64
SCALE = DEPTH**-0.5


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.asarray(softmax(q @ k.T * SCALE) @ v)


def magnitude(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q @ k.T * SCALE
    weights = softmax(scores)
    below = np.abs(scores - scores.max(axis=-1, keepdims=True))
    # In units of one rounding: sum_bound_u(64) for a score and for the maximum.
    size = 1 + below + np.abs(q) @ np.abs(k).T * SCALE
    own = (weights * size).sum(axis=-1, keepdims=True)
    return np.asarray((weights * (size + own)) @ np.abs(v))


ATTENTION = ArrayProblem(
    name="attention",
    axes=("t",),
    inputs={"q": f"t,{DEPTH}", "k": f"t,{DEPTH}", "v": f"t,{DEPTH}"},
    output={"out": f"t,{DEPTH}"},
    reference=attention,
    bound=lambda t: 8 + 2 * sum_bound_u(DEPTH) + sum_bound_u(t),
    magnitude=magnitude,
    operations=lambda t: 4 * t * t * DEPTH,
    default_size=256,
    judged=Shapes(small=((70,), (1,), (33,), (129,)), large=((1000,), (2048,)), counted=(256,)),
)
