"""`gemmlab show`: print a kernel's lesson, source, PTX, SASS or resources."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gemmlab.cli.options import (
    Layout,
    Settings,
    complete_kernels,
    is_rung,
    refuse_settings,
    rung_of,
)
from gemmlab.errors import InputError


def show(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="RUNG|FILE",
            autocompletion=complete_kernels,
            help="Name of a rung (see `gemmlab list`), or a .cu, .cuh, .ptx or .py (CuTe) file.",
        ),
    ],
    source: Annotated[
        bool, typer.Option("--source", help="Show the source files of the rung and its kernel.")
    ] = False,
    ptx: Annotated[bool, typer.Option("--ptx", help="Show the PTX.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="Show the machine code (SASS).")] = False,
    lint: Annotated[
        bool,
        typer.Option(
            "--lint", help="With --sass: show what the inner loop costs to issue, and why."
        ),
    ] = False,
    stalls: Annotated[
        bool,
        typer.Option(
            "--stalls",
            help="With --sass: show at which instructions warps are, and why they wait there: "
            "measured if there is a reading of this machine code, else predicted (rungs only).",
        ),
    ] = False,
    resources: Annotated[
        bool,
        typer.Option("--resources", help="Show registers, spills, shared memory and occupancy."),
    ] = False,
    entry: Annotated[
        str | None, typer.Option(help="Name of the kernel, if the file has several.")
    ] = None,
    layout: Layout = None,
    settings: Settings = None,
    arch: Annotated[
        str | None, typer.Option(help="GPU architecture to compile for. Default: sm_90a.")
    ] = None,
) -> None:
    """Show a kernel: its lesson, source, PTX, SASS or resources."""
    if source + ptx + sass + resources > 1:
        raise InputError("give only one of --source, --ptx, --sass, --resources")
    if (lint or stalls) and not sass:
        raise InputError(f"--{'lint' if lint else 'stalls'} requires --sass")
    if ptx or sass or resources:
        from gemmlab.compile import load
        from gemmlab.kernels.settings import read
        from gemmlab.lab import views
        from gemmlab.report import tables

        changes = read(settings or ())
        artifact = load(kernel, entry=entry, arch=arch, layout=layout, settings=changes)
        rung = rung_of(kernel, layout, settings) if is_rung(kernel) else None
        if ptx:
            print(artifact.ptx)
        elif stalls:
            from gemmlab.report import machine_code

            print(machine_code.with_stalls(artifact, views.stalls(artifact, rung)))
        elif lint:
            tables.console().print(tables.facts(views.machine_lint(artifact, rung)))
        elif sass:
            print(views.sass(artifact))
        else:
            tables.console().print(tables.facts(views.resources(artifact)))
        return
    if arch is not None or entry is not None:
        raise InputError("--arch and --entry require --ptx, --sass or --resources")
    if not is_rung(kernel):
        refuse_settings(kernel, layout, settings)
        _show_file(Path(kernel), source)
        return
    from gemmlab.kernels import ladder

    found = rung_of(kernel, layout, settings)
    if source:
        from gemmlab.lab import views

        sys.stdout.write(views.source(found))
    else:
        print(f"{ladder.label(found)}: {found.change}\n\n{found.lesson}\n\n{found.config}")


def _show_file(path: Path, source: bool) -> None:
    """Print a file's text, or its kernel, its launch and its resources."""
    from gemmlab.compile.directive import Directive
    from gemmlab.lab import views
    from gemmlab.lab.kernel_file import KernelFile
    from gemmlab.report import tables

    file = KernelFile.read(path, Directive())
    if source:
        sys.stdout.write(file.text)
        return
    tables.console().print(tables.facts(views.kernel(file.text, file.directive, file.compiled())))
