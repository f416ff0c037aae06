"""A problem given by its arrays and a reference: users' own, and some of gemmlab's.

    from gemmlab.problems.arrays import ArrayProblem

    problem = ArrayProblem(
        name="scale-rows",
        axes=("m", "n"),
        inputs={"x": "m,n", "s": "m"},
        output={"y": "m,n"},
        reference=lambda x, s: x * s[:, None],
        bound=1,
        operations=lambda m, n: m * n,
    )

A kernel takes the inputs, the output and the axes, in this order: float32 pointers to row-major
arrays, and int32 sizes. An element passes if its error is at most bound · 2**-24 · magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gemmlab.core.expressions import evaluate
from gemmlab.problems.inputs import draw, generator
from gemmlab.problems.problem import (
    TINY,
    Case,
    Parameter,
    Shape,
    Shapes,
    Tensors,
    U,
    check_case,
)

MOST = 2**31 - 1  # an int32 size
FLUSHED = TINY / U  # a magnitude that allows a flushed subnormal
_MATRICES = Shapes(
    small=((33, 65), (1, 1), (2, 300), (300, 3), (64, 128)),
    large=((257, 1025), (4096, 1000)),
    counted=(256, 256),
)

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class ArrayCase:
    """One instance of an `ArrayProblem`: `inputs` by name, in their shapes."""

    def __init__(
        self,
        problem: ArrayProblem,
        shape: Shape,
        layout: str,
        family: str,
        seed: int,
        inputs: Mapping[str, np.ndarray],
    ) -> None:
        self.shape: Shape = dict(shape)
        self.layout, self.family, self.seed = layout, family, seed
        self.inputs, self._problem = inputs, problem
        self.buffers: Mapping[str, np.ndarray] = {name: x.ravel() for name, x in inputs.items()}
        self.scalars: Mapping[str, int] = dict(shape)
        (self.output, extents), *_ = problem.output.items()
        self._extents = problem.extents(extents, shape)
        self.output_size, self.output_dtype = math.prod(self._extents), problem.dtype(self.output)

    def result(self, image: np.ndarray) -> np.ndarray:
        return image.reshape(self._extents)

    def reference(self) -> np.ndarray:
        return self._reference

    def magnitude(self, least: float = TINY) -> np.ndarray:
        given = self._problem.magnitude
        with np.errstate(all="ignore"):
            found = np.abs(self._reference) if given is None else given(**self._doubles)
        return np.asarray(found, np.float64) + max(least, FLUSHED)

    @cached_property
    def _doubles(self) -> dict[str, np.ndarray]:
        return {name: x.astype(np.float64) for name, x in self.inputs.items()}

    @cached_property
    def _reference(self) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.asarray(self._problem.reference(**self._doubles), np.float64)
        if found.shape != self._extents:
            name, shape = self._problem.name, self._extents
            raise ValueError(f"the reference of {name} has shape {found.shape}, not {shape}")
        return found


@dataclass(eq=False)
class ArrayProblem:
    """A problem with one output.

    Attributes:
        name: a word.
        axes: names of the sizes.
        inputs: name -> extents, integer expressions of the axes such as "m,n" or "h+2,w+2".
        output: the same, for one array, whose elements a kernel writes, every one of them.
        reference: the exact answer: takes the inputs by name, float64 arrays of NumPy, and
            returns an array that NumPy can read, such as a tensor of PyTorch.
        bound: the largest error of correct float32 arithmetic in units of u·magnitude, u = 2**-24;
            a number, or a function of the axes by name. 0 demands the reference's float32.
        operations: FLOPs, a function of the axes by name.
        magnitude: the scale of each element's error; takes what `reference` takes. Default: the
            size of the answer.
        traffic: bytes that must be moved, a function of the axes by name. Default: every array
            once.
        dtypes: NumPy names of types other than float32, by array.
        draws: name of a family -> a function of (generator, extents) that draws any input. Default:
            gemmlab's families.
        default_size, emulated_size, measured_size: as in `Problem`.
        judged: the shapes that the judge tries.
        tensors: the problem in the schema of FlashInfer-Bench.
    """

    name: str
    axes: tuple[str, ...]
    inputs: Mapping[str, str]
    output: Mapping[str, str]
    reference: Callable[..., Any]
    bound: float | Callable[..., float]
    operations: Callable[..., int]
    magnitude: Callable[..., Any] | None = None
    traffic: Callable[..., int] | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    draws: Mapping[str, Draw] = field(default_factory=dict)
    default_size: int = 512
    emulated_size: int = 512
    measured_size: int = 4096
    judged: Shapes = _MATRICES
    tensors: Tensors | None = None
    layouts: tuple[str, ...] = ("row",)

    def __post_init__(self) -> None:
        own = ("normal", "uniform", "symmetric", "integers", "zeros")
        self.families: tuple[str, ...] = tuple(self.draws) or own
        self.parameters: tuple[Parameter, ...] = (
            *(Parameter(name, self.dtype(name), "input") for name in self.inputs),
            *(Parameter(name, self.dtype(name), "output") for name in self.output),
            *(Parameter(axis, "int32", "scalar") for axis in self.axes),
        )

    def dtype(self, name: str) -> str:
        """Return the NumPy name of an array's type."""
        return self.dtypes.get(name, "float32")

    def extents(self, text: str, shape: Shape) -> tuple[int, ...]:
        """Return an array's shape. Raises InputError for text that is no expression."""
        return tuple(evaluate(part, shape) for part in text.split(","))

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw the inputs.

        Raises ShapeError, UnknownNameError (layout, family) and InputError (negative seed).
        """
        check_case(self, shape, layout, 1, MOST)
        drawn = {
            name: self._drawn(number, self.extents(text, shape), shape, family, seed, name)
            for number, (name, text) in enumerate(self.inputs.items())
        }
        return ArrayCase(self, shape, layout, family, seed, drawn)

    def _drawn(
        self,
        number: int,
        extents: tuple[int, ...],
        shape: Shape,
        family: str,
        seed: int,
        name: str,
    ) -> np.ndarray:
        sizes = tuple(shape[axis] for axis in self.axes)
        if self.draws:
            rng = generator(family, self.draws, sizes, number, seed)
            found = self.draws[family](rng, extents)
        else:
            flat = math.prod(extents[:-1]), extents[-1]
            found = draw(family, sizes, flat, number, seed).reshape(extents)
        return np.ascontiguousarray(found, self.dtype(name))

    def flops(self, shape: Shape) -> int:
        return int(self.operations(**shape))

    def min_bytes(self, shape: Shape) -> int:
        if self.traffic is not None:
            return int(self.traffic(**shape))
        return sum(
            math.prod(self.extents(text, shape)) * np.dtype(self.dtype(name)).itemsize
            for name, text in {**self.inputs, **self.output}.items()
        )

    def bound_u(self, shape: Shape) -> float:
        return float(self.bound(**shape) if callable(self.bound) else self.bound)
