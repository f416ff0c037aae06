"""The command line. Results go to stdout, progress and errors to stderr.

Exit codes: 0 all well, 1 a verdict failed, a rung could not run or became slower, 2 a wrong option
or value, 3 no device or a missing package, 4 the emulated kernel did something wrong, 130
interrupted. supervisor.py sees to interruptions.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab import status
from gemmlab.commands.compare import compare
from gemmlab.commands.docs import docs
from gemmlab.commands.emulate import emulate
from gemmlab.commands.env import env
from gemmlab.commands.judge import export, judge, new
from gemmlab.errors import GemmlabError, InputError, ShapeError

if TYPE_CHECKING:
    from rich.console import Console

    from gemmlab.kernels.rung import Rung
    from gemmlab.problems.problem import Problem
    from gemmlab.records import Record

app = typer.Typer(
    name="gemmlab",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Layout = Annotated[
    str | None,
    typer.Option(help="row (default), or course: A row-major, B and C column-major."),
]
Arch = Annotated[
    str | None,
    typer.Option(help="GPU architecture to compile for, e.g. sm_90a. Default: the device's own."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit; an error of gemmlab's own is one message, no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an old locale may have no "→"
            stream.reconfigure(errors="replace")
    try:
        app(args=None if args is None else list(args), prog_name="gemmlab")
    except GemmlabError as error:
        print(f"gemmlab: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"gemmlab: {error}", file=sys.stderr)
        sys.exit(InputError.exit_code)
    except MemoryError as error:
        print(f"gemmlab: not enough memory: {error or 'try a smaller shape'}", file=sys.stderr)
        sys.exit(InputError.exit_code)
    finally:
        status.say("ending")


def _version(wanted: bool) -> None:
    if wanted:
        from gemmlab.environment import own_version

        print(f"gemmlab {own_version()}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Write GPU kernels in Python; see on any machine why they are fast or slow."""


def climb(
    problem: Annotated[
        str | None,
        typer.Argument(
            metavar="PROBLEM", help="gemm (default), transpose, sum, histogram or vector-add."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Climb every ladder, at its default shape.")
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
            help="Rungs to climb, by their names in `gemmlab list`. Default: all. Without a "
            "problem, rungs of several ladders can be named.",
        ),
    ] = None,
    layout: Layout = None,
    device: Annotated[
        str, typer.Option(help="auto (a GPU if there is one), emulated or cuda.")
    ] = "auto",
    arch: Arch = None,
    tier: Annotated[
        str, typer.Option(help="Emulator tier: auto, numpy, or native (compiled by LLVM).")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    family: Annotated[
        str | None,
        typer.Option(
            help="Family of inputs: normal, uniform, wide, …; for histogram uniform, single, text."
        ),
    ] = None,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the records to this file.")
    ] = None,
) -> None:
    """Run, judge and count every rung of a ladder.

    Prints a table of the rungs, and a sentence on what each step changed. With a GPU the rungs are
    timed, too. Exit code 1 if a rung fails.
    """
    from gemmlab import problems, records
    from gemmlab.devices import open_device

    given = (problem, size, shape, rungs, layout, family)
    if every and any(option is not None for option in given):
        raise InputError("--all climbs every ladder as it is; give no problem, shape or rungs")
    climbs = []
    for name, chosen in _ladders(problem, every, rungs, layout).items():
        work = problems.find(name)
        sizes = _shape(work, size, shape)
        inputs = work.families[0] if family is None else family
        case = work.case(sizes, chosen[0].layout, inputs, seed)
        climbs.append((work, case, chosen))
    _check_writable(output)
    target = open_device(device, arch, tier)
    from gemmlab.climb import climb as take_steps

    done: list[list[Record]] = []

    def tell() -> list[Record]:
        flat = list(chain.from_iterable(done))
        if output:
            records.write(output, flat)
        if as_json:
            sys.stdout.write(records.dumps(flat))
        else:
            _print_climbs(ladder for ladder in done if ladder)
        return flat

    def stop() -> None:
        """What is done is not lost."""
        with suppress(Exception):
            print(f"gemmlab: interrupted after {len(tell())} rungs", file=sys.stderr)
            sys.stdout.flush()
        os._exit(130)

    progress = _Progress(sum(len(chosen) for _, _, chosen in climbs))
    with status.interruptible(stop):
        for work, case, chosen in climbs:
            done.append([])
            for record in take_steps(work, case, chosen, target, progress.say):
                done[-1].append(record)
                progress.finish(record)
    if not all(record.passed for record in tell()):
        raise typer.Exit(1)


def bench(
    rungs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUNG|FILE",
            help="Rungs, by their names in `gemmlab list`, and kernel files with a directive, "
            "which are judged at this shape alone. Default: the whole ladder.",
        ),
    ] = None,
    problem: Annotated[
        str | None, typer.Option(help="gemm (default), transpose, sum, histogram or vector-add.")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="M,N,K", help="One size per axis. Repeat it for more shapes."),
    ] = None,
    layout: Layout = None,
    family: Annotated[str | None, typer.Option(help="Family of inputs, as in climb.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    baselines: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Libraries to compare with: cublas, torch, cupy, triton; copy, cub. Default: all "
            "that are installed.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds in which the contenders take turns.")] = 5,
    min_samples: Annotated[int, typer.Option(help="Fewest cold runs of each contender.")] = 10,
    min_time: Annotated[float, typer.Option(help="Least GPU time of each, in seconds.")] = 0.5,
    max_noise: Annotated[
        float, typer.Option(help="Noise below which a round may end, in percent.")
    ] = 0.5,
    timeout: Annotated[float, typer.Option(help="Time limit of each, in seconds.")] = 15,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write a file per record to this folder.")
    ] = None,
) -> None:
    """Time kernels against cuBLAS and other libraries; needs a GPU.

    Times are taken by NVBench's protocol, in interleaved rounds: see `gemmlab docs measuring`.
    """
    from gemmlab import ladder, problems, tables
    from gemmlab.bench import record, session, table
    from gemmlab.bench.protocol import Protocol
    from gemmlab.devices import open_device
    from gemmlab.submission.guest import guest
    from gemmlab.submission.submission import SUFFIXES

    protocol = Protocol(rounds, min_samples, min_time, max_noise, timeout)
    guests = [guest(Path(name), layout) for name in rungs or () if name.endswith(SUFFIXES)]
    names = [name for name in rungs or () if not name.endswith(SUFFIXES)]
    first = [ladder.find(name).problem for name in names[:1]] + [own.problem for own in guests]
    work = problems.find(problem or [*first, "gemm"][0])
    plan = session.Plan(
        problem=work,
        rungs=_rungs(work.name, names or None, layout) if names or not guests else [],
        guests=guests,
        shapes=[_shape(work, None, text) for text in shape or ()]
        or [_shape(work, session.SIZES.get(work.name, session.VECTOR), None)],
        family=work.families[0] if family is None else family,
        seed=seed,
        baselines=None if baselines is None else tuple(baselines.split(",")),
    )
    plan.check()
    arch = open_device("cuda").arch
    status.say("measuring")
    outcome = session.measure(plan, protocol, arch)
    if output:
        record.write(output, outcome.records)
    if as_json:
        sys.stdout.write(record.dumps(outcome.records))
    else:
        table.print_records(tables.console(), outcome.records)
    for refusal in outcome.refusals:
        print(f"gemmlab: {refusal}", file=sys.stderr)
    if isinstance(outcome.ended_by, KeyboardInterrupt):
        raise typer.Exit(130)
    if outcome.ended_by:
        raise outcome.ended_by
    if any(refusal.failed for refusal in outcome.refusals):
        raise typer.Exit(1)


def list_(as_json: AsJson = False) -> None:
    """List the rungs of every ladder."""
    import json

    from gemmlab import ladder, problems, tables

    rungs = [rung for name in problems.NAMES for rung in ladder.rungs(name)]
    if as_json:
        names = ("problem", "name", "course_name", "change")
        print(json.dumps([{n: getattr(rung, n) for n in names} for rung in rungs], indent=2))
        return
    rows = [[rung.problem, ladder.qualified(rung), rung.change] for rung in rungs]
    tables.console().print(tables.plain_table(["problem", "rung", "what it changes"], rows))


def show(
    rung: Annotated[
        str, typer.Argument(metavar="RUNG", help="A rung's name, as in `gemmlab list`.")
    ],
    source: Annotated[
        bool, typer.Option("--source", help="Its source: the rung's file and its kernel's.")
    ] = False,
    ptx: Annotated[bool, typer.Option("--ptx", help="Its PTX.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="Its machine code.")] = False,
    resources: Annotated[
        bool, typer.Option("--resources", help="Its registers, spills, shared memory, occupancy.")
    ] = False,
    layout: Layout = None,
    arch: Annotated[
        str | None, typer.Option(help="GPU architecture to compile for. Default: sm_90a.")
    ] = None,
) -> None:
    """Show a kernel: its lesson, source, PTX, SASS or resources."""
    if source + ptx + sass + resources > 1:
        raise InputError("give one of --source, --ptx, --sass, --resources")
    if arch is not None and not ptx + sass + resources:
        raise InputError("--arch goes with --ptx, --sass or --resources")
    from gemmlab import ladder, tables, views

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


def explain(
    rung: Annotated[
        str, typer.Argument(metavar="RUNG", help="A rung's name, as in `gemmlab list`.")
    ],
    size: Annotated[int | None, typer.Option(help="Size of every axis.")] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="One size per axis; M,N for transpose.")
    ] = None,
    layout: Layout = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="H200, A100, RTX2080Ti, …. Default: this machine's GPU, else H200."),
    ] = None,
    as_json: AsJson = False,
    svg: Annotated[Path | None, typer.Option(help="Also write the page as SVG.")] = None,
) -> None:
    """Explain why a kernel is as fast as it is; needs no GPU.

    Traffic, roofline, occupancy, access patterns, and a model beside what the emulator counts: see
    `gemmlab docs explain`.
    """
    import json

    from gemmlab import ladder, problems, tables
    from gemmlab.explain import default_gpu, page
    from gemmlab.explain import explain as explain_rung
    from gemmlab.hardware import specs
    from gemmlab.records import write_text

    found = ladder.find(rung, layout)
    problem = problems.find(found.problem)
    sizes = _shape(problem, size, shape)
    product = specs.product(gpu) if gpu is not None else default_gpu()
    _check_writable(svg, "--svg")
    status.say(f"explaining {ladder.label(found)}")
    explanation = explain_rung(problem, found, sizes, product)
    if svg:
        write_text(svg, page.as_svg(explanation))
    if as_json:
        print(json.dumps(explanation.as_json(), indent=2))
    else:
        page.show(explanation, tables.console())


# In the order in which --help lists them.
app.command()(climb)
app.command(name="list")(list_)
for command in (show, explain, emulate, new, judge, bench, compare, export, env, docs):
    app.command()(command)


class _Progress:
    """A line per rung on stderr; to a terminal also what is being done."""

    def __init__(self, total: int) -> None:
        from gemmlab import tables

        self._total, self._count = total, 0
        self._console = tables.console(stderr=True)

    def say(self, rung: str, doing: str) -> None:
        status.say(f"{self._count + 1}/{self._total} {rung}: {doing}")

    def finish(self, record: Record) -> None:
        self._count += 1
        self._console.print(
            f"{self._count}/{self._total} {record.rung}: {record.verdict}, "
            f"{record.host_s or 0:.1f} s",
        )


def _print_climbs(ladders: Iterable[Sequence[Record]]) -> None:
    from gemmlab import tables

    out = tables.console()
    for number, done in enumerate(ladders):
        if number:
            out.print()
        _print_climb(out, done)


def _print_climb(out: Console, done: Sequence[Record]) -> None:
    """One ladder: what was computed on what, the table, what it cannot hold, and the steps."""
    from gemmlab import steps, tables
    from gemmlab.report import timeline

    one = done[0]
    sizes = "×".join(str(one.shape[axis]) for axis in one.shape)
    out.print(
        f"{one.problem} {sizes}, {one.layout} layout, {one.family} inputs, seed {one.seed}, "
        f"{one.device}, {one.arch}",
    )
    out.print()
    out.print(tables.climb_table(done, out.width))
    for lines in (tables.notes(done), timeline.lines(done, out.width), steps.sentences(done)):
        if lines:
            out.print()
        for line in lines:
            out.print(line)


def _shape(problem: Problem, size: int | None, text: str | None) -> dict[str, int]:
    """The shape that --size or --shape asks for; the problem checks its range."""
    if text is None:
        return dict.fromkeys(problem.axes, problem.default_size if size is None else size)
    if size is not None:
        raise InputError("give --size or --shape, not both")
    wanted = ",".join(problem.axes).upper()
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise ShapeError(f"--shape {text!r} is not of the form {wanted}") from None
    if len(sizes) != len(problem.axes):
        raise ShapeError(f"--shape {text!r} has {len(sizes)} sizes; it must be {wanted}")
    return dict(zip(problem.axes, sizes, strict=True))


def _ladders(
    problem: str | None, every: bool, rungs: str | None, layout: str | None
) -> dict[str, list[Rung]]:
    """What is to be climbed, by the names of the ladders."""
    from gemmlab import ladder, problems

    if problem is not None:
        problems.find(problem)  # before its rungs are looked for
    if every or rungs is None:
        names = problems.NAMES if every else (problem or "gemm",)
        return {name: _rungs(name, None, layout) for name in names}
    wanted: dict[str, list[str]] = {}
    for name in (name.strip() for name in rungs.split(",")):
        wanted.setdefault(ladder.find(name, layout, problem).problem, []).append(name)
    return {name: _rungs(name, own, layout) for name, own in wanted.items()}


def _rungs(problem: str, names: Sequence[str] | None, layout: str | None) -> list[Rung]:
    """Rungs of one ladder, all in one layout: `layout`, or the one that their names mean."""
    from gemmlab import ladder

    wanted = [rung.name for rung in ladder.rungs(problem)] if names is None else names
    named = [ladder.find(name, layout, problem) for name in wanted]
    found = list({ladder.label(rung): rung for rung in named}.values())  # each once
    if len({rung.layout for rung in found}) > 1:
        raise InputError(f"{', '.join(wanted)}: two layouts; say which with --layout")
    return found


def _check_writable(path: Path | None, option: str = "-o") -> None:
    """Find out before the work, not after it, that the file cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: is a folder")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: no permission to write there")
