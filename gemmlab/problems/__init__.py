"""The problems that kernels solve: `find(name)` returns a Problem, `NAMES` lists all names."""

from __future__ import annotations

from gemmlab.errors import UnknownNameError
from gemmlab.problems.gemm import Gemm
from gemmlab.problems.histogram import Histogram
from gemmlab.problems.problem import Problem
from gemmlab.problems.sum import Sum
from gemmlab.problems.transpose import Transpose
from gemmlab.problems.vector_add import VectorAdd

_ALL: tuple[Problem, ...] = (Gemm(), Transpose(), Sum(), Histogram(), VectorAdd())
_PROBLEMS = {problem.name: problem for problem in _ALL}

NAMES = tuple(_PROBLEMS)


def find(name: str) -> Problem:
    """Return the problem called `name`. Raises UnknownNameError, which lists the known names."""
    try:
        return _PROBLEMS[name]
    except KeyError:
        known = ", ".join(NAMES)
        raise UnknownNameError(f"no problem named {name!r}; known problems: {known}") from None
