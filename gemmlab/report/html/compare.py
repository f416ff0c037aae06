"""The page of two runs of the same command: what changed from the first to the second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmlab.core.figures import scaled, seconds
from gemmlab.lab.bench.compare import Comparison, machines
from gemmlab.lab.bench.job import case_name
from gemmlab.lab.bench.record import Case
from gemmlab.lab.changes import Change, conditions
from gemmlab.report.html import charts
from gemmlab.report.html.page import Page, Part, Section, table
from gemmlab.report.steps import number

_CALLED = {"only in A": "only before", "only in B": "only after"}


def climbs(found: Sequence[Change]) -> Page:
    """Return the page of two climbs: verdicts, counts and times of each rung."""
    sections = []
    for case in _cases(found):
        own = [one for one in found if one.case == case]
        parts = []
        for name in dict.fromkeys(name for one in own for name, _, _ in one.moves):
            rows = [
                {"rung": one.rung, "before": old, "after": new, "after / before": new / old}
                for one in own
                for moved, old, new in one.moves
                if moved == name and old
            ]
            if rows:
                parts.append(_ratios(f"{name}: after over before", rows, "rung"))
        times = [
            {
                "rung": one.rung,
                "before": seconds(one.before.time_s),
                "after": seconds(one.after.time_s),
                "after / before": one.time_ratio,
            }
            for one in own
            if one.before and one.after and one.before.time_s and one.after.time_s
        ]
        if times:
            parts.insert(0, _ratios("time: after over before", times, "rung"))
        cells = [
            [
                one.rung,
                _CALLED.get(one.status, one.status),
                one.verdict,
                "; ".join(f"{n}: {number(old)} → {number(new)}" for n, old, new in one.moves),
            ]
            for one in own
        ]
        parts.append(
            table("Every rung", "", ["rung", "after is", "verdict", "what differs"], cells)
        )
        sections.append(Section(case_name(*case), "", parts))
    return Page(
        "Two climbs compared", conditions(found) or ["same conditions"], _tally(found), sections
    )


def benches(found: Sequence[Comparison]) -> Page:
    """Return the page of two benches: the median times of each kernel."""
    sections = []
    for case in _cases(found):
        own = [one for one in found if one.case == case]
        rows = [
            {
                "kernel": one.kernel,
                "before": seconds(one.before.gpu_median_s),
                "after": seconds(one.after.gpu_median_s),
                "after / before": one.ratio,
                "after is": one.change,
            }
            for one in own
            if one.before and one.after
        ]
        parts = [_ratios("time: after over before", rows, "kernel")] if rows else []
        cells = [
            [
                one.kernel,
                _CALLED.get(one.change, one.change),
                seconds(one.before.gpu_median_s) if one.before else "–",
                seconds(one.after.gpu_median_s) if one.after else "–",
                f"{one.ratio:.3f}" if one.ratio else "–",
                one.clocks,
            ]
            for one in own
        ]
        headings = ["kernel", "after is", "before", "after", "after / before", "clocks"]
        parts.append(table("Every kernel", "", headings, cells))
        sections.append(Section(case_name(*case), "", parts))
    return Page(
        "Two benches compared", machines(found) or ["same machine"], _tally(found), sections
    )


def _ratios(title: str, rows: Sequence[dict[str, Any]], name: str) -> Part:
    """Return bars of "after / before", labelled with both values."""
    labelled = [
        row | {charts.LABEL: f"{_written(row['before'])} → {_written(row['after'])}"}
        for row in rows
    ]
    caption = "Below 1: less than before."
    return charts.bars(title, caption, labelled, value="after / before", name=name)


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else scaled(value)


def _cases(found: Sequence[Change] | Sequence[Comparison]) -> list[Case]:
    """Return the cases, those that both runs have first."""
    shared = {one.case for one in found if one.before and one.after}
    return sorted(dict.fromkeys(one.case for one in found), key=lambda case: case not in shared)


def _tally(found: Sequence[Change] | Sequence[Comparison]) -> dict[str, str]:
    words = [one.status if isinstance(one, Change) else one.change for one in found]
    last = sorted(dict.fromkeys(words), key=lambda word: word in _CALLED)
    return {_CALLED.get(word, word): str(words.count(word)) for word in last}
