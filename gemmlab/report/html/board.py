"""The page of a class: one row per submission, in letters that one can project."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gemmlab.lab.classroom.grades import Place
from gemmlab.report.grades import HEADINGS, cells
from gemmlab.report.html.page import Page, Section, table

_RULES = (
    "Score: 100 × the time of cuBLAS, or of the problem's first baseline, over the submission's "
    "best time; at most 100, and beside it without that limit. Submissions share a place if they "
    "differ by less than the runs of one of them."
)


def page(title: str, places: Sequence[Place]) -> Page:
    """Return the page of the places, in their order."""
    grades = [place.grade for place in places]
    counts = Counter(grade.verdict for grade in grades)
    best = next((grade for grade in grades if grade.passed and grade.score is not None), None)
    tiles = {"submissions": str(len(grades)), "passed": str(counts["pass"])}
    if best is not None and best.score is not None:
        tiles |= {f"best score: {best.file}": f"{best.score:.1f}"}
    confined = sorted({f"sandbox: {grade.sandbox}" for grade in grades if grade.sandbox})
    archs = sorted({grade.arch for grade in grades if grade.arch})
    if best is None:
        archs.append("nothing was timed: that needs a GPU")
    board = table("", "", HEADINGS, map(cells, places))
    failures = [[verdict, str(count)] for verdict, count in counts.most_common()]
    return Page(
        title,
        [*archs, *confined],
        tiles,
        [
            Section("Places", _RULES, [replace(board, kind="table board")]),
            Section("Verdicts", "", [table("", "", ["verdict", "submissions"], failures)]),
        ],
        command="gemmlab judge",
    )
