"""What the judge says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    """One element outside the bound; `error_u` is inf where a NaN or an infinity is wrong."""

    index: tuple[int, ...]
    got: float
    expected: float
    error_u: float


@dataclass(frozen=True)
class Verdict:
    """The judge's finding on one launch.

    Errors are in units of u·magnitude, u = 2**-24. `max_error_u` is None when no result was
    compared, and inf when a NaN or an infinity is out of place. `wrong_count` counts elements
    outside the bound; `first` holds up to five of them in index order, `worst` the largest.
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
