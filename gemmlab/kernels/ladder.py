"""The registry: the rungs of each problem, in order.

Every list of kernels derives from it. It imports a kernel file when a ladder is requested.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmlab.core import disk_cache
from gemmlab.core.packages import CUTE_DSL
from gemmlab.errors import InputError, UnknownNameError
from gemmlab.kernels.rung import Rung
from gemmlab.kernels.settings import configured, text

_HERE = Path(__file__).parent
# Files of kernels/<problem>/, or modules by their full names.
_FILES = {
    "gemm": (
        "naive",
        "uncoalesced",
        "shared",
        "tile_1d",
        "tile_2d",
        "float4",
        "transposed_a",
        "warp_tile",
        "double_buffer",
        "async_copy",
        "copy_warps",
        "operand_reuse",
        "split_k",
        "gemmlab.linalg.stairs",
        "gemmlab.linalg.rungs",  # several launches, which the library plans
    ),
    "transpose": ("naive", "shared", "ilp", "register_tiles", "bulk_copies"),
    "sum": (
        "global_atomics",
        "shared_serial",
        "tree",
        "warp_shuffle",
        "vectorized",
        "loads_in_flight",
        "fixed_order",
    ),
    "histogram": ("global_atomics", "shared_atomics", "wide_loads", "lane_counters"),
    "vector-add": ("explicit", "managed", "managed_prefetch", "async_stream"),
    "softmax": ("row_per_thread", "row_per_warp", "online"),
    "layernorm": ("row_per_thread", "row_per_warp"),
    "scan": ("serial", "hillis_steele", "warp_scan"),
    "conv2d": ("direct", "shared_tile"),
    "attention": ("direct", "flash"),
}


def rungs(problem: str = "gemm") -> tuple[Rung, ...]:
    """The rungs of one problem, lowest first.

    Raises UnknownNameError for an unknown problem, MissingDependencyError if CuTe DSL, the language
    of the kernels, is missing or broken.
    """
    if problem not in _FILES:
        raise UnknownNameError(f"no ladder for {problem!r}; ladders: {', '.join(_FILES)}")
    folder = f"gemmlab.kernels.{problem.replace('-', '_')}"
    with CUTE_DSL.importing():
        modules = [
            importlib.import_module(file if "." in file else f"{folder}.{file}")
            for file in _FILES[problem]
        ]
    return tuple(rung for module in modules for rung in module.RUNGS)


def find(name: str, layout: str | None = None, problem: str | None = None) -> Rung:
    """Find a rung by name, in a layout. "naive-tnn" is `naive` in the course layout.

    Searches the ladder of `problem`, else all ladders in order; a name like "sum:global-atomics"
    includes the ladder. Raises UnknownNameError, which lists the names, or InputError if the rung
    lacks the layout or the name includes a ladder other than `problem`.
    """
    if ":" in name:
        own, name = name.split(":", 1)
        if problem not in (None, own):
            raise InputError(f"{own}:{name} is a rung of {own}, not of {problem}")
        problem = own
    names: dict[str, tuple[Rung, str]] = {}
    for ladder in _FILES if problem is None else {problem} & _FILES.keys():
        for rung in rungs(ladder):
            names.setdefault(rung.name, (rung, rung.layout))
            if rung.course_name is not None:
                names.setdefault(rung.course_name, (rung, "course"))
        if name in names:
            break  # the kernel files of later ladders are not imported
    if not names:
        raise UnknownNameError(f"no ladder for {problem!r}; ladders: {', '.join(_FILES)}")
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UnknownNameError(f"no rung {name!r}; rungs: {', '.join(names)}.{hint}")
    rung, own_layout = names[name]
    if name == rung.course_name and layout not in (None, own_layout):
        raise InputError(f"{name!r} is {rung.name!r} in layout {own_layout!r}, not {layout!r}")
    return in_layout(rung, own_layout if layout is None else layout)


def names() -> list[str]:
    """The names that `find` takes, for a shell that completes a name.

    They are cached on disk until a kernel file changes, so that no compiler is imported.
    """
    others = (file for files in _FILES.values() for file in files if "." in file)
    specs = (importlib.util.find_spec(name) for name in others)
    files = [*sorted(_HERE.rglob("*.py")), *(Path(s.origin) for s in specs if s and s.origin)]
    texts = [file.read_text(encoding="utf-8") for file in files]
    saved = disk_cache.name_of(["rungs", *texts])
    if (known := disk_cache.load(saved)) is not None:
        return known.decode().split()
    every = [rung for ladder in _FILES for rung in rungs(ladder)]
    found = [qualified(rung) for rung in every]
    found += [rung.course_name for rung in every if rung.course_name]
    disk_cache.save(saved, "\n".join(found).encode())
    return found


Reference = tuple[str, str, str, dict[str, Any]]


def reference(rung: Rung) -> Reference:
    """Return what names a rung in another process: problem, name, layout and settings."""
    return rung.problem, rung.name, rung.layout, dict(rung.settings)


def referred(reference: Reference) -> Rung:
    """Return the rung of a reference. Raises as `find` and `settings.configured`."""
    problem, name, layout, settings = reference
    return configured(find(name, layout, problem), settings)


def in_layout(rung: Rung, layout: str) -> Rung:
    """The rung in another layout. Raises InputError if it lacks that layout."""
    if layout == rung.layout:
        return rung
    if not hasattr(rung.config, "layout"):
        raise InputError(f"{rung.problem} {rung.name!r} has layout {rung.layout!r} only")
    return replace(rung, config=replace(rung.config, layout=layout))


def qualified(rung: Rung) -> str:
    """The name that identifies the rung among all ladders, such as "transpose:naive"."""
    same = (found for ladder in _FILES for found in rungs(ladder) if found.name == rung.name)
    return rung.name if next(same).problem == rung.problem else f"{rung.problem}:{rung.name}"


def label(rung: Rung) -> str:
    """The rung's display name: its course name in the course layout, if it has one; then what is
    set in its configuration, such as "float4 block_m=64"."""
    course = rung.course_name is not None and rung.layout == "course"
    name = rung.course_name if course and rung.course_name else rung.name
    return " ".join([name, *(f"{key}={text(value)}" for key, value in rung.settings.items())])
