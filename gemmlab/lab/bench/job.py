"""What is asked of a measurement, and what comes of it. Can be sent from process to process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.lab.bench.record import Record
from gemmlab.problems.problem import Shape

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel and how it is launched in one case.

    `precision` is the class that it was found to be in; None where its PTX is to tell.
    """

    name: str
    title: str
    artifact: Artifact
    geometry: tuple[Dim3, Dim3, int]  # grid, block, bytes of dynamic shared memory
    workspace: int | None = None  # bytes, zero at first, that it takes as its last argument
    # What it takes where that is not the problem's own arguments in their order: the name of one of
    # those, a number, or an array.
    args: tuple[str | int | float | np.ndarray, ...] | None = None
    output_word: int | None = None  # 32 bits that fill its output before it runs
    precision: str | None = None


@dataclass(frozen=True)
class Job:
    """One case, and what takes part in it. `baselines` None: all that are installed.

    `command` is what its records name as the way to measure them again. `precision` is the class
    that results are judged in, and that cuBLAS computes in.
    """

    problem: str
    shape: Shape
    layout: str
    family: str
    seed: int
    kernels: tuple[Kernel, ...]
    baselines: tuple[str, ...] | None
    command: str
    precision: str = "ieee"

    @property
    def case(self) -> str:
        return case_name(self.problem, tuple(self.shape.values()), self.layout, self.family)


@dataclass(frozen=True)
class Refusal:
    """A contender without a record: it did not run, its result is wrong, its time impossible."""

    kernel: str
    case: str
    status: str
    message: str

    @property
    def failed(self) -> bool:
        """A kernel that does not take the shape has not."""
        return self.status != "skipped"

    def __str__(self) -> str:
        return f"{self.kernel}, {self.case}: {self.status}: {self.message}"


@dataclass
class Outcome:
    """What came of a measurement, in the order in which it was asked for.

    `ended_by` is what ended it early, in which case only finished cases are told of.
    """

    records: list[Record] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    ended_by: BaseException | None = None


def case_name(problem: str, sizes: Sequence[int], layout: str, family: str) -> str:
    """ "gemm 64×64×64, row, normal"."""
    return f"{problem} {'×'.join(map(str, sizes))}, {layout}, {family}"
