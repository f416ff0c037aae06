"""Options that several commands share, and functions that interpret them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmlab.errors import InputError, ShapeError

if TYPE_CHECKING:
    from gemmlab.kernels.rung import Rung
    from gemmlab.problems.problem import Problem
    from gemmlab.timing import Model


def complete_kernels(incomplete: str) -> list[str]:
    """Return the rungs that start with a text; for the shell."""
    from gemmlab.kernels import ladder

    return [name for name in ladder.names() if name.startswith(incomplete)]


def complete_kernel_lists(incomplete: str) -> list[str]:
    """Return the lists that add a rung to those before the last comma; for the shell."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_kernels(last)]


def complete_problems(incomplete: str) -> list[str]:
    """Return the problems that start with a text; for the shell."""
    from gemmlab import problems

    return [name for name in problems.NAMES if name.startswith(incomplete)]


def complete_gpus(incomplete: str) -> list[str]:
    """Return the GPUs that start with a text, as --gpu takes them; for the shell."""
    from gemmlab.hardware import specs

    names = dict.fromkeys(gpu.name.replace(" ", "") for gpu in specs.GPUS)
    return [name for name in names if name.startswith(incomplete)]


Layout = Annotated[
    str | None,
    typer.Option(
        help="row (default): all matrices row-major; course: A row-major, B and C column-major."
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(help="GPU architecture to compile for, e.g. sm_90a. Default: the device's."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Another value in the rung's configuration, such as block_m=64; repeat for more. "
        "`gemmlab show RUNG` lists them.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON to stdout.")]
Predict = Annotated[
    bool,
    typer.Option(
        "--predict",
        help="Also predict times on a GPU, without one; see `gemmlab docs predicting`.",
    ),
]
PredictedGpu = Annotated[
    str | None,
    typer.Option(autocompletion=complete_gpus, help="With --predict: H200, H100 or A100."),
]
Sms = Annotated[int | None, typer.Option(help="With --predict: another number of multiprocessors.")]
Clock = Annotated[float | None, typer.Option(help="With --predict: another clock, GHz.")]
WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CHANGE",
        help="With --predict: no-bank-conflicts, no-register-conflicts, twice-l2, twice-l2-rate, "
        "twice-dram-rate or half-latency; repeat for more.",
    ),
]


def model_of(
    predict: bool,
    gpu: str | None,
    sms: int | None,
    clock: float | None,
    what_if: Sequence[str] | None,
) -> Model | None:
    """Return the model of the GPU to predict for, H200 by default; None without --predict.

    Raises InputError for options that require it, and as `timing.model`.
    """
    from gemmlab import timing

    if predict:
        return timing.model(gpu or "H200", sms, clock, what_if or ())
    if sms is not None or clock is not None or what_if:
        raise InputError("--sms, --clock and --what-if require --predict")
    return None


def shape_of(problem: Problem, size: int | None, text: str | None) -> dict[str, int]:
    """Return the shape given by --size or --shape, or the default one. Its range is not checked.

    Raises InputError for both options, ShapeError for a --shape that cannot be parsed.
    """
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


def is_rung(name: str) -> bool:
    """Whether a command's argument names a rung, not a file."""
    return not Path(name).suffix and "/" not in name and not Path(name).is_file()


def refuse_settings(file: str, layout: str | None, settings: Sequence[str] | None) -> None:
    """Raise InputError for options of rungs that are given for a file."""
    for option, given in (("--layout", layout), ("--set", settings)):
        if given:
            raise InputError(f"{option} is for rungs; {file} is a file")


def rung_of(name: str, layout: str | None, settings: Sequence[str] | None) -> Rung:
    """Return a rung of any ladder, with the words of --set in its configuration.

    Raises UnknownNameError and InputError, which has the rule that a value breaks.
    """
    from gemmlab.kernels import ladder
    from gemmlab.kernels.settings import configured, read

    return configured(ladder.find(name, layout), read(settings or ()))


def rungs_of(
    problem: str,
    names: Sequence[str] | None,
    layout: str | None,
    settings: Sequence[str] | None = None,
) -> list[Rung]:
    """Return the named rungs of one ladder; all of them if `names` is None.

    All rungs have one layout: `layout`, or the one that their names imply. The words of --set apply
    to each. Raises InputError for names of different layouts, and as `rung_of`.
    """
    from gemmlab.kernels import ladder
    from gemmlab.kernels.settings import configured, read

    wanted = [rung.name for rung in ladder.rungs(problem)] if names is None else names
    changes = read(settings or ())
    named = [configured(ladder.find(name, layout, problem), changes) for name in wanted]
    found = list({ladder.label(rung): rung for rung in named}.values())  # without duplicates
    if len({rung.layout for rung in found}) > 1:
        raise InputError(f"{', '.join(wanted)}: different layouts; choose one with --layout")
    return found


def check_writable(path: Path | None, option: str = "-o") -> None:
    """Raise InputError, before any work is done, if the file cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: this is a folder, not a file")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: folder {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: permission denied")
