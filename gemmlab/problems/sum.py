"""The sum of n float32 numbers.

Every kernel of this problem takes these parameters, in this order (C ABI):

    x      float32 pointer
    out    float32 pointer to one number, an accumulator: zeroed before the kernel starts
    n      int64

Each block adds its partial sum to `out` with one atomic addition when it finishes. The caller
therefore zeroes `out` first, and on a GPU the last bits may differ between runs, because the order
of the blocks does. For n = 0 no kernel is launched and the sum is 0.

The error bound is that of a sum of n terms (rounding.py), relative to the sum of |x|. A tree of
partial sums stays far below it, because each term passes through only log2(n) roundings. Atomic
float32 additions in global memory flush subnormals to zero, a loss of at most 2**-126 each; the
magnitude includes n·FLUSHED for this loss.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmlab.problems.inputs import FAMILIES, draw
from gemmlab.problems.problem import TINY, VECTOR, Case, Parameter, Shape, Tensors, U, check_case
from gemmlab.problems.rounding import sizes, sum_bound_u

MOST = 2**38  # 1 TB of float32
FLUSHED = TINY / U


class SumCase:
    """One vector `x` (n,), float32."""

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
    """The sum of a vector; the module docstring gives the ABI and the error bound."""

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
    measured_size = 2**28
    judged = VECTOR
    tensors: Tensors | None = Tensors({"x": ("n",), "out": ("one",)}, "x.sum().reshape(1)")

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw x.

        Raises ShapeError, UnknownNameError (layout, family) and InputError (negative seed).
        """
        check_case(self, shape, layout, 0, MOST)
        n = shape["n"]
        # Operand 1: `cancellation` makes adjacent terms cancel only in the right factor.
        x = draw(family, (n,), (1, max(n, 1)), 1, seed)[0, :n]
        return SumCase(shape, layout, family, seed, x)

    def flops(self, shape: Shape) -> int:
        return shape["n"]

    def min_bytes(self, shape: Shape) -> int:
        return 4 * shape["n"] + 4

    def bound_u(self, shape: Shape) -> float:
        return sum_bound_u(shape["n"])
