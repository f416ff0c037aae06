"""What is known of a product before it runs (`Plan`), and after (`Report`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gemmlab.kernels.gemm.sm90.config import WIDE_COUNT
from gemmlab.linalg import dynamo


class Counts(NamedTuple):
    """What the splits of a product have found."""

    at_risk: int = 0  # elements that float16 would cut short, of both operands
    wide: int = 0  # rows of a and columns of b with many of them
    not_finite: int = 0  # rows of a and columns of b with an infinity or a NaN

    @classmethod
    def of(cls, risk: int, not_finite: int) -> Counts:
        """From the two numbers that a GPU keeps (`kernels.gemm.sm90.pack`)."""
        return cls(risk % WIDE_COUNT, risk // WIDE_COUNT, not_finite)


@dataclass(frozen=True)
class Report:
    """What ran. The counts are None for a product that counts nothing (`ieee`)."""

    tier: str  # "fp16x3", "bf16x6" or "ieee"
    reason: str
    at_risk: int | None = None  # see `Counts`
    wide: int | None = None
    not_finite: int | None = None

    def __str__(self) -> str:
        text = f"ran {self.tier}: {self.reason}"
        if self.not_finite:
            text += f"; {self.not_finite} rows or columns are not finite, computed in float32"
        return text


@dataclass(frozen=True)
class Plan:
    """How a product is computed, and why so. `m`, `n`, `k` are those of each matrix in the stack.

    `fallback` is the tier that the GPU takes instead of `tier` where more than `tolerated` elements
    are at risk, or many of one row or column. `copies` names arrays that are copied first,
    `workspace` counts bytes on the GPU.
    """

    m: int
    n: int
    k: int
    batch: int
    device: str
    tier: str
    reason: str
    fallback: str | None = None
    tolerated: int | None = None
    copies: tuple[str, ...] = ()
    workspace: int = 0
    counts: Callable[[], Counts | None] = field(default=lambda: None, repr=False, compare=False)

    @dynamo.opaque
    def report(self) -> Report:
        """Which tier ran the last time, and why. Waits for the product to end.

        Elements at risk are known on the GPU alone: their number is read back, once the stream of
        the product has nothing left to do.
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
        parts = [f"{stack}{self.m}×{self.n}×{self.k} on {self.device}: {self.tier}, {self.reason}"]
        if self.fallback:
            parts.append(f"{self.fallback} where more than {self.tolerated} elements are at risk")
        if self.copies:
            parts.append(f"copied first: {', '.join(self.copies)}")
        if self.workspace:
            parts.append(f"workspace {self.workspace} bytes")
        return "; ".join(parts)
