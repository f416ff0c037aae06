"""What the judge says of a file: steps in order, the first that fails is the verdict."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

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
        "forbidden",  # a trick, or state that outlives a launch
        "low precision",  # right, but in a cheaper class than the one it wants to be judged in
        "time limit",
        "memory limit",
        "crashed",
        "impossible time",
        "not run",
        "skipped",  # nothing was found wrong, nothing was tried
    ]
)
STATUSES: tuple[str, ...] = tuple(name for part in get_args(Status) for name in get_args(part))

# The first that fits; a class stands before those it derives from.
_OF_ERROR: tuple[tuple[type[BaseException], Status], ...] = (
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
# How the driver calls what a kernel does wrong.
_OF_CUDA_ERROR: dict[str, Status] = {
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
    """The status that an exception in a step means."""
    if isinstance(error, EmulationError):
        return error_verdict(error, 0.0).status
    if isinstance(error, DeviceError) and (found := _CUDA_ERROR.search(str(error))):
        return _OF_CUDA_ERROR.get(found[0], "not run")
    if _NO_MEMORY.search(str(error)):  # of a compiler, or of a library that is loaded
        return "memory limit"
    return next((status for kind, status in _OF_ERROR if isinstance(error, kind)), "crashed")


@dataclass(frozen=True)
class Trial:
    """One launch on one case. `precision` is the best class whose bounds the result keeps, None
    where it keeps none or was not compared."""

    shape: dict[str, int]
    layout: str
    family: str
    seed: int
    verdict: Verdict
    precision: str | None = None
    purpose: str = ""  # where it is more than being right
    max_absolute_error: float | None = None  # of finite elements

    @property
    def name(self) -> str:
        sizes = "×".join(map(str, self.shape.values()))
        return f"{sizes} {self.family}{self.purpose and f', {self.purpose}'}"


@dataclass
class Step:
    """One step, with what it found out."""

    name: str
    status: Status = "pass"
    message: str = ""
    seconds: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    output: str = ""  # what the file's code printed, cut short

    @property
    def passed(self) -> bool:
        return self.status in ("pass", "skipped")


@dataclass
class Judgement:
    """All that was found out about one file."""

    file: str
    problem: str = ""
    layout: str = ""
    entry: str = ""
    seed: int = 0
    arch: str = ""
    steps: list[Step] = field(default_factory=list)
    precision: str | None = None  # class, see precision.py
    counters: dict[str, int] | None = None
    counted_shape: dict[str, int] | None = None
    resources: dict[str, Any] | None = None
    advice: list[str] = field(default_factory=list)
    score: float | None = None
    best_seconds: tuple[float, float] | None = None  # of the submission, and of the baseline
    runs: list[dict[str, Any]] = field(default_factory=list)  # bench records of the timed runs

    @property
    def verdict(self) -> Status:
        """The status of the first step that failed, else "pass"; what the emulator does not support
        is no failure where a GPU did."""
        on_gpu = any(step.name == "GPU" and step.status == "pass" for step in self.steps)
        failed = (step.status for step in self.steps if not step.passed)
        return next((status for status in failed if status != "unsupported" or not on_gpu), "pass")

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"

    def as_json(self) -> dict[str, Any]:
        """Strict: NaN and infinities become None."""
        told: dict[str, Any] = finite({**asdict(self), "verdict": self.verdict})
        return told
