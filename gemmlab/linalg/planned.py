"""The plan of a product, known before it runs, and the report on what ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gemmlab.kernels.gemm.sm90.config import WIDE_COUNT
from gemmlab.linalg import dynamo

# Returns the predicted seconds of GPU time that a product saves compared with `ieee`.
Saving = Callable[[], float]


def no_saving() -> float:
    return 0.0


class Counts(NamedTuple):
    """Counts made on the GPU while the operands are packed."""

    at_risk: int = 0  # elements of both operands that lose bits in float16
    wide: int = 0  # rows of a and columns of b with many such elements
    not_finite: int = 0  # rows of a and columns of b with an infinity or a NaN
    doubtful: int = 0  # sums computed again, counted in each segment or slice of k

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Counts:
        """Decode the numbers that the GPU stores (`kernels.gemm.sm90.reporting`)."""
        risk, not_finite, _, doubtful, before, *_ = numbers
        wide = risk // WIDE_COUNT - not_finite
        return cls(risk % WIDE_COUNT, wide, not_finite, doubtful - before)


@dataclass(frozen=True)
class Report:
    """What ran. The counts are None for tiers that count nothing: all but `fp16x3` and `bf16x6`."""

    tier: str  # "fp16x3", "fp16x3s", "bf16x6", "tf32x3", "fma" or "ieee"
    reason: str
    at_risk: int | None = None  # elements of both operands that lose bits in float16
    wide: int | None = None  # rows of a and columns of b with many such elements
    not_finite: int | None = None  # rows of a and columns of b with an infinity or a NaN
    doubtful: int | None = None  # sums computed again, counted in each segment or slice of k

    def __str__(self) -> str:
        text = f"ran {self.tier}: {self.reason}"
        if self.not_finite:
            text += f"; {self.not_finite} non-finite rows or columns computed in float32"
        if self.doubtful:
            text += f"; {self.doubtful} elements of the result computed in float32"
        return text


@dataclass(frozen=True)
class ProductPlan:
    """How a product is computed, and why.

    The GPU runs `fallback` instead of `tier` if more than `tolerated` rows of a and columns of b
    are wide, which means that many of their elements are at risk, or not finite.
    """

    m: int  # m, n and k are those of each pair of matrices in the stacks
    n: int
    k: int
    batch: int  # pairs of matrices
    device: str
    tier: str  # "fp16x3", "fp16x3s", "bf16x6", "tf32x3", "fma" or "ieee"
    reason: str
    fallback: str | None = None
    tolerated: int | None = None
    copies: tuple[str, ...] = ()  # the operands that are copied first
    workspace: int = 0  # bytes on the GPU
    counts: Callable[[], Counts | None] = field(default=lambda: None, repr=False, compare=False)

    @dynamo.opaque
    def report(self) -> Report:
        """Return which tier ran last, and why. Waits for the product's stream to become idle.

        The number of elements at risk is known only on the GPU, and is read back.
        """
        counts = self.counts()
        if counts is None:
            return Report(self.tier, self.reason)
        if self.fallback is None or self.tolerated is None:
            return Report(self.tier, self.reason, *counts)
        found, tier = f"{counts.at_risk} elements at risk", self.tier
        if counts.wide:
            found += f"; {counts.wide} rows and columns with many"
        if counts.wide + counts.not_finite > self.tolerated:
            tier = self.fallback
        return Report(tier, f"{found}; {self.reason}", *counts)

    def __str__(self) -> str:
        stack = f"{self.batch} × " if self.batch > 1 else ""
        notes = [f"{stack}{self.m}×{self.n}×{self.k} on {self.device}: {self.tier}, {self.reason}"]
        if self.fallback:
            notes.append(f"{self.fallback} if more than {self.tolerated} rows and columns are wide")
        if self.copies:
            notes.append(f"copied first: {', '.join(self.copies)}")
        if self.workspace:
            notes.append(f"workspace {self.workspace} bytes")
        return "; ".join(notes)
