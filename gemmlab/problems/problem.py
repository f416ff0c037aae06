"""What is to be computed: parameters, inputs, float64 reference, work and error bound."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from gemmlab.errors import ShapeError, UnknownNameError

U = 2.0**-24  # unit roundoff of float32, the unit of every error gemmlab reports
TINY = 2.0**-126  # the smallest normal float32

Kind = Literal["input", "output", "accumulator", "scalar", "workspace"]
Shape = Mapping[str, int]  # axis name -> extent, {"m": 256, "n": 256, "k": 256}


@dataclass(frozen=True)
class Parameter:
    """One argument of a problem's C ABI, in order.

    A kernel writes every element of an "output", whatever it held. It adds to an "accumulator",
    which holds zeros when it starts. A "workspace" is no part of the problem: some kernels take one
    as their last argument, in zeros, and leave in it what they like.
    """

    name: str
    dtype: str  # NumPy name: "float32", "uint8", "int64"
    kind: Kind


WORKSPACE = Parameter("workspace", "float32", "workspace")


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

    def magnitude(self, least: float = TINY) -> np.ndarray:
        """What errors are measured against, element by element: |A||B| for a product.

        Inputs other than 0 count as `least` or more, the smallest normal number of the format that
        they may be rounded to: below it, the error of rounding is absolute.
        """


class Problem(Protocol):
    """A family of cases. The first layout and the first family are what is meant by default."""

    name: str
    axes: tuple[str, ...]
    layouts: tuple[str, ...]
    families: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    default_size: int  # of every axis, where no shape is given
    emulated_size: int  # of every axis: the most that is also emulated beside a GPU, for counters

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case: ...

    def flops(self, shape: Shape) -> int: ...

    def min_bytes(self, shape: Shape) -> int:
        """Each input read once, each output written once."""

    def bound_u(self, shape: Shape) -> float:
        """Largest error, in units of u·magnitude, of correct float32 arithmetic in any order; 0
        where nothing is rounded."""


def check_case(problem: Problem, shape: Shape, layout: str, least: int, most: int) -> None:
    """Raise ShapeError for a size outside least..most and for more than this machine's memory
    holds, UnknownNameError for a layout."""
    for axis in problem.axes:
        if not least <= shape[axis] <= most:
            raise ShapeError(f"{axis} = {shape[axis]} is not between {least} and {most}")
    if layout not in problem.layouts:
        known = ", ".join(problem.layouts)
        raise UnknownNameError(f"no layout {layout!r} for {problem.name}; there is: {known}")
    # Every array is there at least twice: for the device, and to know the answer.
    needed, free = 2 * problem.min_bytes(shape), _free_memory()
    if needed > free:
        sizes = "×".join(str(shape[axis]) for axis in problem.axes)
        room = f"{needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free"
        raise ShapeError(f"{problem.name} {sizes} takes at least {room}")


def _free_memory() -> float:
    """Bytes that the system can still give; infinite where it does not say."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return math.inf
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else math.inf
