"""The plan of a product, known before it runs, and the report on what ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gemmlab.kernels.gemm.sm90.config import WIDE_COUNT
from gemmlab.linalg import dynamo


class Counts(NamedTuple):
    """Counts made on the GPU while the operands are packed."""

    at_risk: int = 0  # elements of both operands that lose bits in float16
    wide: int = 0  # rows of a and columns of b with many such elements
    not_finite: int = 0  # rows of a and columns of b with an infinity or a NaN

    @classmethod
    def of(cls, risk: int, not_finite: int) -> Counts:
        """Decode the two numbers that the GPU stores (`kernels.gemm.sm90.pack`)."""
        return cls(risk % WIDE_COUNT, risk // WIDE_COUNT, not_finite)


@dataclass(frozen=True)
class Report:
    """What ran. The counts are None for `ieee`, which counts nothing."""

    tier: str  # "fp16x3", "bf16x6" or "ieee"
    reason: str
    at_risk: int | None = None  # elements of both operands that lose bits in float16
    wide: int | None = None  # rows of a and columns of b with many such elements
    not_finite: int | None = None  # rows of a and columns of b with an infinity or a NaN

    def __str__(self) -> str:
        text = f"ran {self.tier}: {self.reason}"
        if self.not_finite:
            text += f"; {self.not_finite} non-finite rows or columns computed in float32"
        return text


@dataclass(frozen=True)
class ProductPlan:
    """How a product is computed, and why.

    The GPU runs `fallback` instead of `tier` if more than `tolerated` elements are at risk, or many
    in one row or column.
    """

    m: int  # m, n and k are those of each pair of matrices in the stacks
    n: int
    k: int
    batch: int  # pairs of matrices
    device: str
    tier: str  # "fp16x3", "bf16x6" or "ieee"
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
        found = f"{counts.at_risk} elements at risk, {self.tolerated} are tolerated"
        if counts.wide:
            found += f"; rows and columns with many of them: {counts.wide}, none is tolerated"
        many = counts.wide > 0 or counts.at_risk > self.tolerated
        return Report(self.fallback if many else self.tier, f"{found}; {self.reason}", *counts)

    def __str__(self) -> str:
        stack = f"{self.batch} × " if self.batch > 1 else ""
        notes = [f"{stack}{self.m}×{self.n}×{self.k} on {self.device}: {self.tier}, {self.reason}"]
        if self.fallback:
            notes.append(f"{self.fallback} if more than {self.tolerated} elements are at risk")
        if self.copies:
            notes.append(f"copied first: {', '.join(self.copies)}")
        if self.workspace:
            notes.append(f"workspace {self.workspace} bytes")
        return "; ".join(notes)
