"""The judgement of a file: its steps in order. The first step that fails determines the verdict."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from gemmlab.core import markup
from gemmlab.errors import (
    CompileError,
    DeviceError,
    EmulationError,
    ImplausibleTimeError,
    InputError,
    LaunchError,
    MissingDependencyError,
    UnknownNameError,
)
from gemmlab.lab.judge import Status as LaunchStatus
from gemmlab.lab.judge import Verdict
from gemmlab.lab.judge.judge import error_verdict
from gemmlab.lab.records import finite

Status = (
    LaunchStatus
    | Literal[
        "bad directive",
        "compile error",
        "no entry",
        "launch refused",
        "forbidden",  # a trick, or state that persists between launches
        "low precision",  # correct, but only in a cheaper class than the requested one
        "time limit",
        "memory limit",
        "resource limit",  # too many threads, files or answers
        "crashed",
        "impossible time",
        "not run",
        "skipped",  # not tried; counts as passed
    ]
)
OVER_RESULT = "over its own corrupted result"  # purpose of a trial
STATUSES: tuple[str, ...] = tuple(name for part in get_args(Status) for name in get_args(part))

# The first match applies, so a class precedes its base classes.
_ERROR_STATUS: tuple[tuple[type[BaseException], Status], ...] = (
    (CompileError, "compile error"),
    (LaunchError, "launch refused"),
    (UnknownNameError, "no entry"),
    (InputError, "bad directive"),
    (ImplausibleTimeError, "impossible time"),
    (MemoryError, "memory limit"),
    (DeviceError, "not run"),
    (MissingDependencyError, "not run"),
)
_NO_MEMORY = re.compile(r"error: out of memory|bad_alloc|failed to map segment|OUT_OF_MEMORY")
_CUDA_ERROR = re.compile(r"\bCUDA_ERROR_\w+")
# The driver's names for faults of a kernel.
_CUDA_ERROR_STATUS: dict[str, Status] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "out of bounds",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "misaligned",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "crashed",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "crashed",
    "CUDA_ERROR_INVALID_PC": "crashed",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "crashed",
    "CUDA_ERROR_ASSERT": "crashed",
    "CUDA_ERROR_LAUNCH_FAILED": "crashed",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "time limit",
}


def status_of(error: BaseException) -> Status:
    """Return the status for an exception raised in a step."""
    if isinstance(error, EmulationError):
        return error_verdict(error, 0.0).status
    if isinstance(error, DeviceError) and (found := _CUDA_ERROR.search(str(error))):
        return _CUDA_ERROR_STATUS.get(found[0], "not run")
    if _NO_MEMORY.search(str(error)):  # from a compiler or the dynamic loader
        return "memory limit"
    return next((status for kind, status in _ERROR_STATUS if isinstance(error, kind)), "crashed")


@dataclass(frozen=True)
class Trial:
    """One launch on one case.

    `precision` is the best class whose bounds the result satisfies; None if it satisfies none or
    was not compared.
    """

    shape: dict[str, int]
    layout: str
    family: str
    seed: int
    verdict: Verdict
    precision: str | None = None
    purpose: str = ""  # if the launch checks more than the result of the case
    max_absolute_error: float | None = None  # over elements whose difference is finite

    @property
    def name(self) -> str:
        sizes = "×".join(map(str, self.shape.values()))
        return f"{sizes} {self.family}{self.purpose and f', {self.purpose}'}"


@dataclass
class Step:
    """One step and its findings."""

    name: str
    status: Status = "pass"
    message: str = ""
    seconds: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    output: str = ""  # printed by the file's code, truncated

    @property
    def passed(self) -> bool:
        return self.status in ("pass", "skipped")


@dataclass(repr=False)
class Judgement:
    """The findings on one file. A field has its default if the step that sets it did not run."""

    file: str
    problem: str = ""
    layout: str = ""
    entry: str = ""
    seed: int = 0
    arch: str = ""
    sandbox: str = ""  # what confined the processes, or why nothing did
    steps: list[Step] = field(default_factory=list)
    precision: str | None = None  # class, see judge/precision.py
    counters: dict[str, int] | None = None
    counted_shape: dict[str, int] | None = None
    resources: dict[str, Any] | None = None
    advice: list[str] = field(default_factory=list)
    score: float | None = None
    best_seconds: tuple[float, float] | None = None  # of the submission, and of the baseline
    runs: list[dict[str, Any]] = field(default_factory=list)  # bench records of the timed runs

    @property
    def verdict(self) -> Status:
        """The status of the first step that failed, else "pass".

        An instruction that the emulator does not support is no failure if the GPU step passed.
        """
        on_gpu = any(step.name == "GPU" and step.status == "pass" for step in self.steps)
        failed = (step.status for step in self.steps if not step.passed)
        return next((status for status in failed if status != "unsupported" or not on_gpu), "pass")

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    def __repr__(self) -> str:
        told = [f"{self.file}: {self.verdict}"]
        told += [f"{step.name}: {step.status}, {step.message}" for step in self.steps]
        return "\n".join([*told, *self.advice])

    def _repr_html_(self) -> str:
        told = {step.name: f"{step.status}: {step.message}" for step in self.steps}
        told |= {f"improve {n}": sentence for n, sentence in enumerate(self.advice, 1)}
        return markup.table(f"{self.file}: {self.verdict}", told)

    def as_json(self) -> dict[str, Any]:
        """Return a dictionary for strict JSON: NaN and infinities become None."""
        record: dict[str, Any] = finite({**asdict(self), "verdict": self.verdict})
        return record
