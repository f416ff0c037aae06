"""`gemmlab judge`: check and time a kernel file."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.cli.classroom import Outcome, judge_folder
from gemmlab.cli.options import (
    AsJson,
    Layout,
    Settings,
    complete_kernels,
    complete_problems,
    is_rung,
    refuse_settings,
    rung_of,
)
from gemmlab.errors import InputError

if TYPE_CHECKING:
    from gemmlab.lab.submission.steps import Step


def judge(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUNG|FOLDER",
            autocompletion=complete_kernels,
            help="A .cu, .cuh, .ptx or .py (CuTe) file, a FlashInfer-Bench solution.json, the name "
            "of a rung of one launch, or a folder of submissions.",
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
    problem: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.py",
            autocompletion=complete_problems,
            help="The problem that the kernel solves, in place of the directive's; a Python file "
            "with one of your own: see `gemmlab docs problems`.",
        ),
    ] = None,
    layout: Layout = None,
    settings: Settings = None,
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
    sandbox: Annotated[
        str | None,
        typer.Option(
            metavar="auto|required|off",
            help="Confine the processes that touch the file: auto (the default), as far as this "
            "machine can; required (the default for a folder), or do not judge; off, never.",
        ),
    ] = None,
    board: Annotated[
        Path | None, typer.Option(help="For a folder: write a page of all grades, to project.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="For a folder: write the grades; those of an earlier run are kept."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="For a folder: submissions judged at a time. Default: half as many as processors.",
        ),
    ] = None,
    quota: Annotated[
        float,
        typer.Option(min=1, help="Time limit of all steps of a submission together, in seconds."),
    ] = 600,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="For a folder: judge on the workers of this Dask scheduler."
        ),
    ] = None,
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
    """Judge a kernel file, or a rung: is it correct, accurate and fast?

    Checks the results, classifies the precision, compares the speed with cuBLAS and says what to
    improve first: see `gemmlab docs judging`. Everything but the timing works without a GPU. The
    exit code is 0 if the kernel passes, 1 if it fails; for a folder it is 0 once all are judged.
    """
    from gemmlab import problems
    from gemmlab.compile import source
    from gemmlab.compile.directive import Directive, parse, read
    from gemmlab.core import scratch
    from gemmlab.lab.submission import flashinfer, isolation
    from gemmlab.lab.submission.judging import Options, judge_file, judge_rung
    from gemmlab.report import judgement, tables

    given = [*(words or []), *([f"problem={problem}"] if problem else [])]
    directive, file = parse(given), Path(kernel)
    whole = file.is_dir()
    if not whole and (board or csv or jobs or dask):
        raise InputError(f"--board, --csv, --jobs and --dask are for folders; {kernel} is none")
    if whole and (workload or trace):
        raise InputError(f"--workload and --trace are for a file; {kernel} is a folder")
    rung = rung_of(kernel, layout, settings) if not whole and is_rung(kernel) else None
    if rung is None:
        refuse_settings(kernel, layout, settings)
    with ExitStack() as stack:
        if file.suffix == ".json":
            found = flashinfer.read_solution(source.read(file))
            file = stack.enter_context(scratch.folder()) / found.file
            file.write_text(found.text, encoding="utf-8")
            own = Directive(problem=found.definition, entry=found.entry)
            directive = own.overridden(directive)
        shapes: list[dict[str, int]] = []
        if workload:
            own_name = rung.problem if rung else read(source.read(file)).problem
            name = directive.problem or own_name or ""
            shapes = flashinfer.read_workloads(source.read(workload), problems.find(name))
        options = Options(
            arch=arch,
            seed=seed,
            seconds=time_limit,
            memory_bytes=int(memory_limit * 2**30),
            gpu=not emulated,
            quota_s=quota,
            sandbox=isolation.named(sandbox or ("required" if whole else "auto")),
            shapes=tuple(tuple(shape.values()) for shape in shapes),
        )
        if whole:
            judge_folder(file, directive, options, Outcome(board, csv, jobs, dask, as_json))
            return
        if rung is not None:
            result = judge_rung(rung, directive, options, _report_step)
        else:
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
