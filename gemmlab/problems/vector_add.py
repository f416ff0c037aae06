"""c = a + b for vectors of n float32 numbers.

The C ABI of every kernel of this problem, in order:

    a, b, c    float32 pointers
    n          int64

An element is one addition, which IEEE 754 rounds to the nearest float32: there is one right answer,
so the bound is 0. The float64 sum of two float32 numbers, rounded once more to float32, is that
answer: 53 bits are more than twice 24 and two, for which the second rounding changes nothing
(Figueroa, "When is double rounding innocuous?", 1995).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmlab.problems.inputs import FAMILIES, draw
from gemmlab.problems.problem import TINY, Case, Parameter, Shape, check_case

MOST = 2**38  # 1 TB of float32


class VectorAddCase:
    """Two vectors `a` and `b` (n,)."""

    def __init__(
        self, shape: Shape, layout: str, family: str, seed: int, a: np.ndarray, b: np.ndarray
    ) -> None:
        self.shape: Shape = dict(shape)
        self.layout, self.family, self.seed = layout, family, seed
        self.a, self.b = a, b
        self.buffers: Mapping[str, np.ndarray] = {"a": a, "b": b}
        self.scalars: Mapping[str, int] = {"n": a.size}
        self.output, self.output_size, self.output_dtype = "c", a.size, "float32"

    def result(self, image: np.ndarray) -> np.ndarray:
        return image

    def reference(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            total = self.a + self.b.astype(np.float64)
        return total.astype(np.float32).astype(np.float64)

    def magnitude(self, least: float = TINY) -> np.ndarray:
        return np.ones(self.a.size)


class VectorAdd:
    """The problem c = a + b; see the module for the ABI."""

    name = "vector-add"
    axes: tuple[str, ...] = ("n",)
    layouts: tuple[str, ...] = ("row",)
    families: tuple[str, ...] = tuple(name for name in FAMILIES if name != "one-hot")
    parameters: tuple[Parameter, ...] = (
        Parameter("a", "float32", "input"),
        Parameter("b", "float32", "input"),
        Parameter("c", "float32", "output"),
        Parameter("n", "int64", "scalar"),
    )
    default_size = 2**22
    emulated_size = 2**22

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw a and b. Raises ShapeError, UnknownNameError, InputError for the seed."""
        check_case(self, shape, layout, 0, MOST)
        n = shape["n"]
        # An element of c is the sum of a row of two terms, of which there must be one to draw. The
        # right operand of a product is the one whose neighbours cancel.
        terms = draw(family, (n,), (max(n, 1), 2), 1, seed)[:n]
        a, b = np.ascontiguousarray(terms.T)
        return VectorAddCase(shape, layout, family, seed, a, b)

    def flops(self, shape: Shape) -> int:
        return shape["n"]

    def min_bytes(self, shape: Shape) -> int:
        return 3 * 4 * shape["n"]

    def bound_u(self, shape: Shape) -> float:
        return 0.0
