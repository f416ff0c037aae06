"""From the iterations that were simulated to those that a launch executes."""

from __future__ import annotations

from collections.abc import Sequence

from gemmlab.timing.instructions import Op
from gemmlab.timing.path import Loop, Path, Span
from gemmlab.timing.warps import Warp

_WINDOW = 0.25  # of the iterations on the paths, at least, of which a pace is the mean
LEAST = 4  # iterations of a loop on a path, at least

Known = tuple[Path, list[int]]  # a path, and the position of each of its blocks among its steps


def iterations(
    trees: Sequence[Loop], ops: Sequence[Sequence[Op]], most_steps: float
) -> dict[int, int]:
    """Return how many iterations of each long loop fit on a path of about `most_steps`, by head.

    trees: of the roles of warps. These pass the same share of their iterations, so that what some
    copy is what the others use.
    """
    if len(trees) > 1:
        own = [_iterations(tree, ops, most_steps) for tree in trees]
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
                    found[x.head] = max(LEAST, round(max(shares) * x.trips))
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


def paces(known: Sequence[Known], warps: Sequence[Warp]) -> dict[int, float]:
    """Return cycles per iteration of a warp, for the outermost loops, while all warps run.

    The warps of the oldest block run ahead, so the pace is that at which all together end
    iterations, from when the last has ended its first until the first has ended its last.
    """
    ends: dict[int, list[list[float]]] = {}
    for (path, offsets), warp in zip(known, warps, strict=True):
        times = warp.times
        for span in path.whole.inner:
            if len(span.iterations) < span.trips:
                ends.setdefault(span.head, []).append(
                    [times[min(offsets[x.last], len(times) - 1)] for x in span.iterations]
                )
    found = {}
    for head, rows in ends.items():
        first, last = max(row[0] for row in rows), min(row[-1] for row in rows)
        every = sorted(t for row in rows for t in row)
        done = sum(first < t <= last for t in every)
        if done < _WINDOW * len(every):  # warps are far apart
            first, last = every[len(every) // 4], every[3 * len(every) // 4]
            done = sum(first < t <= last for t in every)
        if done:
            found[head] = (last - first) / done * len(rows)
    return found


def duration(
    span: Span, times: Sequence[float], offsets: Sequence[int], known: dict[int, float]
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
        simulated = [at(x.last) - at(x.first) for x in span.iterations]
        # A pace is that of iterations whose inner loops lack iterations, too.
        stretched = sum(each) / max(1.0, sum(simulated))
        between = at(span.iterations[-1].last) - at(span.first) - sum(simulated)
        return sum(each) + between + missing * known[span.head] * stretched
    steady = each[len(each) // 3 : -1] if len(each) > 3 else each
    return sum(each) + missing * sum(steady) / len(steady)
