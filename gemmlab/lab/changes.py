"""Compare two climbs, rung by rung: verdicts, counts and times.

The emulator's counts are deterministic, so any difference comes from the code. A climb times each
rung in one session, so the noise is unknown: the ratio of times is reported but not judged. Use
`gemmlab bench` to judge speeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gemmlab.errors import InputError
from gemmlab.lab.metrics import (
    COUNTS,
    OCCUPANCY,
    TRANSFERS,
    Metric,
    machine_instructions,
    registers,
)
from gemmlab.lab.records import Record

Case = tuple[str, tuple[int, ...], str, str]  # problem, sizes, layout, family
Move = tuple[str, float, float]  # name, old and new value
Status = Literal["same", "differs", "broken", "fixed", "only in A", "only in B"]

METRICS = (
    *COUNTS,
    Metric("SASS instructions", True, machine_instructions),
    *TRANSFERS,
    Metric("registers", True, registers),
    OCCUPANCY,
)


@dataclass(frozen=True)
class Change:
    """One rung in one case: its record on each side, None if a side has no record."""

    rung: str
    case: Case
    before: Record | None
    after: Record | None

    @property
    def status(self) -> Status:
        """ "broken": it passed before and fails now; "fixed": the reverse."""
        if self.before is None:
            return "only in B"
        if self.after is None:
            return "only in A"
        if self.before.passed != self.after.passed:
            return "fixed" if self.after.passed else "broken"
        return "differs" if self.before.verdict != self.after.verdict or self.moves else "same"

    @property
    def verdict(self) -> str:
        """The verdict; both verdicts if they differ: "pass → wrong answer"."""
        verdicts = [record.verdict for record in (self.before, self.after) if record]
        return " → ".join(dict.fromkeys(verdicts))

    @property
    def moves(self) -> list[Move]:
        """The metrics whose values differ; the counters that differ if no metric does.

        Values that only one side has are ignored.
        """
        if self.before is None or self.after is None:
            return []
        known = [(x.name, x.value(self.before), x.value(self.after)) for x in METRICS]
        old, new = self.before.counters or {}, self.after.counters or {}
        counters = [(name, old[name], new[name]) for name in old if name in new]
        return _differing(known) or _differing(counters)

    @property
    def time_ratio(self) -> float | None:
        """The new time over the old one; None if a side was not timed."""
        if not (self.before and self.after and self.before.time_s and self.after.time_s):
            return None
        return self.after.time_s / self.before.time_s


def compare(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """Compare every rung of either side, in the order of `before`, then of `after`.

    Raises InputError if the sides have no rung and case in common, or if a side has two records of
    the same rung and case.
    """
    old, new = _by_key(before), _by_key(after)
    if not old.keys() & new.keys():
        raise InputError("the two climbs have no rung and case in common")
    return [Change(*key, old.get(key), new.get(key)) for key in {**old, **new}]


def conditions(found: Iterable[Change]) -> list[str]:
    """Describe differences in device, architecture, seed and versions, without duplicates."""
    differences: dict[str, None] = {}
    for before, after in ((one.before, one.after) for one in found):
        if before is None or after is None:
            continue
        for name in ("device", "arch", "seed"):
            differences |= _unlike(name, getattr(before, name), getattr(after, name))
        for name in {**before.versions, **after.versions}:
            differences |= _unlike(name, before.versions.get(name), after.versions.get(name))
    return list(differences)


def _unlike(name: str, old: object, new: object) -> dict[str, None]:
    return {} if old == new else {f"{name}: {old} → {new}": None}


def _differing(pairs: Iterable[tuple[str, float | None, float | None]]) -> list[Move]:
    """Select the values that both sides have and that differ."""
    both = ((n, old, new) for n, old, new in pairs if old is not None and new is not None)
    return [(n, old, new) for n, old, new in both if old != new]


def _by_key(records: Iterable[Record]) -> dict[tuple[str, Case], Record]:
    found: dict[tuple[str, Case], Record] = {}
    for record in records:
        case = (record.problem, tuple(record.shape.values()), record.layout, record.family)
        key = record.rung, case
        if key in found:
            sizes = "×".join(map(str, case[1]))
            where = f"{record.problem} {sizes}, {record.layout}, {record.family}"
            raise InputError(f"one side has two records of {record.rung}, {where}")
        found[key] = record
    return found
