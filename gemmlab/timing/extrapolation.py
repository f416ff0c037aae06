"""Extrapolates from the simulated iterations to those that a launch executes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.timing.instructions import Op
from gemmlab.timing.path import Loop, Path, Span
from gemmlab.timing.warps import Warp

LEAST = 4  # iterations of a loop on a path, at least
_RINGS = 3  # times as many if roles of warps wait for each other in turn, until their rings settle


@dataclass(frozen=True)
class Pace:
    """cycles: mean cycles per iteration of a warp, while all warps run. done: mean number of
    iterations that a warp has completed at time `since`."""

    cycles: float
    since: float
    done: float


Known = tuple[Path, list[int]]  # a path, and the position of each of its blocks among its steps


def iterations(
    trees: Sequence[Loop], ops: Sequence[Sequence[Op]], most_steps: float
) -> dict[int, int]:
    """Return how many iterations of each long loop fit on a path of about `most_steps`, by head.

    trees: of the roles of warps. All roles keep the same share of their iterations, the largest
    that fits on every path, so that some warps copy what the others use.
    """
    if len(trees) > 1:
        own = [_iterations(tree, ops, _RINGS * most_steps) for tree in trees]
        found: dict[int, int] = {}
        shares = [
            of[x.head] / x.trips
            for tree, of in zip(trees, own, strict=True)
            for x in _all(tree)
            if x.head in of
        ]
        for tree in trees:
            for x in _all(tree):
                if shares and x.trips > LEAST:
                    found[x.head] = max(LEAST, round(min(shares) * x.trips))
        return found
    return _iterations(trees[0], ops, most_steps)


def _all(loop: Loop) -> list[Loop]:
    return [x for inner in loop.inner.values() for x in (inner, *_all(inner))]


def _iterations(loop: Loop, ops: Sequence[Sequence[Op]], most_steps: float) -> dict[int, int]:
    most: dict[int, int] = {}

    def size(one: Loop) -> float:
        own = sum(len(ops[i]) * min(1.0, times) for i, times in one.times.items())
        inner = (
            size(x) * min(x.trips, most.get(x.head, x.trips)) * x.entries
            for x in one.inner.values()
        )
        return own + sum(inner)

    def visit(one: Loop, room: float) -> None:
        for inner in one.inner.values():
            visit(inner, room / LEAST)
        for inner in one.inner.values():
            fits = int(room / max(1.0, size(inner) * inner.entries))
            if inner.trips > max(LEAST, fits):
                most[inner.head] = max(LEAST, fits)

    visit(loop, most_steps)
    return most


def paces(known: Sequence[Known], warps: Sequence[Warp]) -> dict[int, Pace]:
    """Return the paces of the outermost loops that lack iterations, by head.

    The warps of the oldest block run ahead: the first warp may end its last iteration before others
    end their first. A pace is therefore the mean of all warps, fractions of iterations included,
    from the end of the first warp's first iteration until a warp ends its last.
    """
    ends: dict[int, list[list[float]]] = {}
    for (path, offsets), warp in zip(known, warps, strict=True):
        times = warp.times
        for span in path.whole.inner:
            if len(span.iterations) < span.trips:
                places = [span.first, *(x.last for x in span.iterations)]
                row = [times[min(offsets[x], len(times) - 1)] for x in places]
                ends.setdefault(span.head, []).append(row)
    found = {}
    for head, rows in ends.items():
        window = min(row[1] for row in rows), min(row[-1] for row in rows)
        before, after = np.mean([np.interp(window, row, range(len(row))) for row in rows], axis=0)
        if after > before:
            cycles = (window[1] - window[0]) / (after - before)
            found[head] = Pace(float(cycles), window[0], float(before))
    return found


def duration(
    span: Span, times: Sequence[float], offsets: Sequence[int], known: dict[int, Pace]
) -> float:
    """Return the cycles of a warp in a part of its path, with the iterations that were left out.

    times: of issue. known: `paces`.
    """

    def at(position: int) -> float:
        return times[min(offsets[position], len(times) - 1)]

    if not span.iterations:
        longer = (
            duration(x, times, offsets, known) - (at(x.last) - at(x.first)) for x in span.inner
        )
        return at(span.last) - at(span.first) + sum(longer)
    missing = span.trips - len(span.iterations)
    each = [duration(x, times, offsets, known) for x in span.iterations]
    if missing and span.head in known:
        # A pace is that of iterations whose inner loops lack iterations, too.
        stretched = sum(each) / max(1.0, sum(at(x.last) - at(x.first) for x in span.iterations))
        pace = known[span.head]
        return stretched * (pace.since - at(span.first) + (span.trips - pace.done) * pace.cycles)
    steady = each[len(each) // 3 : -1] if len(each) > 3 else each
    return sum(each) + missing * sum(steady) / len(steady)
