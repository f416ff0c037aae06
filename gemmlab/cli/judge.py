"""`gemmlab judge`: check and time a kernel file."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.cli.options import AsJson

if TYPE_CHECKING:
    from gemmlab.lab.submission.steps import Step


def judge(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A .cu, .cuh, .ptx or .py (CuTe) file, or a FlashInfer-Bench solution.json.",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Values that override the file's directive: problem=gemm entry=f "
            "args=a,b,c,m,n,k layout=row block=16,16 grid=ceil_div(n,16),ceil_div(m,16) smem=0 "
            "multiple=128,128,8 output=finite precision=tf32, and sizes to time: m=4096.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the random inputs. Default: random.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(help="GPU architecture to compile for. Default: sm_90a.")
    ] = None,
    time_limit: Annotated[
        float, typer.Option(min=1, help="Time limit of each step, in seconds.")
    ] = 120,
    memory_limit: Annotated[
        float, typer.Option(min=1, help="Memory limit of each step without a GPU, in GiB.")
    ] = 8,
    emulated: Annotated[
        bool, typer.Option("--emulated", help="Do not use a GPU, even if there is one.")
    ] = False,
    workload: Annotated[
        Path | None,
        typer.Option(help="Also test the shapes in this FlashInfer-Bench workload.jsonl."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Also write the result to this FlashInfer-Bench trace.jsonl."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge a kernel file: is it correct, accurate and fast?

    Checks the results, classifies the precision, compares the speed with cuBLAS and says what to
    improve first: see `gemmlab docs judging`. Everything but the timing works without a GPU. The
    exit code is 0 if the kernel passes, 1 if it fails.
    """
    from gemmlab import problems
    from gemmlab.compile import source
    from gemmlab.core import scratch
    from gemmlab.lab.directives.directive import Directive, parse, read
    from gemmlab.lab.submission import flashinfer
    from gemmlab.lab.submission.judging import Options, judge_file
    from gemmlab.report import judgement, tables

    directive = parse(words or [])
    with ExitStack() as stack:
        if file.suffix == ".json":
            found = flashinfer.read_solution(source.read(file))
            file = stack.enter_context(scratch.folder()) / found.file
            file.write_text(found.text, encoding="utf-8")
            own = Directive(problem=found.definition, entry=found.entry)
            directive = own.overridden(directive)
        shapes: list[dict[str, int]] = []
        if workload:
            name = directive.problem or read(source.read(file)).problem or ""
            shapes = flashinfer.read_workloads(source.read(workload), problems.find(name))
        options = Options(
            arch=arch,
            seed=seed,
            seconds=time_limit,
            memory_bytes=int(memory_limit * 2**30),
            gpu=not emulated,
            shapes=tuple(tuple(shape.values()) for shape in shapes),
        )
        result = judge_file(file, directive, options, _report_step)
    if trace:
        flashinfer.write(trace, flashinfer.traces(result))
    if as_json:
        sys.stdout.write(json.dumps(result.as_json(), indent=2) + "\n")
    else:
        judgement.print_judgement(tables.console(), result)
    if not result.passed:
        raise typer.Exit(1)


def _report_step(step: Step) -> None:
    print(f"{step.name}: {step.status}, {step.seconds:.1f} s", file=sys.stderr)
