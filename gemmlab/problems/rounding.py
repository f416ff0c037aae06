"""How large may the error of a correct float32 sum of K terms or products be?

Whatever the order of the sum, fused or not, each term goes through at most K roundings, so
|c - sum| <= K·u/(1 - K·u)·magnitude always, with u = 2**-24 and magnitude the sum of the absolute
values. That is sharp for K of a few and far too kind for more: TF32 inputs, 8192 u wrong each,
average down to some hundred u at K = 4096 and would pass.

On inputs drawn at random the roundings behave as independent errors of mean zero, each at most u
times the partial sum, itself at most magnitude. By Hoeffding's inequality the sum of K of them
exceeds lambda·sqrt(K)·u·magnitude with probability at most 2·exp(-lambda²/2), and a real partial
sum is far below its bound: the worst order (one long chain) on the worst family (all terms
positive) has a standard deviation of 0.41·sqrt(K/3) u, 0.41 u being that of one rounding.
lambda = 2 is more than eight of those. So

    bound_u = t·(1 + 2·t·u),   t = min(K, 2·sqrt(K))

the last factor covering the denominator above and the float64 reference. Outside the model, and
outside the families, is a constant operand, whose roundings all go the same way. A chain of more
than 2**24 positive terms is outside too: its partial sum is so large that terms vanish in it, and
the bound refuses it, as it should.

Below 2**-126 a rounding error is absolute, 2**-150 per operation; a magnitude holds that as K·TINY
beside the absolute values, u times which is K·2**-150.
"""

from __future__ import annotations

import math

import numpy as np

from gemmlab.problems.problem import U


def sum_bound_u(terms: int) -> float:
    """Largest error of a float32 sum of `terms`, in units of u·magnitude."""
    most = min(terms, 2 * math.sqrt(terms))
    return most * (1 + 2 * most * U)


def sizes(x: np.ndarray, least: float) -> np.ndarray:
    """|x| in float64, where all but zeros count as `least` or more."""
    size: np.ndarray = np.abs(x, dtype=np.float64)
    np.maximum(size, least, out=size, where=size > 0)
    return size
