"""Which elements of matrices the first block of a traced launch writes and reads, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.emulator.counters.rules import LANES
from gemmlab.emulator.trace import Site, Trace
from gemmlab.problems.problem import Case

MOST_STEPS = 32


@dataclass(frozen=True)
class Box:
    """The smallest rectangle of a matrix that contains some elements; both ends are inside."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int


@dataclass(frozen=True)
class Walk:
    """The elements of one input that the first block loads. `steps`: one box per executed basic
    block, at most MOST_STEPS of them."""

    matrix: str
    rows: int
    columns: int
    steps: tuple[Box, ...]


def writers(trace: Trace, case: Case, names: Sequence[str]) -> np.ndarray | None:
    """Return the thread of the first block that wrote each element; -1: no thread.

    The array is the smallest rectangle from the output's first element that contains all its
    stores. None if the output has not two dimensions, or if the block stored nothing.
    """
    if case.result(np.zeros(case.output_size)).ndim != 2:
        return None
    image = np.full(case.output_size, -1)
    itemsize = np.dtype(case.output_dtype).itemsize
    for site in trace.sites.values():
        if (site.space, site.operation) == ("global", "store"):
            for _, threads, elements in _elements(trace, site, names.index(case.output), itemsize):
                image[elements] = threads
    written = case.result(image)
    rows, columns = np.nonzero(written >= 0)
    return written[: rows.max() + 1, : columns.max() + 1] if rows.size else None


def walks(trace: Trace, case: Case, names: Sequence[str]) -> tuple[Walk, ...]:
    """Return how the first block walks over the inputs of a matrix product; () for other problems.

    Copies of the memory copy engine are not recorded, so a kernel that uses it has no walk.
    """
    if set(case.shape) != {"m", "n", "k"}:
        return ()
    m, n, k = (case.shape[axis] for axis in "mnk")
    found = []
    for matrix, rows, columns, by_columns in (
        ("a", m, k, False),
        ("b", k, n, case.layout == "course"),
    ):
        steps = _steps(trace, names.index(matrix))
        if steps:
            places = [divmod(elements, rows if by_columns else columns) for elements in steps]
            pairs = [place[::-1] if by_columns else place for place in places]
            boxes = [Box(int(r.min()), int(r.max()), int(c.min()), int(c.max())) for r, c in pairs]
            distinct = tuple(dict.fromkeys(boxes))
            found.append(Walk(matrix, rows, columns, distinct[:MOST_STEPS]))
    return tuple(found)


def _steps(trace: Trace, argument: int) -> list[np.ndarray]:
    """Return the elements that the load instructions of each executed basic block read."""
    steps: dict[int, list[np.ndarray]] = {}
    for site in trace.sites.values():
        if (site.space, site.operation) == ("global", "load"):
            for number, _, elements in _elements(trace, site, argument, 4):
                if elements.size:
                    steps.setdefault(number, []).append(elements)
    return [np.concatenate(steps[number]) for number in sorted(steps)]


def _elements(
    trace: Trace, site: Site, argument: int, itemsize: int
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Return the step, threads and elements of each execution's accesses to an argument."""
    own = next(a for a in trace.allocations if a.name == f"argument {argument}")
    found = []
    for addresses, active, step in site.executions:
        inside = active & (addresses >= own.address) & (addresses < own.address + own.nbytes)
        warps, lanes = np.nonzero(inside)
        first = (addresses[warps, lanes] - own.address) // itemsize
        wide = np.arange(max(site.width // itemsize, 1))
        elements = (first[:, None] + wide).ravel()
        threads = np.repeat(warps * LANES + lanes, wide.size)
        found.append((step, threads, elements))
    return found
