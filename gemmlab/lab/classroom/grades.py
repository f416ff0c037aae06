"""Grades: the published results of each submission, and their order.

Two submissions tie if their scores differ by less than the runs of one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FULL = 100.0  # the document's rule: cuBLAS's speed scores 100, and nothing scores more
_REASON = 500  # characters


@dataclass(frozen=True)
class Grade:
    """One submission's row. `score` is not capped; `spread` is relative, of the timed runs.

    `key` changes if the submission or the way to judge it does.
    """

    file: str
    verdict: str
    step: str = ""  # the step that failed
    reason: str = ""
    precision: str = ""
    score: float | None = None
    time_s: float | None = None
    baseline_s: float | None = None
    spread: float | None = None
    advice: str = ""
    seed: int = 0
    arch: str = ""
    sandbox: str = ""
    took_s: float = 0.0
    digest: str = ""
    key: str = ""

    @property
    def capped(self) -> float | None:
        """The score by the document's rule."""
        return None if self.score is None else min(FULL, self.score)

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"


@dataclass(frozen=True)
class Place:
    """A grade, its place if it was timed, and why it shares the place."""

    grade: Grade
    number: int | None
    note: str


def graded(file: str, found: Mapping[str, Any], digest: str, key: str) -> Grade:
    """Return the grade for a judgement as JSON data."""
    steps = found.get("steps") or []
    failed = next((s for s in steps if s["status"] not in ("pass", "skipped")), None)
    if found["verdict"] == "pass":
        failed = None  # the GPU supports what the emulator does not
    times = found.get("best_seconds") or (None, None)
    return Grade(
        file=file,
        verdict=str(found["verdict"]),
        step=failed["name"] if failed else "",
        reason=(failed["message"] if failed else str(found.get("message", "")))[:_REASON],
        precision=found.get("precision") or "",
        score=found.get("score"),
        time_s=times[0],
        baseline_s=times[1],
        spread=_spread(found.get("runs") or []),
        advice=next(iter(found.get("advice") or []), ""),
        seed=found.get("seed", 0),
        arch=found.get("arch", ""),
        sandbox=found.get("sandbox", ""),
        took_s=sum(step["seconds"] for step in steps),
        digest=digest,
        key=key,
    )


def _spread(runs: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the larger relative spread of the runs' times, of the kernel or of the baseline."""
    times = defaultdict[str, list[float]](list)
    for run in runs:
        times[run["kernel"]].append(run["gpu_median_s"])
    return max((max(of) / min(of) - 1 for of in times.values()), default=None)


def ranking(grades: Iterable[Grade]) -> list[Place]:
    """Return the grades in order: timed ones by score, others that passed, then the failed ones."""
    everyone = sorted(grades, key=lambda grade: (-(grade.score or 0.0), grade.file))
    timed = [grade for grade in everyone if grade.passed and grade.score is not None]
    twins = _twins(everyone)
    places = [
        Place(grade, number, "; ".join(filter(None, [note, twins.get(grade.file, "")])))
        for number, grade, note in _numbered(timed)
    ]
    for passed in (True, False):
        places += [
            Place(grade, None, twins.get(grade.file, ""))
            for grade in everyone
            if grade.passed == passed and grade not in timed
        ]
    return places


def _numbered(timed: Sequence[Grade]) -> Iterator[tuple[int, Grade, str]]:
    """Yield the place of each grade, and why it shares that place with the first that has it."""
    first, number = None, 0
    for index, grade in enumerate(timed, 1):
        if first is not None and first.score and grade.score is not None:
            apart = 1 - grade.score / first.score
            noise = max(first.spread or 0.0, grade.spread or 0.0)
            if apart <= noise:
                yield (
                    number,
                    grade,
                    f"tied with {first.file}: {100 * apart:.2g} % apart, while runs of one file "
                    f"differ by {100 * noise:.2g} %",
                )
                continue
        first, number = grade, index
        yield number, grade, ""


def _twins(grades: Iterable[Grade]) -> dict[str, str]:
    """Return a note for every file that has the text of another one."""
    same = defaultdict[str, list[str]](list)
    for grade in grades:
        same[grade.digest].append(grade.file)
    return {
        name: f"same text as {', '.join(other for other in names if other != name)}"
        for digest, names in same.items()
        if digest and len(names) > 1
        for name in names
    }
