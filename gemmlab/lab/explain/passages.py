"""How the data of one warp pass through memory: its first load and store in each state space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.emulator.counters.rules import BANK_BYTES, BANKS
from gemmlab.emulator.trace import Site, Trace
from gemmlab.problems.problem import Case


@dataclass(frozen=True)
class Passage:
    """The cells that warp 0 accesses at once, in a matrix or in shared memory, by lane.

    `cells`: (row, column) per lane. Shared memory has a column per bank. `block`: rows and columns
    that the first block accesses in the same place, from the first cell.
    """

    place: str  # "a", or "shared memory"
    operation: str  # "load" or "store"
    block: tuple[int, int]
    cells: tuple[tuple[int, int], ...]
    source: str  # file:line


def passages(trace: Trace, case: Case, names: Sequence[str]) -> tuple[Passage, ...]:
    """Return warp 0's first request per place and operation, in the order of execution.

    () unless the problem is a transpose.
    """
    if set(case.shape) != {"m", "n"} or len(case.buffers) != 1:
        return ()
    m, n = case.shape["m"], case.shape["n"]
    [(name, image)] = case.buffers.items()
    if image.size != m * n or not np.array_equal(case.reference(), image.reshape(m, n).T):
        return ()
    shapes = {name: (m, n), case.output: (n, m)}
    found: dict[tuple[str, str], tuple[int, Passage]] = {}
    for site in trace.sites.values():
        first = site.executions[0] if site.executions else None
        if first is None or site.width != BANK_BYTES or not first.active[0].any():
            continue
        place, base, columns = _place(trace, site, names, shapes)
        if (place, site.operation) in found:
            continue
        words = (first.addresses[0][first.active[0]] - base) // BANK_BYTES
        cells = tuple(divmod(int(word), columns) for word in words)
        source = trace.program.function.instructions[site.instruction].source or ""
        block = _extent(trace, site, names, shapes)
        found[place, site.operation] = (
            first.step,
            Passage(place, site.operation, block, cells, source),
        )
    return tuple(passage for _, passage in sorted(found.values(), key=lambda item: item[0]))


def _place(
    trace: Trace, site: Site, names: Sequence[str], shapes: dict[str, tuple[int, int]]
) -> tuple[str, int, int]:
    """Return the name of the place, its first address and its number of columns."""
    if site.space == "shared":
        least = min(
            int(turn.addresses[turn.active].min())
            for other in trace.sites.values()
            if other.space == "shared"
            for turn in other.executions
            if turn.active.any()
        )
        return "shared memory", least // (BANKS * BANK_BYTES) * BANKS * BANK_BYTES, BANKS
    first = int(site.executions[0].addresses[site.executions[0].active][0])
    for allocation in trace.allocations:
        if 0 <= first - allocation.address < allocation.nbytes:
            name = names[int(allocation.name.rpartition(" ")[2])]
            return name, allocation.address, shapes[name][1]
    raise AssertionError("the emulator rejects accesses outside allocations")


def _extent(
    trace: Trace, site: Site, names: Sequence[str], shapes: dict[str, tuple[int, int]]
) -> tuple[int, int]:
    name, base, columns = _place(trace, site, names, shapes)
    rows, last = 0, 0
    for other in trace.sites.values():
        if other.space != site.space or not other.executions:
            continue
        if _place(trace, other, names, shapes)[0] != name:
            continue
        for turn in other.executions:
            words = (turn.addresses[turn.active] - base) // BANK_BYTES
            rows = max(rows, int((words // columns).max(initial=0)) + 1)
            last = max(last, int((words % columns).max(initial=0)) + 1)
    return rows, last
