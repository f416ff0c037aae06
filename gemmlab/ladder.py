"""The registry: which kernels there are, in which order, for which problem.

Every list of kernels derives from this one. A kernel file is imported when it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import replace

from gemmlab.errors import InputError, UnknownNameError
from gemmlab.kernels.rung import Rung

_FILES = {
    "gemm": ("naive", "uncoalesced", "shared", "tile_2d", "float4"),
}


def rungs(problem: str = "gemm") -> tuple[Rung, ...]:
    """The rungs of one problem from the lowest up. Raises UnknownNameError."""
    if problem not in _FILES:
        raise UnknownNameError(f"no ladder for {problem!r}; there is {', '.join(_FILES)}")
    modules = (importlib.import_module(f"gemmlab.kernels.{problem}.{f}") for f in _FILES[problem])
    return tuple(rung for module in modules for rung in module.RUNGS)


def find(name: str, layout: str | None = None) -> Rung:
    """The rung of that name in that layout; "naive-tnn" is `naive` in the course's layout.

    Raises UnknownNameError listing the names, InputError for a layout that the rung does not have.
    """
    names: dict[str, tuple[Rung, str]] = {}
    for rung in (rung for problem in _FILES for rung in rungs(problem)):
        names[rung.name] = rung, rung.config.layout
        if rung.course_name is not None:
            names[rung.course_name] = rung, "course"
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UnknownNameError(f"no rung {name!r}; there are: {', '.join(names)}.{hint}")
    rung, own_layout = names[name]
    if name == rung.course_name and layout not in (None, own_layout):
        raise InputError(f"{name!r} is {rung.name!r} in layout {own_layout!r}, not {layout!r}")
    return in_layout(rung, layout or own_layout)


def in_layout(rung: Rung, layout: str) -> Rung:
    """The same rung in another layout."""
    return replace(rung, config=replace(rung.config, layout=layout))


def label(rung: Rung) -> str:
    """What a rung is called: by its own name in the course's layout, where it has one."""
    if rung.course_name is not None and rung.config.layout == "course":
        return rung.course_name
    return rung.name
