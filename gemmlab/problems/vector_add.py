"""c = a + b for vectors of n float32 numbers.

Every kernel of this problem takes these parameters, in this order (C ABI):

    a, b, c    float32 pointers
    n          int64

Each element is one addition, which IEEE 754 rounds to the nearest float32. There is exactly one
correct result, so the error bound is 0. The reference adds in float64 and rounds to float32. The
double rounding is harmless because 53 >= 2·24 + 2 significand bits (Figueroa, "When is double
rounding innocuous?", 1995).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmlab.problems.inputs import FAMILIES, draw
from gemmlab.problems.problem import TINY, VECTOR, Case, Parameter, Shape, Tensors, check_case

MOST = 2**38  # 1 TB of float32


class VectorAddCase:
    """Two vectors `a` and `b` (n,), float32."""

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
    """The problem c = a + b; the module docstring gives the ABI."""

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
    measured_size = 2**28
    judged = VECTOR
    tensors: Tensors | None = Tensors({"a": ("n",), "b": ("n",), "c": ("n",)}, "a + b")

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw a and b.

        Raises ShapeError, UnknownNameError (layout, family) and InputError (negative seed).
        """
        check_case(self, shape, layout, 0, MOST)
        n = shape["n"]
        # Each element of c sums a row of two terms; families need at least one row to draw from.
        # Operand 1: `cancellation` makes adjacent terms cancel only in the right factor.
        terms = draw(family, (n,), (max(n, 1), 2), 1, seed)[:n]
        a, b = np.ascontiguousarray(terms.T)
        return VectorAddCase(shape, layout, family, seed, a, b)

    def flops(self, shape: Shape) -> int:
        return shape["n"]

    def min_bytes(self, shape: Shape) -> int:
        return 3 * 4 * shape["n"]

    def bound_u(self, shape: Shape) -> float:
        return 0.0
