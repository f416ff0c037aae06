"""Options that several commands share, and what is read from them."""

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
    typer.Option(help="row (default), or course: A row-major, B and C column-major."),
]
Arch = Annotated[
    str | None,
    typer.Option(help="GPU architecture to compile for, e.g. sm_90a. Default: the device's own."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]


def shape_of(problem: Problem, size: int | None, text: str | None) -> dict[str, int]:
    """The shape that --size or --shape asks for; the problem checks its range."""
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
    """Rungs of one ladder, all in one layout: `layout`, or the one that their names mean."""
    from gemmlab.kernels import ladder

    wanted = [rung.name for rung in ladder.rungs(problem)] if names is None else names
    named = [ladder.find(name, layout, problem) for name in wanted]
    found = list({ladder.label(rung): rung for rung in named}.values())  # each once
    if len({rung.layout for rung in found}) > 1:
        raise InputError(f"{', '.join(wanted)}: two layouts; say which with --layout")
    return found


def check_writable(path: Path | None, option: str = "-o") -> None:
    """Find out before the work, not after it, that the file cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: is a folder")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: no permission to write there")
