"""`gemmlab explain`: explain the performance of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.cli.options import (
    AsJson,
    Clock,
    Layout,
    Predict,
    Settings,
    Sms,
    WhatIf,
    check_writable,
    complete_gpus,
    complete_kernels,
    is_rung,
    model_of,
    refuse_settings,
    rung_of,
    shape_of,
)
from gemmlab.core import status
from gemmlab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gemmlab.lab.explain import Subject
    from gemmlab.timing import Model, Prediction


def explain(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="RUNG|FILE",
            autocompletion=complete_kernels,
            help="Name of a rung; see `gemmlab list`. Or a .cu, .cuh, .ptx or .py (CuTe) file.",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Values that override the file's directive: entry=f grid=4 block=256 "
            "args=x:f32[n],n n=1000 problem=gemm m=64.",
        ),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Size of every axis.")] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="One size per axis; M,N for transpose.")
    ] = None,
    grid: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Of a file: blocks; the same as grid=….")
    ] = None,
    block: Annotated[
        str | None, typer.Option(metavar="X,Y,Z", help="Of a file: threads; the same as block=….")
    ] = None,
    args: Annotated[
        str | None, typer.Option(metavar="A,B", help="Of a file: arguments; the same as args=….")
    ] = None,
    layout: Layout = None,
    settings: Settings = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_gpus,
            help="The GPU to explain it for: H200, A100, RTX2080Ti, …. Default: this machine's "
            "GPU, or H200 if there is none.",
        ),
    ] = None,
    predict: Predict = False,
    sms: Sms = None,
    clock: Clock = None,
    what_if: WhatIf = None,
    as_json: AsJson = False,
    svg: Annotated[Path | None, typer.Option(help="Also write the page as SVG.")] = None,
) -> None:
    """Explain the performance of a kernel; needs no GPU.

    Shows memory traffic, roofline, occupancy and access patterns. For a rung, it compares a model
    with the emulator's counts: see `gemmlab docs explain`. A file is launched as its directive
    says.
    """
    import json

    from gemmlab.hardware import specs
    from gemmlab.lab.explain import default_gpu, explained
    from gemmlab.lab.records import write_text
    from gemmlab.report import explanation as page
    from gemmlab.report import prediction, tables

    options = {"grid": grid, "block": block, "args": args}
    given = [*(words or []), *(f"{name}={value}" for name, value in options.items() if value)]
    found = subject_of(kernel, given, size, shape, layout, settings)
    model = model_of(predict, gpu, sms, clock, what_if)
    product = specs.product(gpu) if gpu is not None else model.gpu if model else default_gpu()
    check_writable(svg, "--svg")
    status.say(f"explaining {found.name}")
    explanation = explained(found, product)
    predicted = None
    if model is not None:
        predicted = _predicted(kernel, given, explanation.shape, layout, settings, model)
    if svg:
        write_text(svg, page.as_svg(explanation))
    if as_json:
        more = {"prediction": predicted.as_json(model)} if predicted and model else {}
        print(json.dumps(explanation.as_json() | more, indent=2))
        return
    out = tables.console()
    page.show(explanation, out)
    if predicted and model:
        out.print()
        out.print(f"{prediction.device(model)[0].upper()}{prediction.device(model)[1:]}:")
        out.print(tables.facts(prediction.facts(predicted, model)))
        out.print(prediction.NOTE)


def _predicted(
    kernel: str,
    words: Sequence[str],
    shape: dict[str, int],
    layout: str | None,
    settings: Sequence[str] | None,
    model: Model,
) -> Prediction:
    """Predict the kernel's launch at the shape that is explained."""
    from gemmlab.compile.directive import parse
    from gemmlab.lab import kernel_file

    given = parse([*words, *(f"{axis}={size}" for axis, size in shape.items())])
    if is_rung(kernel):
        return kernel_file.predict(rung_of(kernel, layout, settings), given, model)[2]
    return kernel_file.predict(kernel_file.KernelFile.read(Path(kernel), given), given, model)[2]


def subject_of(
    kernel: str,
    words: Sequence[str],
    size: int | None,
    shape: str | None,
    layout: str | None,
    settings: Sequence[str] | None,
) -> Subject:
    """Return the rung or the file that a command's argument names.

    Raises InputError for options that do not apply to it, UnknownNameError for an unknown name.
    """
    from gemmlab import problems
    from gemmlab.compile.directive import parse
    from gemmlab.lab import explained_file
    from gemmlab.lab.explain.subject import of_rung
    from gemmlab.lab.kernel_file import KernelFile

    if is_rung(kernel):
        if words:
            raise InputError(f"{words[0]} is for kernel files; {kernel} is a rung: use --shape")
        rung = rung_of(kernel, layout, settings)
        problem = problems.find(rung.problem)
        return of_rung(problem, rung, shape_of(problem, size, shape))
    refuse_settings(kernel, layout, settings)
    directive, sizes = parse(list(words)), None
    if size is not None or shape is not None:
        named = KernelFile.read(Path(kernel), directive).problem
        if named is None:
            raise InputError(f"{kernel} names no problem: give its sizes, such as n=1000")
        sizes = shape_of(named, size, shape)
    return explained_file.subject(Path(kernel), directive, sizes)
