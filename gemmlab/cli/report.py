"""`gemmlab report`: one offline HTML file of a climb, a bench, a judgement, two runs, a kernel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.cli.options import (
    AsJson,
    Clock,
    Layout,
    Predict,
    PredictedGpu,
    Settings,
    Sms,
    WhatIf,
    check_writable,
    complete_kernels,
    model_of,
)

if TYPE_CHECKING:
    from gemmlab.report.html.page import Page
    from gemmlab.timing import Model


def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            autocompletion=complete_kernels,
            help="Records of climb or bench (a file or a folder), what judge or explain printed "
            "with --json, a rung, or a .cu or .ptx file.",
        ),
    ],
    after: Annotated[
        Path | None,
        typer.Argument(metavar="[AFTER]", help="Records of the same command, to compare with."),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Size of every axis, for a rung.")] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="One size per axis, for a rung.")
    ] = None,
    layout: Layout = None,
    settings: Settings = None,
    predict: Predict = False,
    gpu: PredictedGpu = None,
    sms: Sms = None,
    clock: Clock = None,
    what_if: WhatIf = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    as_json: AsJson = False,
) -> None:
    """Write a report as one HTML file that needs no network.

    With --json, print the content of every picture instead and write no file.
    """
    from gemmlab.errors import InputError

    if not as_json:
        check_writable(output)
    path = Path(what)
    model = model_of(predict, gpu, sms, clock, what_if)
    is_kernel = path.suffix in (".cu", ".ptx")
    if (predict or gpu) and ((path.exists() and not is_kernel) or not predict):
        raise InputError("--predict is for a rung or a kernel's file, and --gpu is for --predict")
    if path.exists() and (size or shape or layout or settings):
        raise InputError("--size, --shape, --layout and --set are for a rung")
    if after:
        made = _compared(path, after)
    elif is_kernel:
        made = _file(path, model)
    elif path.exists() or path.suffix == ".json":
        made = _records(path)
    else:
        made = _rung(what, size, shape, layout, settings, gpu, model)
    if as_json:
        print(json.dumps(made.as_json(), indent=2, ensure_ascii=False))
        return
    from gemmlab.lab.records import write_text

    write_text(output, made.markup())
    print(output)


def _records(path: Path) -> Page:
    from gemmlab.cli.saved import read
    from gemmlab.lab import records
    from gemmlab.report.html import bench, climb, judgement

    first = records.entries(path)[0] if path.is_file() else None
    held = first if isinstance(first, dict) else {}
    if judgement.is_judgement(held):
        return judgement.page(held)
    if {"rung", "geometry", "points"} <= held.keys():  # of explain
        name, *settings = held["rung"].split()
        sizes = ",".join(map(str, held["shape"].values()))
        return _rung(name, None, sizes, held["layout"], settings, held["gpu"]["name"])
    found = read(path)
    return climb.page(found.climbed) if found.climbed else bench.page(found.benched)


def _compared(before: Path, after: Path) -> Page:
    from gemmlab.cli.saved import read_two
    from gemmlab.lab import changes
    from gemmlab.lab.bench.compare import compare
    from gemmlab.report.html import compare as pages

    old, new = read_two(before, after)
    if old.climbed:
        return pages.climbs(changes.compare(old.climbed, new.climbed))
    return pages.benches(compare(old.benched, new.benched))


def _file(path: Path, model: Model | None) -> Page:
    """Emulate the file once with all checks, and predict its time for a model."""
    import contextlib
    import sys

    from gemmlab.lab import kernel_file
    from gemmlab.lab.directives import Directive
    from gemmlab.lab.explain.pipeline import PipelineTrace
    from gemmlab.report.html import kernel

    trace = PipelineTrace()
    with contextlib.redirect_stdout(sys.stderr):  # what the kernel prints is no part of the report
        done = kernel_file.run(path, Directive(), trace=trace, check=["all"])
        predicted = None
        if model is not None:
            read = kernel_file.KernelFile.read(path, Directive())
            predicted = kernel_file.predict(read, Directive(), model)[2], model
    return kernel.file(path.name, done, trace, predicted)


def _rung(
    name: str,
    size: int | None,
    text: str | None,
    layout: str | None,
    settings: Sequence[str] | None,
    gpu: str | None = None,
    model: Model | None = None,
) -> Page:
    from gemmlab import problems
    from gemmlab.cli.options import rung_of, shape_of
    from gemmlab.compile.cute import compile_rung
    from gemmlab.core import status
    from gemmlab.hardware import specs
    from gemmlab.kernels import ladder
    from gemmlab.lab.explain import chained, default_gpu, explain
    from gemmlab.lab.explain.counted import launch
    from gemmlab.lab.explain.pipeline import PipelineTrace
    from gemmlab.lab.predicted import family, predict
    from gemmlab.report.html import kernel

    found = rung_of(name, layout, settings)
    problem = problems.find(found.problem)
    status.say(f"explaining {ladder.label(found)}")
    product = specs.product(gpu) if gpu else default_gpu()
    explanation = explain(problem, found, shape_of(problem, size, text), product)
    launched = None
    if explanation.counted or found.launches:
        artifact, trace = compile_rung(found, explanation.arch), PipelineTrace()
        at = explanation.counted.shape if explanation.counted else explanation.shape
        emulate = chained.launch if found.launches else launch
        launched = emulate(problem, found, artifact, at, trace)
    predicted = None
    if model is not None:
        drawn = family(problem, problem.families[0])
        case = problem.case(explanation.shape, found.layout, drawn, 0)
        predicted = predict(found, case, model)[1], model
    return kernel.rung(explanation, launched, predicted)
