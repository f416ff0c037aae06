"""What `explain` explains: a rung at one shape, or the kernel of a user's file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from gemmlab.compile.architectures import ARCHITECTURES, DEFAULT
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.cute import compile_rung
from gemmlab.errors import ArchitectureError, CompileError, ShapeError
from gemmlab.hardware.specs import Gpu
from gemmlab.hardware.traffic import Traffic
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.lab.explain.chained import launches
from gemmlab.lab.explain.counted import Launched, launch
from gemmlab.lab.explain.models import model
from gemmlab.problems.problem import Problem, Shape


@dataclass(frozen=True)
class Subject:
    """A kernel with its launches.

    problem: None for a kernel that solves none of gemmlab's problems. Its FLOPs are then counted,
        at `shape`.
    least_bytes(shape): each input read once, each output written once.
    compiled(gpu, notes): for that GPU; appends to the notes.
    broken(shape): the rule of the kernel that a shape breaks, or None.
    launched(artifact, shape): the emulated launches with their traces, that of `artifact` first.
    rung: None for a file.
    """

    name: str
    change: str
    layout: str
    shape: dict[str, int]
    problem: Problem | None
    least_bytes: Callable[[Shape], int]
    compiled: Callable[[Gpu, list[str]], Artifact]
    geometry: Callable[[Shape], Geometry]
    launched: Callable[[Artifact, Shape], tuple[Launched, ...]]
    broken: Callable[[Shape], str | None] = lambda shape: None
    rung: Rung | None = None

    def traffic(self, shape: Shape) -> Traffic | None:
        """The modeled traffic; None for a kernel without a model."""
        return model(self.rung, shape) if self.rung else None

    @property
    def counted_shape(self) -> dict[str, int]:
        """The shape at which the emulator counts: a smaller one if `shape` is too large."""
        if self.problem is None:
            return self.shape
        most = self.problem.emulated_size ** len(self.problem.axes)
        if math.prod(self.shape.values()) <= most:
            return self.shape
        size = self.problem.default_size
        return {axis: min(extent, size) for axis, extent in self.shape.items()}


def of_rung(problem: Problem, rung: Rung, shape: Shape) -> Subject:
    """Return a rung at a shape. Raises ShapeError for a size outside the problem's range."""
    _check(problem, rung, shape)
    return Subject(
        name=label(rung),
        change=rung.change,
        layout=rung.layout,
        shape=dict(shape),
        problem=problem,
        least_bytes=problem.min_bytes,
        compiled=partial(_compiled, rung),
        geometry=partial(rung.geometry, rung.config),
        launched=partial(_launched if rung.launches is None else launches, problem, rung),
        broken=partial(rung.requires, rung.config),
        rung=rung,
    )


def _launched(
    problem: Problem, rung: Rung, artifact: Artifact, shape: Shape
) -> tuple[Launched, ...]:
    return (launch(problem, rung, artifact, shape),)


def target_of(gpu: Gpu) -> str:
    """Return what to compile for on a GPU."""
    return f"{gpu.arch}a" if f"{gpu.arch}a" in ARCHITECTURES else gpu.arch


def other_target(gpu: Gpu, why: str) -> str:
    """Return the note on a kernel that was compiled for the default architecture instead."""
    return (
        f"Not compiled for {gpu.arch} ({why}): registers, shared memory and instructions are those "
        f"of {DEFAULT}."
    )


def _check(problem: Problem, rung: Rung, shape: Shape) -> None:
    """Raise ShapeError for a size outside the problem's range.

    Makes no inputs of that shape: a tiny case detects sizes that are too small, the C interface's
    integer types those that are too large.
    """
    tiny = {axis: min(size, 1) for axis, size in shape.items()}
    problem.case(tiny, rung.layout, problem.families[0], seed=0)
    types = {parameter.name: parameter.dtype for parameter in problem.parameters}
    for axis, size in shape.items():
        dtype = types.get(axis, "int64")
        if size > np.iinfo(dtype).max:
            raise ShapeError(f"{axis} = {size} exceeds {np.iinfo(dtype).max}, the largest {dtype}")


def _compiled(rung: Rung, gpu: Gpu, notes: list[str]) -> Artifact:
    """Compile for the GPU's architecture; if CuTe DSL cannot, for the default one, with a note.

    Raises ArchitectureError if the rung needs another GPU.
    """
    arch = target_of(gpu)
    if lacking := rung.lacks(arch):
        raise ArchitectureError(f"{label(rung)} {lacking}; {gpu.name} has {gpu.arch}")
    why = "CuTe DSL has no such target"
    if arch in ARCHITECTURES:
        try:
            return compile_rung(rung, arch)
        except CompileError as error:
            why = str(error).splitlines()[0]
    notes.append(other_target(gpu, why))
    return compile_rung(rung, DEFAULT)
