"""A measurement's input (Job) and output (Outcome). Both can be pickled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.lab.bench.circumstances import Circumstances
from gemmlab.lab.bench.record import IEEE, Record
from gemmlab.linalg.runtime.executor import Call
from gemmlab.problems.problem import Shape

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Place:
    """An address in a launch that is planned before there is memory: bytes after the start of an
    argument of the problem, or of the workspace."""

    name: str
    offset: int = 0

    def __add__(self, nbytes: int) -> Place:
        return Place(self.name, self.offset + nbytes)


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel and its launch in one case.

    `calls` are all launches of a rung that has several, in order, with Places as addresses;
    `artifact` is one of their kernels. `precision` is its precision class; None if unknown.
    """

    name: str
    title: str
    artifact: Artifact
    geometry: tuple[Dim3, Dim3, int]  # grid, block, bytes of dynamic shared memory
    workspace: int | None = None  # bytes of zeros passed as its last argument; None: no such one
    # Its arguments: a name is an argument of the problem, an array is copied to the device. None:
    # the problem's arguments in order.
    args: tuple[str | int | float | np.ndarray, ...] | None = None
    output_word: int | None = None  # 32-bit pattern that fills its output before it runs
    precision: str | None = IEEE
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Job:
    """One case and its contenders.

    `baselines` None selects all that are installed. `command` is the command that repeats the
    measurement, for the records. `precision` is the class in which results are judged and cuBLAS
    computes.
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
    """A contender without a record: it did not run, or its result or its time is wrong."""

    kernel: str
    case: str
    status: str
    message: str

    @property
    def failed(self) -> bool:
        """Whether this is an error. A kernel that does not support the shape is only skipped."""
        return self.status != "skipped"

    def __str__(self) -> str:
        return f"{self.kernel}, {self.case}: {self.status}: {self.message}"


@dataclass
class Outcome:
    """The results of a measurement, in the order of its jobs.

    `ended_by` is the exception that ended it early, or None. If it ended early, only finished cases
    are included. `circumstances` are those of the run, None if it ended before they were known.
    """

    records: list[Record] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    ended_by: BaseException | None = None
    circumstances: Circumstances | None = None

    def add(self, later: Outcome) -> None:
        """Append the results of later cases of the run."""
        self.records += later.records
        self.refusals += later.refusals
        self.ended_by = later.ended_by
        self.circumstances = later.circumstances


def case_name(problem: str, sizes: Sequence[int], layout: str, family: str) -> str:
    """Format a case, e.g. "gemm 64×64×64, row, normal"."""
    return f"{problem} {'×'.join(map(str, sizes))}, {layout}, {family}"
