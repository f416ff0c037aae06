"""What is to be computed: parameters, inputs, float64 reference, work and error bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

U = 2.0**-24  # unit roundoff of float32, the unit of every error gemmlab reports

Shape = Mapping[str, int]  # axis name -> extent, {"m": 256, "n": 256, "k": 256}


@dataclass(frozen=True)
class Parameter:
    """One argument of a problem's C ABI, in order."""

    name: str
    dtype: str  # NumPy name: "float32", "int32", "int64"
    kind: Literal["input", "output", "scalar"]


class Case(Protocol):
    """One instance of a problem: inputs drawn, answer known."""

    shape: Shape
    layout: str
    family: str
    seed: int
    buffers: Mapping[str, np.ndarray]  # inputs only: 1-D images of device memory, by parameter name
    scalars: Mapping[str, int]  # sizes and leading dimensions, by parameter name
    output: str  # name of the output parameter
    output_size: int  # elements of its 1-D image
    output_dtype: str

    def result(self, image: np.ndarray) -> np.ndarray:
        """The output as the problem's own array, e.g. (m, n), from its 1-D image."""

    def reference(self) -> np.ndarray:
        """The answer in float64, same shape as `result`."""

    def magnitude(self) -> np.ndarray:
        """What errors are measured against, element by element: |A||B| for a product."""


class Problem(Protocol):
    """A family of cases."""

    name: str
    axes: tuple[str, ...]
    layouts: tuple[str, ...]
    families: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case: ...

    def flops(self, shape: Shape) -> int: ...

    def min_bytes(self, shape: Shape) -> int:
        """Each input read once, each output written once."""

    def bound_u(self, shape: Shape) -> float:
        """Largest error, in units of u·magnitude, of correct float32 arithmetic in any order."""
