"""Two sets of records, kernel by kernel: which became faster, which slower.

    same        the medians of cold GPU time differ by at most TOLERANCE
    faster      they differ by more, and nine samples in ten of the new are below nine in ten of
                the old: the new p90 is less than the old p10
    slower      the other way round
    undecided   the medians differ by more, but the samples overlap

p10 and p90 are taken over the samples of all rounds, so that a drift between rounds widens them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gemmlab.errors import InputError
from gemmlab.lab.bench.record import Case, Record

TOLERANCE = 0.01  # of the old median

Change = Literal["same", "faster", "slower", "undecided", "only in A", "only in B"]


@dataclass(frozen=True)
class Comparison:
    """One kernel in one case, before and after; None for a side that has no record of it."""

    kernel: str
    case: Case
    before: Record | None
    after: Record | None

    @property
    def ratio(self) -> float | None:
        """New median time over the old one."""
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
        """The SM clocks, where they differ and may be why."""
        if self.before is None or self.after is None:
            return ""
        old, new = self.before.sm_mhz, self.after.sm_mhz
        if not old or not new or abs(new / old - 1) <= TOLERANCE:
            return ""
        return f"{old:.0f} → {new:.0f} MHz"


def compare(before: Sequence[Record], after: Sequence[Record]) -> list[Comparison]:
    """Every kernel of either side, in the order of the first. Raises InputError for nothing in
    common, and for a side with two records of one kernel in one case."""
    old, new = _by_key(before), _by_key(after)
    if not old.keys() & new.keys():
        raise InputError("the two sides have no kernel and case in common")
    return [Comparison(*key, old.get(key), new.get(key)) for key in {**old, **new}]


def machines(found: Iterable[Comparison]) -> list[str]:
    """What differs between the machines of the two sides."""
    pairs = [(one.before, one.after) for one in found]
    told = {
        f"{fact}: {before.machine[fact]} → {after.machine[fact]}"
        for fact in ("gpu", "driver")
        for before, after in pairs
        if before and after and before.machine[fact] != after.machine[fact]
    }
    return sorted(told)


def _by_key(records: Iterable[Record]) -> dict[tuple[str, Case], Record]:
    found: dict[tuple[str, Case], Record] = {}
    for record in records:
        key = record.kernel, record.case
        if key in found:
            raise InputError(f"two records of {record.kernel} in {record.case}; compare folders")
        found[key] = record
    return found
