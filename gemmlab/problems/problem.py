"""A problem: its parameters, inputs, float64 reference, amount of work and error bound."""

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
Sizes = tuple[int, ...]  # extents in the order of the problem's axes


@dataclass(frozen=True)
class Parameter:
    """One parameter of a problem's C ABI.

    A kernel overwrites every element of an "output". It adds to an "accumulator", which is zeroed
    before the kernel starts. A "workspace" is not part of the problem: some kernels take one as
    their last argument; it is zeroed before the kernel starts and its contents are discarded.
    """

    name: str
    dtype: str  # NumPy name: "float32", "uint8", "int64"
    kind: Kind


WORKSPACE = Parameter("workspace", "float32", "workspace")


@dataclass(frozen=True)
class Shapes:
    """The shapes that the judge tries. It tries the first one in `small` with every input family.

    Each axis should be long once while the others are short: many tiles, or many iterations.
    """

    small: tuple[Sizes, ...]  # for the emulator and a GPU
    large: tuple[Sizes, ...]  # for a GPU only
    counted: Sizes  # for the counters; large enough that partial tiles contribute little


VECTOR = Shapes(
    small=((1000,), (1,), (31,), (257,), (4099,)),
    large=((100_003,), (2**22 + 1,)),
    counted=(2**14,),
)


@dataclass(frozen=True)
class Tensors:
    """A problem in the schema of FlashInfer-Bench: see `lab.submission.flashinfer`."""

    shapes: Mapping[str, tuple[str, ...]]  # tensor -> axes; the axis "one" has extent 1
    torch: str  # the result as an expression in PyTorch


class Case(Protocol):
    """One instance of a problem, with drawn inputs and a known answer."""

    shape: Shape
    layout: str
    family: str
    seed: int
    buffers: Mapping[str, np.ndarray]  # by parameter name: inputs only, 1-D device memory images
    scalars: Mapping[str, int]  # by parameter name: sizes and leading dimensions
    output: str  # name of the output parameter
    output_size: int  # elements in its 1-D image
    output_dtype: str

    def result(self, image: np.ndarray) -> np.ndarray:
        """Reshape the 1-D image of the output to the problem's shape, e.g. (m, n)."""

    def reference(self) -> np.ndarray:
        """Return the exact answer in float64, with the shape of `result`."""

    def magnitude(self, least: float = TINY) -> np.ndarray:
        """Return the scale of each element's error, with the shape of `result`: |A||B| for a GEMM.

        A nonzero input counts as at least `least`, the smallest normal number of the format that
        the kernel may round inputs to. Rounding errors below it are absolute, not relative.
        """


class Problem(Protocol):
    """A set of cases. The first layout and the first family are the defaults."""

    name: str
    axes: tuple[str, ...]
    layouts: tuple[str, ...]
    families: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    default_size: int  # extent of every axis if no shape is given
    emulated_size: int  # of every axis: largest size also emulated, for counters, in a GPU's run
    measured_size: int  # extent of every axis in measurements if no shape is given
    judged: Shapes
    tensors: Tensors | None  # None if the schema cannot express them: it has no unsigned numbers

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case: ...

    def flops(self, shape: Shape) -> int: ...

    def min_bytes(self, shape: Shape) -> int:
        """Bytes moved if each input is read once and each output written once."""

    def bound_u(self, shape: Shape) -> float:
        """Return the largest error of correct float32 arithmetic in any order, in u·magnitude.

        0 if the problem involves no rounding.
        """


def check_case(problem: Problem, shape: Shape, layout: str, least: int, most: int) -> None:
    """Check a shape and a layout.

    Raises ShapeError for an extent outside least..most or a case larger than the free memory of
    this machine, and UnknownNameError for an unknown layout.
    """
    for axis in problem.axes:
        if not least <= shape[axis] <= most:
            raise ShapeError(f"{axis} = {shape[axis]} is not between {least} and {most}")
    if layout not in problem.layouts:
        known = ", ".join(problem.layouts)
        raise UnknownNameError(f"no layout {layout!r} for {problem.name}; known layouts: {known}")
    # Every array exists at least twice: on the device and in the reference computation.
    needed, free = 2 * problem.min_bytes(shape), _free_memory()
    if needed > free:
        sizes = "×".join(str(shape[axis]) for axis in problem.axes)
        room = f"{needed / 1e9:,.1f} GB of memory, but {free / 1e9:,.1f} GB are free"
        raise ShapeError(f"{problem.name} {sizes} takes at least {room}")


def _free_memory() -> float:
    """Bytes of memory that the system can still allocate; infinite if it does not report them."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return math.inf
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else math.inf
