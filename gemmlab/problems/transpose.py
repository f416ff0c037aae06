"""B = Aᵀ in float32: A is (m, n), B is (n, m), both row-major.

Every kernel of this problem takes these parameters, in this order (C ABI):

    a, b        float32 pointers
    m, n        int32
    lda, ldb    int64, elements from one row to the next

A transpose rounds nothing, so the error bound is 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmlab.problems.inputs import FAMILIES, draw
from gemmlab.problems.problem import TINY, Case, Parameter, Shape, Shapes, Tensors, check_case

MOST = 2**31 - 1024  # keeps the indices of a block at the edge within 32 bits


class TransposeCase:
    """One matrix `a` (m, n), float32."""

    def __init__(self, shape: Shape, layout: str, family: str, seed: int, a: np.ndarray) -> None:
        m, n = shape["m"], shape["n"]
        self.shape: Shape = dict(shape)
        self.layout, self.family, self.seed = layout, family, seed
        self.a = a
        self.buffers: Mapping[str, np.ndarray] = {"a": a.ravel()}
        self.scalars: Mapping[str, int] = {"m": m, "n": n, "lda": n, "ldb": m}
        self.output, self.output_size, self.output_dtype = "b", m * n, "float32"

    def result(self, image: np.ndarray) -> np.ndarray:
        return image.reshape(self.shape["n"], self.shape["m"])

    def reference(self) -> np.ndarray:
        return self.a.T.astype(np.float64)

    def magnitude(self, least: float = TINY) -> np.ndarray:
        return np.ones((self.shape["n"], self.shape["m"]))


class Transpose:
    """The problem B = Aᵀ; the module docstring gives the ABI."""

    name = "transpose"
    axes: tuple[str, ...] = ("m", "n")
    layouts: tuple[str, ...] = ("row",)
    families: tuple[str, ...] = tuple(FAMILIES)
    parameters: tuple[Parameter, ...] = (
        Parameter("a", "float32", "input"),
        Parameter("b", "float32", "output"),
        Parameter("m", "int32", "scalar"),
        Parameter("n", "int32", "scalar"),
        Parameter("lda", "int64", "scalar"),
        Parameter("ldb", "int64", "scalar"),
    )
    default_size = 512
    emulated_size = 2048
    measured_size = 8192
    judged = Shapes(
        small=((33, 31), (1, 1), (260, 2), (3, 261), (129, 65)),
        large=((1000, 777), (1, 5000), (20_011, 3), (4097, 2049)),
        counted=(512, 512),
    )
    tensors: Tensors | None = Tensors({"a": ("m", "n"), "b": ("n", "m")}, "a.T.contiguous()")

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw A.

        Raises ShapeError, UnknownNameError (layout, family) and InputError (negative seed).
        """
        check_case(self, shape, layout, 0, MOST)
        size = shape["m"], shape["n"]
        # Families need at least one row and one column to draw from, even for an empty matrix.
        a = draw(family, size, (max(size[0], 1), max(size[1], 1)), 0, seed)
        return TransposeCase(shape, layout, family, seed, a[: size[0], : size[1]])

    def flops(self, shape: Shape) -> int:
        return 0

    def min_bytes(self, shape: Shape) -> int:
        return 2 * 4 * shape["m"] * shape["n"]

    def bound_u(self, shape: Shape) -> float:
        return 0.0
