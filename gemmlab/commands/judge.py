"""`gemmlab judge` and `gemmlab new`: somebody's kernel file, from its first line to its verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gemmlab.submission.steps import Step


def judge(
    file: Annotated[Path, typer.Argument(help="A .cu or .ptx file, or .py with a CuTe kernel.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...",
            help="Words of a directive, in place of the file's own: problem=gemm entry=f "
            "args=a,b,c,m,n,k layout=row block=16,16 grid=ceil_div(n,16),ceil_div(m,16) smem=0 "
            "multiple=128,128,8 output=finite precision=tf32, and sizes to time: m=4096.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the inputs; default: one that nobody knows.")
    ] = None,
    arch: Annotated[str | None, typer.Option(help="Architecture to compile for.")] = None,
    time_limit: Annotated[float, typer.Option(help="Of each step, seconds.")] = 120,
    memory_limit: Annotated[float, typer.Option(help="Of each step, GB.")] = 8,
    emulated: Annotated[
        bool, typer.Option("--emulated", help="Use no GPU, even where there is one.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")
    ] = False,
) -> None:
    """Judge a kernel file: is it right, how exact, how fast against cuBLAS, what to improve first.

    Without a GPU everything but the timing works. Exit code 0 if it passes, 1 if not.
    """
    from gemmlab import tables
    from gemmlab.directives.directive import parse
    from gemmlab.submission import table
    from gemmlab.submission.judging import Options, judge_file

    options = Options(arch, seed, time_limit, int(memory_limit * 2**30), not emulated)
    result = judge_file(file, parse(words or []), options, _told)
    if as_json:
        sys.stdout.write(json.dumps(result.as_json(), indent=2) + "\n")
    else:
        table.print_judgement(tables.console(), result)
    if not result.passed:
        raise typer.Exit(1)


def _told(step: Step) -> None:
    print(f"{step.name}: {step.status}, {step.seconds:.1f} s", file=sys.stderr)
