"""`gemmlab bench`: time kernels and libraries on a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gemmlab.cli.options import (
    AsJson,
    Layout,
    Settings,
    complete_kernels,
    complete_problems,
    rungs_of,
    shape_of,
)
from gemmlab.core import status


def bench(
    rungs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUNG|FILE",
            autocompletion=complete_kernels,
            help="Names of rungs (see `gemmlab list`), and kernel files with a directive, which "
            "are judged at this shape only. Default: the whole ladder.",
        ),
    ] = None,
    problem: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_problems, help="A problem from `gemmlab list`. Default: gemm."
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="M,N,K", help="One size per axis. Repeat the option for more shapes."),
    ] = None,
    layout: Layout = None,
    settings: Settings = None,
    family: Annotated[
        str | None, typer.Option(help="Distribution of the inputs, as for climb.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    baselines: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Libraries to compare with: cublas, torch, cupy, triton, cub; copy is a "
            "device-to-device copy. Default: all that are installed.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of interleaved rounds.")] = 5,
    min_samples: Annotated[int, typer.Option(help="Minimum number of cold runs per kernel.")] = 10,
    min_time: Annotated[float, typer.Option(help="Minimum GPU time per kernel, in seconds.")] = 0.5,
    max_noise: Annotated[
        float, typer.Option(help="Noise, in percent, below which a round may end.")
    ] = 0.5,
    timeout: Annotated[float, typer.Option(help="Time limit per kernel, in seconds.")] = 15,
    as_json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Also write the run to this new folder, after every shape."
        ),
    ] = None,
) -> None:
    """Time kernels against cuBLAS and other libraries; needs a GPU.

    NVBench measures the times, in interleaved rounds: see `gemmlab docs measuring`.
    """
    from gemmlab import problems
    from gemmlab.compile import SUFFIXES
    from gemmlab.devices import open_device
    from gemmlab.kernels import ladder
    from gemmlab.lab.bench import record, session
    from gemmlab.lab.bench.job import Outcome
    from gemmlab.lab.bench.protocol import Protocol
    from gemmlab.lab.submission.guest import guest
    from gemmlab.report import bench_tables, tables

    protocol = Protocol(rounds, min_samples, min_time, max_noise, timeout)
    guests = [guest(Path(name), layout) for name in rungs or () if name.endswith(SUFFIXES)]
    names = [name for name in rungs or () if not name.endswith(SUFFIXES)]
    first = [ladder.find(name).problem for name in names[:1]] + [own.problem for own in guests]
    work = problems.find(problem or [*first, "gemm"][0])
    plan = session.BenchPlan(
        problem=work,
        rungs=rungs_of(work.name, names or None, layout, settings) if names or not guests else [],
        guests=guests,
        shapes=[shape_of(work, None, text) for text in shape or ()]
        or [shape_of(work, work.measured_size, None)],
        family=work.families[0] if family is None else family,
        seed=seed,
        baselines=None if baselines is None else tuple(baselines.split(",")),
    )
    plan.check()
    if output:
        record.check_new(output)
    arch = open_device("cuda").arch
    status.say("measuring")

    def keep(found: Outcome) -> None:
        if output:
            record.write(output, found.records)

    outcome = session.measure(plan, protocol, arch, keep)
    if as_json:
        sys.stdout.write(record.dumps(outcome.records))
    else:
        bench_tables.print_records(tables.console(), outcome.records)
    for refusal in outcome.refusals:
        print(f"gemmlab: {refusal}", file=sys.stderr)
    if isinstance(outcome.ended_by, KeyboardInterrupt):
        raise typer.Exit(130)
    if outcome.ended_by:
        raise outcome.ended_by
    if any(refusal.failed for refusal in outcome.refusals):
        raise typer.Exit(1)
