"""The ladder's texts for records, which hold the names of rungs alone."""

from __future__ import annotations

from collections.abc import Mapping

from gemmlab import problems
from gemmlab.errors import InputError, MissingDependencyError
from gemmlab.kernels import ladder
from gemmlab.lab.explain.models import model


def change(problem: str, rung: str) -> str:
    """Return what a rung changes; "" for a rung that the ladder no longer has.

    Settings after its name are ignored.

    Raises MissingDependencyError if kernels cannot be imported.
    """
    known = ladder.rungs(problem) if problem in problems.NAMES else ()
    name = rung.partition(" ")[0]
    return next((one.change for one in known if name in (one.name, one.course_name)), "")


def requested_bytes(problem: str, name: str, layout: str, shape: Mapping[str, int]) -> int | None:
    """Return the bytes that lanes request from global memory, by a rung's model if it has one."""
    try:
        traffic = model(ladder.find(name, layout, problem), shape)
    except (InputError, MissingDependencyError):  # the ladder no longer has it
        return None
    return traffic.global_bytes if traffic else None


def position(problem: str, rung: str) -> int:
    """Return a rung's place in its ladder, in any layout; what the ladder lacks comes last."""
    known = [one.name for one in ladder.rungs(problem)] if problem in problems.NAMES else []
    name = any_layout(rung.partition(" ")[0])
    return known.index(name) if name in known else len(known)


def any_layout(name: str) -> str:
    """Return a rung's name in any layout: `naive` of `naive-tnn`."""
    return next((rung.name for rung in ladder.rungs() if rung.course_name == name), name)
