"""`gemmlab new`: a file to start a kernel from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def new(
    problem: Annotated[
        str,
        typer.Argument(metavar="PROBLEM", help="A problem that `gemmlab list` shows."),
    ],
    lang: Annotated[str, typer.Option(help="cu (CUDA C++) or cute (Python, CuTe DSL).")] = "cu",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Default: PROBLEM.cu or .py, here.")
    ] = None,
) -> None:
    """Write a file to start a kernel from.

    It is simple and right, and has the directive that says how it is called.
    """
    from gemmlab.lab.submission import start

    print(start.write(problem, lang, output))
