"""Compare two sets of records, kernel by kernel.

    same        the medians of cold GPU time differ by at most TOLERANCE
    faster      the medians differ by more, and the new p90 is less than the old p10
    slower      the medians differ by more, and the new p10 is greater than the old p90
    undecided   the medians differ by more, but the samples overlap

p10 and p90 are percentiles over the samples of all rounds, so drift between rounds widens them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gemmlab.errors import InputError
from gemmlab.lab.bench.job import case_name
from gemmlab.lab.bench.record import Case, Record

TOLERANCE = 0.01  # of the old median

Change = Literal["same", "faster", "slower", "undecided", "only in A", "only in B"]


@dataclass(frozen=True)
class Comparison:
    """One kernel in one case: its record on each side, None if a side has no record."""

    kernel: str
    case: Case
    before: Record | None
    after: Record | None

    @property
    def ratio(self) -> float | None:
        """The new median time over the old one; None if a side has no record."""
        if self.before is None or self.after is None:
            return None
        return self.after.gpu_median_s / self.before.gpu_median_s

    @property
    def change(self) -> Change:
        before, after, ratio = self.before, self.after, self.ratio
        if before is None:
            return "only in B"
        if after is None or ratio is None:
            return "only in A"
        if abs(ratio - 1) <= TOLERANCE:
            return "same"
        if after.gpu_p90_s < before.gpu_p10_s:
            return "faster"
        return "slower" if after.gpu_p10_s > before.gpu_p90_s else "undecided"

    @property
    def clocks(self) -> str:
        """The SM clocks, if they differ by more than TOLERANCE; else ""."""
        if self.before is None or self.after is None:
            return ""
        old, new = self.before.sm_mhz, self.after.sm_mhz
        if not old or not new or abs(new / old - 1) <= TOLERANCE:
            return ""
        return f"{old:.0f} → {new:.0f} MHz"


def compare(before: Sequence[Record], after: Sequence[Record]) -> list[Comparison]:
    """Compare every kernel of either side, in the order of `before`, then of `after`.

    Raises InputError if the sides have no kernel and case in common, or if a side has two records
    of the same kernel and case.
    """
    old, new = _by_key(before), _by_key(after)
    if not old.keys() & new.keys():
        raise InputError("the two sides have no kernel and case in common")
    return [Comparison(*key, old.get(key), new.get(key)) for key in {**old, **new}]


def machines(found: Iterable[Comparison]) -> list[str]:
    """Describe how the GPU and the driver differ between the sides."""
    pairs = [(one.before, one.after) for one in found]
    differences = {
        f"{fact}: {before.machine[fact]} → {after.machine[fact]}"
        for fact in ("gpu", "driver")
        for before, after in pairs
        if before and after and before.machine[fact] != after.machine[fact]
    }
    return sorted(differences)


def _by_key(records: Iterable[Record]) -> dict[tuple[str, Case], Record]:
    found: dict[tuple[str, Case], Record] = {}
    for record in records:
        key = record.kernel, record.case
        if key in found:
            what = f"{record.kernel}, {case_name(*record.case)}"
            raise InputError(f"one side has several records of {what}: compare run with run")
        found[key] = record
    return found
