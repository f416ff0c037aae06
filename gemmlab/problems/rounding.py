"""The error bound of a correct float32 sum of K terms or products.

In any order of summation, fused or not, each term passes through at most K roundings. Hence
|c - sum| <= K·u/(1 - K·u)·magnitude always, where u = 2**-24 and magnitude is the sum of the
absolute values. This bound is sharp for small K but far too loose for large K: TF32 inputs, each
wrong by up to 8192 u, average to about a hundred u at K = 4096 and would pass.

On random inputs, rounding errors behave as independent random variables of mean zero. Each is at
most u times the partial sum, and the partial sum is at most magnitude. By Hoeffding's inequality
the sum of K of them exceeds lambda·sqrt(K)·u·magnitude with probability at most 2·exp(-lambda²/2).
Actual partial sums are far below magnitude: for the worst order (one long chain) on the worst
family (all terms positive) the standard deviation is 0.41·sqrt(K/3) u, where 0.41 u is that of one
rounding. lambda = 2 exceeds eight of these standard deviations. Therefore

    bound_u = t·(1 + 2·t·u),   t = min(K, 2·sqrt(K))

The last factor covers the denominator above and the float64 reference. The model does not hold for
a constant operand, whose roundings all have the same sign; no family draws one. It does not hold
for a chain of more than 2**24 positive terms either: the partial sum grows so large that further
terms vanish in it. The bound rejects such a chain, as it should.

Below 2**-126 a rounding error is absolute, 2**-150 per operation. A magnitude includes the term
K·TINY for these errors: u·K·TINY = K·2**-150.
"""

from __future__ import annotations

import math

import numpy as np

from gemmlab.problems.problem import U


def sum_bound_u(terms: int) -> float:
    """Return the largest error of a float32 sum of `terms` terms, in units of u·magnitude."""
    most = min(terms, 2 * math.sqrt(terms))
    return most * (1 + 2 * most * U)


def sizes(x: np.ndarray, least: float) -> np.ndarray:
    """Return |x| in float64, with nonzero elements raised to at least `least`."""
    size: np.ndarray = np.abs(x, dtype=np.float64)
    np.maximum(size, least, out=size, where=size > 0)
    return size
