"""C = A·B in float32: A is (m, k), B is (k, n), C is (m, n).

Every kernel of this problem takes these parameters, in this order (C ABI):

    a, b, c             float32 pointers
    m, n, k             int32
    lda, ldb, ldc       int64, elements from one row (column) to the next

    layout    A          B             C
    row       row-major  row-major     row-major
    course    row-major  column-major  column-major

The error bound is that of a sum of k products (rounding.py), relative to |A||B|.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import numpy as np

from gemmlab.problems.inputs import FAMILIES, draw
from gemmlab.problems.problem import TINY, Case, Parameter, Shape, Shapes, Tensors, check_case
from gemmlab.problems.rounding import sizes, sum_bound_u

INT32_MAX = 2**31 - 1


class GemmCase:
    """One product of `a` (m, k) and `b` (k, n), float32, with their device memory images."""

    def __init__(
        self, shape: Shape, layout: str, family: str, seed: int, a: np.ndarray, b: np.ndarray
    ) -> None:
        m, n, k = (shape[axis] for axis in "mnk")
        row = layout == "row"
        self.shape: Shape = dict(shape)
        self.layout, self.family, self.seed = layout, family, seed
        self.a, self.b = a, b
        self._order: Literal["C", "F"] = "C" if row else "F"  # how B and C are stored
        self.buffers: Mapping[str, np.ndarray] = {"a": a.ravel(), "b": b.ravel(self._order)}
        self.scalars: Mapping[str, int] = {
            **{"m": m, "n": n, "k": k},
            **{"lda": k, "ldb": n if row else k, "ldc": n if row else m},
        }
        self.output, self.output_size, self.output_dtype = "c", m * n, "float32"

    def result(self, image: np.ndarray) -> np.ndarray:
        return image.reshape(self.shape["m"], self.shape["n"], order=self._order)

    def reference(self) -> np.ndarray:
        return self._reference

    def magnitude(self, least: float = TINY) -> np.ndarray:
        return self._magnitude if least == TINY else self._product_of_sizes(least)

    @cached_property
    def _reference(self) -> np.ndarray:
        return self._product(self.a.astype(np.float64), self.b.astype(np.float64))

    def _product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return a·b, stored as C is, so that comparisons walk through memory in order."""
        with np.errstate(invalid="ignore"):
            product: np.ndarray = a @ b if self._order == "C" else (b.T @ a.T).T
        return product

    @cached_property
    def _magnitude(self) -> np.ndarray:
        return self._product_of_sizes(TINY)

    def _product_of_sizes(self, least: float) -> np.ndarray:
        product = self._product(sizes(self.a, least), sizes(self.b, least))
        return np.asarray(product + self.shape["k"] * TINY)


class Gemm:
    """The problem C = A·B; the module docstring gives the ABI and the error bound."""

    name = "gemm"
    axes: tuple[str, ...] = ("m", "n", "k")
    layouts: tuple[str, ...] = ("row", "course")
    families: tuple[str, ...] = tuple(FAMILIES)
    parameters: tuple[Parameter, ...] = (
        Parameter("a", "float32", "input"),
        Parameter("b", "float32", "input"),
        Parameter("c", "float32", "output"),
        Parameter("m", "int32", "scalar"),
        Parameter("n", "int32", "scalar"),
        Parameter("k", "int32", "scalar"),
        Parameter("lda", "int64", "scalar"),
        Parameter("ldb", "int64", "scalar"),
        Parameter("ldc", "int64", "scalar"),
    )
    default_size = 512
    emulated_size = 512
    measured_size = 4096
    judged = Shapes(
        small=((33, 31, 17), (1, 1, 1), (260, 3, 5), (1, 261, 9), (2, 3, 131), (129, 65, 20)),
        large=(
            *((127, 129, 65), (1, 1000, 300)),
            *((20_011, 3, 2), (3, 20_011, 2), (2, 3, 20_011)),
            *((1000, 513, 777), (1536, 1024, 2048)),
        ),
        counted=(256, 256, 64),
    )
    tensors: Tensors | None = Tensors({"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}, "a @ b")

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw the inputs.

        Raises ShapeError, UnknownNameError (layout, family) and InputError (negative seed).
        """
        check_case(self, shape, layout, 1, INT32_MAX)
        sizes = tuple(shape[axis] for axis in self.axes)
        m, n, k = sizes
        a = draw(family, sizes, (m, k), 0, seed)
        if family == "zeros" and layout == "row":  # copying a transpose would fill their pages
            b = draw(family, sizes, (k, n), 1, seed)
        else:
            b = draw(family, sizes, (n, k), 1, seed).T
        return GemmCase(dict(shape), layout, family, seed, a, b)

    def flops(self, shape: Shape) -> int:
        return 2 * shape["m"] * shape["n"] * shape["k"]

    def min_bytes(self, shape: Shape) -> int:
        m, n, k = shape["m"], shape["n"], shape["k"]
        return 4 * (m * k + k * n + m * n)

    def bound_u(self, shape: Shape) -> float:
        return sum_bound_u(shape["k"])
