"""`gemmlab tune`: search a rung's configurations for the fastest."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.cli.options import (
    Arch,
    AsJson,
    Clock,
    Layout,
    Predict,
    PredictedGpu,
    Sms,
    WhatIf,
    check_writable,
    complete_kernels,
    model_of,
    rung_of,
    shape_of,
)
from gemmlab.cli.progress import Progress
from gemmlab.core import status
from gemmlab.errors import InputError

if TYPE_CHECKING:
    from gemmlab.lab.tune import Trial


def tune(
    rung: Annotated[
        str,
        typer.Argument(
            metavar="RUNG",
            autocompletion=complete_kernels,
            help="Name of a rung; see `gemmlab list`.",
        ),
    ],
    size: Annotated[int | None, typer.Option(help="Size of every axis.")] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="One size per axis; M,N for transpose.")
    ] = None,
    layout: Layout = None,
    most: Annotated[
        int | None,
        typer.Option(
            help="Try at most this many configurations, those most like the rung's first."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto (a GPU if there is one), emulated, or cuda.")
    ] = "auto",
    arch: Arch = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    predict: Predict = False,
    gpu: PredictedGpu = None,
    sms: Sms = None,
    clock: Clock = None,
    what_if: WhatIf = None,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the record to this file.")
    ] = None,
) -> None:
    """Search the configurations that a rung names for the fastest.

    On a GPU by measured time; without one by a bound from the emulator's counts, or with --predict
    by predicted time: see `gemmlab docs tuning`. Ctrl-C ends the search and keeps what was found.
    The exit code is 1 if no configuration passes. `--set` of other commands runs the result.
    """
    from gemmlab import problems
    from gemmlab.devices import open_device
    from gemmlab.devices.emulated import EmulatedDevice
    from gemmlab.lab import records
    from gemmlab.lab import tune as search
    from gemmlab.report import tables, tuning

    found = rung_of(rung, layout, None)
    problem = problems.find(found.problem)
    sizes = shape_of(problem, size, shape)
    rungs = search.chosen(found, most)
    check_writable(output)
    if gpu is not None and not predict:
        raise InputError("--gpu requires --predict")
    model = model_of(predict, gpu, sms, clock, what_if)
    target = open_device(device, arch)
    counted = isinstance(target, EmulatedDevice)
    run = search.counted_shape(problem, sizes) if counted else sizes
    case = problem.case(run, found.layout, problem.families[0], seed)
    trials: list[Trial] = []

    def output_all() -> None:
        record = {
            "rung": found.name,
            "problem": problem.name,
            "layout": found.layout,
            "shape": dict(sizes),
            "score": ("predicted time" if model else "bound") if counted else "time",
            "trials": [trial.as_json() for trial in search.ranked(trials)],
        }
        text = json.dumps(record, indent=2, allow_nan=False) + "\n"
        if output:
            records.write_text(output, text)
        if as_json:
            sys.stdout.write(text)
        elif trials:
            tuning.show(tables.console(), found, sizes, run, target.name, trials)

    def stop() -> None:
        """Output the trials so far, then exit."""
        with suppress(Exception):
            output_all()
            print(f"gemmlab: interrupted after {len(trials)} configurations", file=sys.stderr)
            sys.stdout.flush()
        os._exit(130)

    progress = Progress(len(rungs))
    with status.interruptible(stop):
        for trial in search.tune(problem, case, rungs, sizes, target, progress.say, model):
            trials.append(trial)
            progress.finish(trial.record, tuning.score(trial))
    output_all()
    if not any(trial.seconds for trial in trials):
        raise typer.Exit(1)
