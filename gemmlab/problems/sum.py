"""The sum of n float32 numbers.

The C ABI of every kernel of this problem, in order:

    x      float32 pointer
    out    float32 pointer to one number, an accumulator: it holds 0 when the kernel starts
    n      int64

Kernels add to `out` atomically, once per block at the end, in whatever order blocks finish; so the
caller zeroes it first, and the last bits may differ from run to run on a GPU. The sum of nothing is
0, for which nothing is launched.

The error bound is that of a sum of n terms (rounding.py), measured against the sum of |x|. A tree
of partial sums stays far below it: its roundings number log2(n) on the way of each term. Atomic
additions of float32 in global memory take subnormals for zeros, a loss of 2**-126 each at most; the
magnitude holds n·FLUSHED for that.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmlab.problems.inputs import FAMILIES, draw
from gemmlab.problems.problem import TINY, Case, Parameter, Shape, U, check_case
from gemmlab.problems.rounding import sizes, sum_bound_u

MOST = 2**38  # 1 TB of float32
FLUSHED = TINY / U


class SumCase:
    """One vector `x` (n,)."""

    def __init__(self, shape: Shape, layout: str, family: str, seed: int, x: np.ndarray) -> None:
        self.shape: Shape = dict(shape)
        self.layout, self.family, self.seed = layout, family, seed
        self.x = x
        self.buffers: Mapping[str, np.ndarray] = {"x": x}
        self.scalars: Mapping[str, int] = {"n": x.size}
        self.output, self.output_size, self.output_dtype = "out", 1, "float32"

    def result(self, image: np.ndarray) -> np.ndarray:
        return image

    def reference(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.array([self.x.sum(dtype=np.float64)])

    def magnitude(self, least: float = TINY) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.array([sizes(self.x, least).sum() + max(self.x.size, 1) * FLUSHED])


class Sum:
    """The problem of the sum; see the module for the ABI and the error bound."""

    name = "sum"
    axes: tuple[str, ...] = ("n",)
    layouts: tuple[str, ...] = ("row",)
    families: tuple[str, ...] = tuple(name for name in FAMILIES if name != "one-hot")
    parameters: tuple[Parameter, ...] = (
        Parameter("x", "float32", "input"),
        Parameter("out", "float32", "accumulator"),
        Parameter("n", "int64", "scalar"),
    )
    default_size = 2**17
    emulated_size = 2**21

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw x. Raises ShapeError, UnknownNameError, InputError for the seed."""
        check_case(self, shape, layout, 0, MOST)
        n = shape["n"]
        # The right operand of a product is the one whose neighbours cancel.
        x = draw(family, (n,), (1, max(n, 1)), 1, seed)[0, :n]
        return SumCase(shape, layout, family, seed, x)

    def flops(self, shape: Shape) -> int:
        return shape["n"]

    def min_bytes(self, shape: Shape) -> int:
        return 4 * shape["n"] + 4

    def bound_u(self, shape: Shape) -> float:
        return sum_bound_u(shape["n"])
