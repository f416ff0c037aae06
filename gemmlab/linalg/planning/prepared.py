"""Formulas for the choice of a tier, made before a release.

A process needs a tenth of a second to make those that its first products ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any

from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning import tiers, times
from gemmlab.linalg.planning.formulas import Formulas
from gemmlab.linalg.planning.times import Case

SHAPES = 4000  # formulas are made for what these need; a process makes the others
LEAST, MOST, STACKED = 4, 13, 8  # binary logarithms of sizes, and of the largest batch


def texts(arch: Architecture) -> dict[str, str]:
    """Return the text of each formula, by the name of its file."""
    found: dict[str, Formulas] = {}
    for m, n, k, batch in shapes():
        for k_major in product((True, False), (True, False)):
            gpu = arch.capability, arch.multiprocessors, k_major
            for function, options in questions(Case(m, n, k, batch, *gpu)):
                name = times.name_of(function, *gpu, options)
                if name not in found:
                    found[name] = times.new_formulas(function, *gpu, options)
                found[name](m, n, k, batch)
    return {name: formulas.text for name, formulas in found.items() if formulas.text}


def shapes() -> Iterator[tuple[int, int, int, int]]:
    """Draw m, n, k and the batch at random, the same in each run; some sizes are aligned."""
    rng = Random(0)
    for _ in range(SHAPES):
        sizes = [round(2 ** rng.uniform(LEAST, MOST)) for _ in "mnk"]
        if rng.random() < 0.5:
            sizes = [-(-size // 8) * 8 for size in sizes]
        m, n, k = sizes
        yield m, n, k, round(2 ** rng.uniform(0, STACKED)) if rng.random() < 0.5 else 1


def questions(case: Case) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What products ask for: functions of a `Case`, and their further arguments."""
    choices = tiers.offered(None, case)
    if len(choices) > 1:
        yield times.decide, (tiers.names_of(choices),)
    yield times.sgemm_time, ()
    yield times.fp16x3_time, ()
