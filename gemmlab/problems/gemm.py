"""C = A·B in float32: A is (m, k), B is (k, n), C is (m, n).

The C ABI of every kernel of this problem, in order:

    a, b, c             float32 pointers
    m, n, k             int32
    lda, ldb, ldc       int64, elements from one row (column) to the next

    layout    A          B             C
    row       row-major  row-major     row-major
    course    row-major  column-major  column-major


How large may the error of correct float32 arithmetic be?

Whatever the order of the sum, fused or not, each of the K products goes through at most K
roundings, so |c - ab| <= K·u/(1 - K·u)·(|A||B|) always, with u = 2**-24. That is sharp for K of a
few and far too kind for more: TF32 inputs, 8192 u wrong each, average down to some hundred u at
K = 4096 and would pass.

On inputs drawn at random the roundings behave as independent errors of mean zero, each at most u
times the partial sum, itself at most |A||B|. By Hoeffding's inequality the sum of K of them exceeds
lambda·sqrt(K)·u·(|A||B|) with probability at most 2·exp(-lambda²/2), and a real partial sum is far
below its bound: the worst order (one long chain) on the worst family (all terms positive) has a
standard deviation of 0.41·sqrt(K/3) u, 0.41 u being that of one rounding. lambda = 2 is more than
eight of those. So

    bound_u = min(K, 2·sqrt(K))·(1 + 2·K·u)

the last factor covering the denominator above and the float64 reference. A constant matrix, whose
roundings all go the same way, is outside the model and outside the families.

Below 2**-126 a rounding error is absolute, 2**-150 per operation; `magnitude` holds that as
K·2**-126 beside |A||B|, u times which is K·2**-150.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import numpy as np

from gemmlab.errors import ShapeError, UnknownNameError
from gemmlab.problems.inputs import FAMILIES, draw
from gemmlab.problems.problem import Case, Parameter, Shape, U

INT32_MAX = 2**31 - 1


class GemmCase:
    """One product: `a` (m, k) and `b` (k, n), float32, and where they lie in memory."""

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

    def magnitude(self) -> np.ndarray:
        return self._magnitude

    @cached_property
    def _reference(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            product: np.ndarray = self.a.astype(np.float64) @ self.b.astype(np.float64)
        return product

    @cached_property
    def _magnitude(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            product = np.abs(self.a.astype(np.float64)) @ np.abs(self.b.astype(np.float64))
        return np.asarray(product + self.shape["k"] * 2.0**-126)


class Gemm:
    """The problem C = A·B; see the module for the ABI and the error bound."""

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

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw the inputs. Raises ShapeError, UnknownNameError for layout and family, InputError
        for the seed."""
        sizes = tuple(shape[axis] for axis in self.axes)
        for axis, size in zip(self.axes, sizes, strict=True):
            if not 1 <= size <= INT32_MAX:
                raise ShapeError(f"{axis} = {size} is not between 1 and {INT32_MAX}")
        if layout not in self.layouts:
            known = ", ".join(self.layouts)
            raise UnknownNameError(f"no layout {layout!r}; there is: {known}")
        m, n, k = sizes
        a = draw(family, sizes, (m, k), 0, seed)
        b = draw(family, sizes, (n, k), 1, seed).T
        return GemmCase(dict(shape), layout, family, seed, a, b)

    def flops(self, shape: Shape) -> int:
        return 2 * shape["m"] * shape["n"] * shape["k"]

    def min_bytes(self, shape: Shape) -> int:
        m, n, k = shape["m"], shape["n"], shape["k"]
        return 4 * (m * k + k * n + m * n)

    def bound_u(self, shape: Shape) -> float:
        k = shape["k"]
        return min(k, 2 * math.sqrt(k)) * (1 + 2 * k * U)
