"""The problems that kernels solve: `find(name)` returns a Problem, `NAMES` lists all names."""

from __future__ import annotations

from gemmlab.errors import InputError, UnknownNameError
from gemmlab.problems import files
from gemmlab.problems.attention import ATTENTION
from gemmlab.problems.conv2d import CONV2D
from gemmlab.problems.gemm import Gemm
from gemmlab.problems.histogram import Histogram
from gemmlab.problems.layernorm import LAYERNORM
from gemmlab.problems.problem import Problem
from gemmlab.problems.scan import SCAN
from gemmlab.problems.softmax import SOFTMAX
from gemmlab.problems.sum import Sum
from gemmlab.problems.transpose import Transpose
from gemmlab.problems.vector_add import VectorAdd

_MATRICES: tuple[Problem, ...] = (Gemm(), Transpose())
_VECTORS: tuple[Problem, ...] = (Sum(), Histogram(), VectorAdd())
_NETWORKS: tuple[Problem, ...] = (SOFTMAX, LAYERNORM, SCAN, CONV2D, ATTENTION)
_PROBLEMS = {problem.name: problem for problem in (*_MATRICES, *_VECTORS, *_NETWORKS)}

_OWN: dict[str, Problem] = {}  # of files that were loaded, by their names

NAMES = tuple(_PROBLEMS)


def find(name: str) -> Problem:
    """Return the problem called `name`, or that of a user's Python file.

    A file's problem is also found by its name once it was loaded. Raises UnknownNameError, which
    lists the known names, and InputError for a file without a problem or with the name of another.
    """
    if name.endswith(files.SUFFIX):
        own = files.load(name)
        if own.name in _PROBLEMS:
            raise InputError(f"{name}: gemmlab has a problem named {own.name!r}; use another name")
        _OWN[own.name] = own
        return own
    found = _PROBLEMS.get(name) or _OWN.get(name)
    if found is None:
        known = ", ".join(NAMES)
        raise UnknownNameError(f"no problem named {name!r}; known problems: {known}")
    return found
