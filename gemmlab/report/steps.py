"""One sentence per step of the ladder: the numbers that changed between two rungs' records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gemmlab.lab.metrics import COUNTS, OCCUPANCY, TIME, TRANSFERS, Metric
from gemmlab.lab.records import Record
from gemmlab.report.rungs import change

_SHOWN = 3  # counters per sentence
_UNSEEN = "no counter changed by 10 %; counters show neither latency nor hits in L2"
_UNCOUNTED = "neither time nor occupancy changed by 10 %"
_NOTABLE = 1.1  # smaller ratios are not reported


def pairs(records: Sequence[Record]) -> Iterator[tuple[Record, Record]]:
    """Return the adjacent pairs of the records that passed and have numbers."""
    passed = [r for r in records if r.verdict == "pass" and (r.counters or r.time_s is not None)]
    return pairwise(passed)


def sentences(records: Sequence[Record]) -> list[str]:
    """Return a sentence for each pair."""
    return [": ".join(sentence(*pair)) for pair in pairs(records)]


def sentence(before: Record, after: Record) -> tuple[str, str]:
    """Return the step, and what it changed: the counters that changed most (absolutely),
    transfers, occupancy, and GPU time."""
    counts = [move for metric in COUNTS if (move := _Move.of(metric, before, after))]
    counts = sorted(counts, key=lambda move: -abs(move.new - move.old))[:_SHOWN]
    rest = (*TRANSFERS, OCCUPANCY, TIME)
    others = [move for metric in rest if (move := _Move.of(metric, before, after))]
    moves = ", ".join(move.words() for move in counts + others)
    unchanged = _UNSEEN if after.counters else _UNCOUNTED
    what = change(after.problem, after.rung)
    step = f"{before.rung} → {after.rung}" + (f" ({what})" if what else "")
    return step, f"{moves or unchanged}."


@dataclass(frozen=True)
class _Move:
    """One metric before and after."""

    metric: Metric
    old: float
    new: float

    @classmethod
    def of(cls, metric: Metric, before: Record, after: Record) -> _Move | None:
        """Return the move, or None if a value is missing or the change is not notable."""
        old, new = metric.value(before), metric.value(after)
        if old is None or new is None or max(old, new) < _NOTABLE * min(old, new) or old == new:
            return None
        return cls(metric, old, new)

    def words(self) -> str:
        name, ending = self.metric.name, "" if self.metric.plural else "s"
        if not self.old:
            return f"{name} appear{ending} (0 → {number(self.new)})"
        if not self.new:
            return f"{name} vanish{ending and 'es'} ({number(self.old)} → 0)"
        ratio = self.new / self.old
        verb, factor = ("rise", ratio) if ratio >= 1 else ("fall", 1 / ratio)
        return f"{name} {verb}{ending} {number(factor)}× ({number(self.old)} → {number(self.new)})"


def number(value: float) -> str:
    """Format whole numbers and numbers from 1000 on with separators, others with three digits."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
