"""Options that several commands share, and functions that interpret them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.errors import InputError, ShapeError

if TYPE_CHECKING:
    from gemmlab.kernels.rung import Rung
    from gemmlab.problems.problem import Problem

Layout = Annotated[
    str | None,
    typer.Option(
        help="row (default): all matrices row-major; course: A row-major, B and C column-major."
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(help="GPU architecture to compile for, e.g. sm_90a. Default: the device's."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON to stdout.")]


def shape_of(problem: Problem, size: int | None, text: str | None) -> dict[str, int]:
    """Return the shape given by --size or --shape, or the default one. Its range is not checked.

    Raises InputError for both options, ShapeError for a --shape that cannot be parsed.
    """
    if text is None:
        return dict.fromkeys(problem.axes, problem.default_size if size is None else size)
    if size is not None:
        raise InputError("give --size or --shape, not both")
    wanted = ",".join(problem.axes).upper()
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise ShapeError(f"--shape {text!r} is not of the form {wanted}") from None
    if len(sizes) != len(problem.axes):
        raise ShapeError(f"--shape {text!r} has {len(sizes)} sizes; it must be {wanted}")
    return dict(zip(problem.axes, sizes, strict=True))


def rungs_of(problem: str, names: Sequence[str] | None, layout: str | None) -> list[Rung]:
    """Return the named rungs of one ladder; all of them if `names` is None.

    All rungs have one layout: `layout`, or the one that their names imply. Raises InputError for
    names of different layouts.
    """
    from gemmlab.kernels import ladder

    wanted = [rung.name for rung in ladder.rungs(problem)] if names is None else names
    named = [ladder.find(name, layout, problem) for name in wanted]
    found = list({ladder.label(rung): rung for rung in named}.values())  # without duplicates
    if len({rung.layout for rung in found}) > 1:
        raise InputError(f"{', '.join(wanted)}: different layouts; choose one with --layout")
    return found


def check_writable(path: Path | None, option: str = "-o") -> None:
    """Raise InputError, before any work is done, if the file cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: this is a folder, not a file")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: folder {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: permission denied")
