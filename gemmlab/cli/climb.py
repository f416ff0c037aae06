"""`gemmlab climb`: run the rungs of a ladder, check their results, count their work."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.cli.options import (
    Arch,
    AsJson,
    Clock,
    Layout,
    Predict,
    Settings,
    Sms,
    WhatIf,
    check_writable,
    complete_gpus,
    complete_kernel_lists,
    complete_problems,
    model_of,
    rungs_of,
    shape_of,
)
from gemmlab.cli.progress import Progress
from gemmlab.core import status
from gemmlab.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gemmlab.hardware.specs import Gpu
    from gemmlab.kernels.rung import Rung
    from gemmlab.lab.records import Record
    from gemmlab.timing import Model


def climb(
    problem: Annotated[
        str | None,
        typer.Argument(
            metavar="PROBLEM",
            autocompletion=complete_problems,
            help="A problem from `gemmlab list`. Default: gemm.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Climb every ladder at its default shape.")
    ] = False,
    size: Annotated[
        int | None, typer.Option(help="Size of every axis: M = N = K for gemm, N for sum.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="One size per axis; M,N for transpose.")
    ] = None,
    rungs: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            autocompletion=complete_kernel_lists,
            help="Names of the rungs to climb (see `gemmlab list`), of several ladders if no "
            "PROBLEM is given. Default: all.",
        ),
    ] = None,
    layout: Layout = None,
    settings: Settings = None,
    device: Annotated[
        str, typer.Option(help="auto (a GPU if there is one), emulated, or cuda.")
    ] = "auto",
    arch: Arch = None,
    tier: Annotated[
        str, typer.Option(help="Emulator tier: auto, numpy, or native (compiled by LLVM).")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    family: Annotated[
        str | None,
        typer.Option(
            help="Distribution of the inputs: normal, uniform, wide, …; for histogram: uniform, "
            "single, text."
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_gpus,
            help="The GPU of the bound on time: H200, A100, RTX4090, …. Default: one with the "
            "architecture; none if the rungs are timed. With --predict: H200, H100 or A100.",
        ),
    ] = None,
    predict: Predict = False,
    sms: Sms = None,
    clock: Clock = None,
    what_if: WhatIf = None,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the records to this file.")
    ] = None,
) -> None:
    """Run every rung of a ladder, check its result and count its work.

    Prints a table of the rungs and one sentence per step about what it changed. On a GPU the rungs
    are also timed. The exit code is 1 if a rung fails.
    """
    from gemmlab import problems
    from gemmlab.devices import open_device
    from gemmlab.hardware import specs
    from gemmlab.lab import records

    given = (problem, size, shape, rungs, layout, family)
    if every and any(option is not None for option in given):
        raise InputError(
            "--all cannot be combined with a problem, --size, --shape, --rungs, --layout or "
            "--family"
        )
    climbs = []
    for name, chosen in _ladders(problem, every, rungs, layout, settings).items():
        work = problems.find(name)
        sizes = shape_of(work, size, shape)
        inputs = work.families[0] if family is None else family
        case = work.case(sizes, chosen[0].layout, inputs, seed)
        climbs.append((work, case, chosen))
    if gpu is not None:
        specs.product(gpu)  # report an unknown GPU before any work is done
    check_writable(output)
    model = model_of(predict, gpu, sms, clock, what_if)
    target = open_device(device, arch, tier)
    from gemmlab.lab.climb import climb as take_steps

    done: list[list[Record]] = []

    def output_all() -> list[Record]:
        flat = list(chain.from_iterable(done))
        if output:
            records.write(output, flat)
        if as_json:
            sys.stdout.write(records.dumps(flat))
        else:
            _print_climbs([ladder for ladder in done if ladder], None if predict else gpu, model)
        return flat

    def stop() -> None:
        """Output the records so far, then exit."""
        with suppress(Exception):
            print(f"gemmlab: interrupted after {len(output_all())} rungs", file=sys.stderr)
            sys.stdout.flush()
        os._exit(130)

    progress = Progress(sum(len(chosen) for _, _, chosen in climbs))
    with status.interruptible(stop):
        for work, case, chosen in climbs:
            done.append([])
            for record in take_steps(work, case, chosen, target, progress.say, model):
                done[-1].append(record)
                progress.finish(record)
    if not all(record.passed for record in output_all()):
        raise typer.Exit(1)


def _ladders(
    problem: str | None,
    every: bool,
    rungs: str | None,
    layout: str | None,
    settings: Sequence[str] | None,
) -> dict[str, list[Rung]]:
    """Return the rungs to climb, by problem."""
    from gemmlab import problems
    from gemmlab.kernels import ladder

    if problem is not None:
        problems.find(problem)  # report an unknown problem before unknown rungs
    if every or rungs is None:
        names = problems.NAMES if every else (problem or "gemm",)
        return {name: rungs_of(name, None, layout, settings) for name in names}
    wanted: dict[str, list[str]] = {}
    for name in (name.strip() for name in rungs.split(",")):
        wanted.setdefault(ladder.find(name, layout, problem).problem, []).append(name)
    return {name: rungs_of(name, own, layout, settings) for name, own in wanted.items()}


def _print_climbs(
    ladders: Iterable[Sequence[Record]], gpu: str | None, model: Model | None
) -> None:
    from gemmlab.hardware import specs
    from gemmlab.report import tables

    out = tables.console()
    named = specs.product(gpu) if gpu else None
    for number, done in enumerate(ladders):
        if number:
            out.print()
        timed = any(record.time_s for record in done)
        of_arch = None if timed else specs.with_architecture(done[0].arch)
        _print_climb(out, done, None if model else named or of_arch, model)


def _print_climb(
    out: Console, done: Sequence[Record], gpu: Gpu | None, model: Model | None
) -> None:
    """Print one ladder: case and device, the table, notes, the timeline and the steps."""
    from gemmlab.report import prediction, steps, tables, timeline

    one = done[0]
    sizes = "×".join(str(one.shape[axis]) for axis in one.shape)
    out.print(
        f"{one.problem} {sizes}, {one.layout} layout, {one.family} inputs, seed {one.seed}, "
        f"{one.device}, {one.arch}",
    )
    out.print()
    out.print(tables.climb_table(done, out.width, gpu))
    bound = [tables.bound_note(gpu)] if gpu and any(record.counters for record in done) else []
    for lines in (
        [*tables.notes(done), *bound],
        prediction.notes(done, model) if model else [],
        timeline.lines(done, out.width),
        steps.sentences(done),
    ):
        if lines:
            out.print()
        for line in lines:
            out.print(line)
