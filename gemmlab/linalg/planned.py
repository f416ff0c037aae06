"""What is known of a product before it runs (`Plan`), and after (`Report`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """What ran. The counts are None for a product that counts nothing (`ieee`)."""

    tier: str  # "fp16x3", "bf16x6" or "ieee"
    reason: str
    at_risk: int | None = None  # elements that float16 would cut short, of both operands
    not_finite: int | None = None  # rows of a and columns of b with an infinity or a NaN

    def __str__(self) -> str:
        text = f"ran {self.tier}: {self.reason}"
        if self.not_finite:
            text += f"; {self.not_finite} rows or columns are not finite, computed in float32"
        return text


@dataclass(frozen=True)
class Plan:
    """How a product is computed, and why so. `m`, `n`, `k` are those of each matrix in the stack.

    `fallback` is the tier that the GPU takes instead of `tier` where more than `tolerated` elements
    are at risk. `copies` names arrays that are copied first, `workspace` counts bytes on the GPU.
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
    counts: Callable[[], tuple[int, int] | None] = field(
        default=lambda: None, repr=False, compare=False
    )

    def report(self) -> Report:
        """Which tier ran the last time, and why. Waits for the product to end.

        Elements at risk are known on the GPU alone: their number is read back, once the stream of
        the product has nothing left to do.
        """
        counts = self.counts()
        if counts is None:
            return Report(self.tier, self.reason)
        at_risk, not_finite = counts
        if self.fallback is None or self.tolerated is None:
            return Report(self.tier, self.reason, at_risk, not_finite)
        tier = self.tier if at_risk <= self.tolerated else self.fallback
        reason = f"{at_risk} elements at risk, {self.tolerated} are tolerated; {self.reason}"
        return Report(tier, reason, at_risk, not_finite)

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
