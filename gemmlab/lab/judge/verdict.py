"""The judge's verdict on one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gemmlab.core import markup

Status = Literal[
    "pass",
    "wrong answer",
    "unwritten output",
    "guard overwritten",
    "input modified",
    "out of bounds",
    "misaligned",
    "deadlock",
    "race",
    "uninitialized read",
    "divergent barrier",
    "missing wait",
    "never ends",
    "unsupported",
    "emulation error",
]


@dataclass(frozen=True)
class Mismatch:
    """An element outside the bound; `error_u` is inf for a wrong NaN or infinity."""

    index: tuple[int, ...]
    got: float
    expected: float
    error_u: float


@dataclass(frozen=True)
class Verdict:
    """The verdict on one launch.

    Errors are in units of u·magnitude, u = 2**-24. `max_error_u` is None if no result was compared
    and inf for a wrong NaN or infinity. `wrong_count` is the number of elements outside the bound;
    `first` lists up to five of them in index order, `worst` the one with the largest error.
    """

    status: Status
    message: str
    bound_u: float
    max_error_u: float | None = None
    wrong_count: int = 0
    worst: Mismatch | None = None
    first: tuple[Mismatch, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    def _repr_html_(self) -> str:
        wrong = {
            str(found.index): f"got {found.got:.9g}, expected {found.expected:.9g}"
            for found in self.first
        }
        return markup.table(self.status, {"result": self.message} | wrong)
