"""Users' own problems: a Python file that defines `problem`. Loading it executes the file."""

from __future__ import annotations

import runpy
from functools import lru_cache
from pathlib import Path

from gemmlab.errors import InputError, UnknownNameError
from gemmlab.problems.problem import Problem

SUFFIX = ".py"
_MEMBERS = (*Problem.__annotations__, "case", "flops", "min_bytes", "bound_u")


def load(name: str) -> Problem:
    """Return the problem of a file.

    Raises UnknownNameError if there is no such file, InputError if its code fails or if it defines
    no problem.
    """
    path = Path(name).resolve()
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        raise UnknownNameError(f"no file {name}") from None
    return _loaded(path, changed)


@lru_cache(maxsize=8)
def _loaded(path: Path, _changed: int) -> Problem:
    try:
        found = runpy.run_path(str(path), run_name="gemmlab_problem").get("problem")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the file's code may raise anything, including SystemExit
        raise InputError(f"{path} cannot be executed: {type(error).__name__}: {error}") from error
    if found is None:
        raise InputError(f"{path} defines no `problem`, an ArrayProblem")
    if lacking := [member for member in _MEMBERS if not hasattr(found, member)]:
        raise InputError(f"`problem` of {path} is no problem: it lacks {', '.join(lacking)}")
    own: Problem = found
    _try(own, path)
    return own


def _try(problem: Problem, path: Path) -> None:
    """Draw the smallest case and compute its answer, so that mistakes show before any kernel."""
    shape = dict.fromkeys(problem.axes, 1)
    try:
        for family in problem.families:
            case = problem.case(shape, problem.layouts[0], family, 0)
            if case.reference().shape != case.magnitude().shape:
                shapes = f"{case.reference().shape} and {case.magnitude().shape}"
                raise ValueError(f"the reference and the magnitude have shapes {shapes}")
        for number in (problem.flops, problem.min_bytes, problem.bound_u):
            number(shape)
    except Exception as error:  # of the file's functions
        told = f"{type(error).__name__}: {error}"
        raise InputError(f"the problem of {path} fails at {shape}: {told}") from error
