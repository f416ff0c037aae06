"""Pairs of matrices whose products have few terms, or terms of very different sizes.

In float16 parts, elements 2^17 times smaller than the largest of their row or column lose bits.
This matters in elements of C without larger terms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]
Family = Callable[[np.random.Generator, int, int, int], Pair]


def specks(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal numbers, a few of them 2^15 to 2^25 times smaller: fewer than a wide vector has."""
    x = rng.standard_normal(shape).astype(np.float32)
    few = rng.random(shape) < 1.5 / max(shape)
    return np.where(few, x * 2.0 ** rng.integers(-25, -14, shape).astype(np.float32), x)


def one_hot(rng: np.random.Generator, m: int, k: int) -> np.ndarray:
    return np.eye(k, dtype=np.float32)[rng.integers(0, k, m)]


def sparse(rng: np.random.Generator, m: int, k: int, share: float) -> np.ndarray:
    return np.where(rng.random((m, k)) < share, specks(rng, m, k), np.float32(0))


def outliers(rng: np.random.Generator, m: int, k: int) -> np.ndarray:
    """One element of each row is 10^6 times larger than the others."""
    x = rng.standard_normal((m, k)).astype(np.float32)
    x[np.arange(m), rng.integers(0, k, m)] *= np.float32(1e6)
    return x


def large_meets_small(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """The first column of A is 10^10 times larger, where B's first row is as much smaller."""
    a, b = specks(rng, m, k), specks(rng, k, n)
    a[:, 0] *= np.float32(1e10)
    b[0] *= np.float32(1e-10)
    return a, b


def one_wide_row(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """One row of A has an element 10^10 times larger than all others, which meets zeros."""
    a, b = specks(rng, m, k), specks(rng, k, n)
    a[m // 2, 0] = 1e10
    b[0] = 0
    return a, b


def block_diagonal(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    rows, columns = np.arange(m)[:, None] * 8 // m, np.arange(k) * 8 // k
    return np.where(rows == columns, specks(rng, m, k), np.float32(0)), specks(rng, k, n)


def mask(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    return np.tri(m, k, dtype=np.float32), specks(rng, k, n)


def diagonal(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """Magnitudes from 1 to 10^-8 on the diagonal of A."""
    a = np.eye(m, k, dtype=np.float32) * np.logspace(0, -8, k, dtype=np.float32)
    return a, specks(rng, k, n)


def nearly_identity(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """As in the matrix exponential: numbers 2^13 times smaller beside the diagonal."""
    small = rng.standard_normal((rows, columns), np.float32) * np.float32(2.0**-13)
    return np.eye(rows, columns, dtype=np.float32) + small


def cancelling(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """The second half of A and B cancels the first, except for the specks in A's first half."""
    a, b = specks(rng, m, k // 2), rng.standard_normal((k // 2, n)).astype(np.float32)
    return np.hstack([a, -np.where(np.abs(a) < 2**-12, 0, a)]), np.vstack([b, b])


def gradients(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """Gradients of m features for k tokens, a few of them far larger, times activations."""
    a = rng.standard_normal((m, k)) * np.exp2(rng.standard_normal((m, k)) - 12)
    a[:, :: max(k // 8, 1)] *= 2.0**12
    return a.astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)


def softmax_gradients(rng: np.random.Generator, m: int, n: int, k: int) -> Pair:
    """Probabilities of k classes minus one for the right class, times embeddings."""
    p = np.exp(1.5 * rng.standard_normal((m, k)) - 9.5)
    p[np.arange(m), rng.integers(0, k, m)] -= 1
    return p.astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)


FAMILIES: dict[str, Family] = {
    "normal": lambda rng, m, n, k: (specks(rng, m, k), specks(rng, k, n)),
    "one-hot": lambda rng, m, n, k: (one_hot(rng, m, k), specks(rng, k, n)),
    "embedding gradient": lambda rng, m, n, k: (one_hot(rng, k, m).T, specks(rng, k, n)),
    "identity": lambda rng, m, n, k: (np.eye(m, k, dtype=np.float32), specks(rng, k, n)),
    "permutation": lambda rng, m, n, k: (
        np.eye(m, k, dtype=np.float32)[rng.permutation(m)],
        specks(rng, k, n),
    ),
    "diagonal": diagonal,
    "both nearly identity": lambda rng, m, n, k: (
        nearly_identity(rng, m, k),
        nearly_identity(rng, k, n),
    ),
    "block-diagonal": block_diagonal,
    "mask": mask,
    "1 % sparse": lambda rng, m, n, k: (sparse(rng, m, k, 0.01), specks(rng, k, n)),
    "0.1 % sparse": lambda rng, m, n, k: (sparse(rng, m, k, 0.001), specks(rng, k, n)),
    "both sparse": lambda rng, m, n, k: (sparse(rng, m, k, 0.05), sparse(rng, n, k, 0.05).T),
    "an outlier per row": lambda rng, m, n, k: (outliers(rng, m, k), specks(rng, k, n)),
    "large meets small": large_meets_small,
    "one wide row": one_wide_row,
    "cancelling": cancelling,
    "gradients": gradients,
    "softmax gradients": softmax_gradients,
}
