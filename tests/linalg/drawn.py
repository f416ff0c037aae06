"""Arrays for products: fixed ones, and those that Hypothesis draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SIZES = st.integers(1, 5)
quick = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return np.asarray(rng.standard_normal(shape), np.float32)


@st.composite
def strided(draw: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Draw an array of that shape with gaps, permuted axes or reversed axes."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from([1, 1, 2])) for _ in shape]
    base = numbers(tuple(shape[axis] * gaps[axis] for axis in order), draw(st.integers(0, 9)))
    array = base.transpose(np.argsort(order))
    steps = [draw(st.sampled_from([gap, gap, -gap])) for gap in gaps]
    index: Any = (*(slice(None, None, step) for step in steps), ...)
    return array[index]


@st.composite
def factors(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw compatible operands: 1-D, stacks, broadcast."""
    m, n, k = draw(SIZES), draw(SIZES), draw(SIZES)
    stack = draw(st.lists(SIZES, max_size=3))
    shapes = []
    for matrix in ((m, k), (k, n)):
        own = [draw(st.sampled_from([size, size, 1])) for size in stack]
        own = own[draw(st.integers(0, len(own))) :]
        shapes.append((*own, *matrix))
    if draw(st.integers(0, 4)) == 0:
        shapes[0] = (k,)
    if draw(st.integers(0, 4)) == 0:
        shapes[1] = (k,)
    return draw(strided(shapes[0])), draw(strided(shapes[1]))


def close(result: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    exact = np.matmul(a.astype(float), b.astype(float))
    return result.shape == exact.shape and bool(np.allclose(result, exact, rtol=1e-5, atol=1e-5))


A, B = numbers((4, 5)), numbers((5, 6))
OUT = np.zeros((4, 6), np.float32)
