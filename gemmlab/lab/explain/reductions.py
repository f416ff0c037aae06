"""The tree of additions by which the first block of a traced launch reduces shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gemmlab.emulator.counters.rules import BANK_BYTES, LANES
from gemmlab.emulator.trace import Site, Trace

_LEAST = 3  # steps of a tree


@dataclass(frozen=True)
class Addition:
    """A thread adds the word `source` of shared memory to the word `target`."""

    thread: int
    source: int
    target: int


@dataclass(frozen=True)
class Tree:
    """`steps`: the additions of each execution of the store; `words`: of shared memory; `source`:
    file:line."""

    words: int
    steps: tuple[tuple[Addition, ...], ...]
    source: str


def tree(trace: Trace) -> Tree | None:
    """Return the tree of a store to shared memory whose line also loads the words that it adds.

    A step is an execution in which each thread that stores has loaded one other word. None if no
    line has several such steps, each with fewer additions than the one before.
    """
    code = trace.program.function.instructions
    by_line: dict[str, list[Site]] = {}
    for site in trace.sites.values():
        source = code[site.instruction].source
        if site.space == "shared" and site.width == BANK_BYTES and source:
            by_line.setdefault(source, []).append(site)
    for source, sites in by_line.items():
        loads = [site for site in sites if site.operation == "load"]
        stores = [site for site in sites if site.operation == "store"]
        steps = [step for step in _steps(loads, stores) if step]
        counts = [len(step) for step in steps]
        falls = all(b <= a for a, b in pairwise(counts))
        if len(steps) >= _LEAST and falls and counts[-1] == 1:
            touched = [word for step in steps for a in step for word in (a.source, a.target)]
            least = min(touched)
            moved = tuple(
                tuple(Addition(a.thread, a.source - least, a.target - least) for a in step)
                for step in steps
            )
            return Tree(max(touched) - least + 1, moved, source)
    return None


def _steps(loads: list[Site], stores: list[Site]) -> list[tuple[Addition, ...]]:
    """Return the additions of each execution, in their order."""
    read: list[tuple[int, np.ndarray, np.ndarray]] = [
        (turn.step, turn.active, turn.addresses) for site in loads for turn in site.executions
    ]
    found = []
    written = sorted((turn for site in stores for turn in site.executions), key=lambda t: t.step)
    for turn in written:
        additions = []
        for warp, lane in np.argwhere(turn.active).tolist():
            target = int(turn.addresses[warp, lane])
            sources = {
                int(addresses[warp, lane])
                for step, active, addresses in read
                if step == turn.step and active[warp, lane]
            } - {target}
            if len(sources) != 1:
                return []
            thread, [source] = warp * LANES + lane, sources
            additions.append(Addition(thread, source // BANK_BYTES, target // BANK_BYTES))
        found.append(tuple(additions))
    return found
