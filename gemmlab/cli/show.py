"""`gemmlab show`: print a kernel's lesson, source, PTX, SASS or resources."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gemmlab.cli.options import Layout
from gemmlab.errors import InputError


def show(
    rung: Annotated[
        str, typer.Argument(metavar="RUNG", help="Name of a rung; see `gemmlab list`.")
    ],
    source: Annotated[
        bool, typer.Option("--source", help="Show the source files of the rung and its kernel.")
    ] = False,
    ptx: Annotated[bool, typer.Option("--ptx", help="Show the PTX.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="Show the machine code (SASS).")] = False,
    resources: Annotated[
        bool,
        typer.Option("--resources", help="Show registers, spills, shared memory and occupancy."),
    ] = False,
    layout: Layout = None,
    arch: Annotated[
        str | None, typer.Option(help="GPU architecture to compile for. Default: sm_90a.")
    ] = None,
) -> None:
    """Show a kernel: its lesson, source, PTX, SASS or resources."""
    if source + ptx + sass + resources > 1:
        raise InputError("give only one of --source, --ptx, --sass, --resources")
    if arch is not None and not ptx + sass + resources:
        raise InputError("--arch requires --ptx, --sass or --resources")
    from gemmlab.kernels import ladder
    from gemmlab.lab import views
    from gemmlab.report import tables

    found = ladder.find(rung, layout)
    if source:
        sys.stdout.write(views.source(found))
    elif ptx:
        print(views.ptx(found, arch))
    elif sass:
        print(views.sass(found, arch))
    elif resources:
        tables.console().print(tables.facts(views.resources(found, arch)))
    else:
        print(f"{ladder.label(found)}: {found.change}\n\n{found.lesson}\n\n{found.config}")
