"""`gemmlab new`: write a template for a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmlab.cli.options import complete_problems


def new(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM",
            autocompletion=complete_problems,
            help="A problem from `gemmlab list`.",
        ),
    ],
    lang: Annotated[str, typer.Option(help="cu (CUDA C++) or cute (Python, CuTe DSL).")] = "cu",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write. Default: PROBLEM.cu or PROBLEM.py."),
    ] = None,
) -> None:
    """Write a template for a kernel: simple, correct code to start from.

    Its directive describes the launch, so `gemmlab judge` can run it unchanged.
    """
    from gemmlab.lab.submission import start

    print(start.write(problem, lang, output))
