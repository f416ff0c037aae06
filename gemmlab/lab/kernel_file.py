"""Run the kernel of a user's file once on the emulator, launched as its directive says."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab import problems
from gemmlab.compile import Artifact, load, source
from gemmlab.core import status
from gemmlab.devices.emulated import emulate
from gemmlab.errors import InputError
from gemmlab.lab import judge
from gemmlab.lab.directives import Directive, read
from gemmlab.lab.directives.call import Call, bind, check_sizes, layout_of, prepare, shape_of
from gemmlab.lab.judge import Verdict

if TYPE_CHECKING:
    from gemmlab.emulator import Run


@dataclass(frozen=True)
class FileRun:
    """A run and its result; no verdict without a problem, or if a finding ended the launch."""

    artifact: Artifact
    call: Call
    run: Run
    verdict: Verdict | None = None


def directive_of(path: Path, options: Directive) -> Directive:
    """Return the file's directive, with the words of `options` in place of its own.

    Raises UnknownNameError if the file does not exist, InputError if it cannot be read.
    """
    return read(source.read(path)).overridden(options)


def run(
    path: Path,
    options: Directive,
    *,
    arch: str | None = None,
    seed: int = 0,
    family: str | None = None,
    **how: Any,
) -> FileRun:
    """Compile the file and emulate one launch. `how` is passed to `gemmlab.emulate`.

    Raises InputError or UnknownNameError that names the directive's invalid word, CompileError for
    the file, and LaunchError and EmulationError as `gemmlab.emulate` does.
    """
    directive = directive_of(path, options)
    artifact = load(path, entry=directive.entry, arch=arch)
    status.say(f"emulating {artifact.entry}")
    if not directive.grid or not directive.block:
        raise InputError(_missing_launch(path, artifact))
    if directive.problem is None:
        call = prepare(directive, seed)
        return FileRun(artifact, call, _emulated(artifact, call, [], how))
    problem = problems.find(directive.problem)
    check_sizes(directive, problem.axes)
    layout = layout_of(directive, problem)
    shape = shape_of(directive, dict.fromkeys(problem.axes, problem.default_size))
    case = problem.case(shape, layout, family or problem.families[0], seed)
    images = judge.arrays(problem, case)
    call = bind(directive, problem, case, {**images, **case.scalars})
    results = [images[p.name] for p in problem.parameters if p.kind == "output"]
    ran = _emulated(artifact, call, results, how)
    if any(finding.stops for finding in ran.findings):
        return FileRun(artifact, call, ran)
    return FileRun(artifact, call, ran, judge.judge_arrays(images, problem, case))


def _missing_launch(path: Path, artifact: Artifact) -> str:
    """Return the error message for a file without a grid or block."""
    types = ", ".join(f".{p.ptx_type}" if p.size <= 8 else "struct" for p in artifact.parameters)
    return (
        f"{path} does not give the grid and block of {artifact.entry}({types}): add "
        "grid=… block=… args=… to the command, or to a comment at the top of the file, "
        "//! gemmlab block=256 grid=ceil_div(n,256) args=x:f32[n],n n=1000"
    )


def _emulated(
    artifact: Artifact, call: Call, results: list[np.ndarray], how: dict[str, Any]
) -> Run:
    """Emulate one launch.

    The kernel must write the arrays in `results`, and those with the fill `empty`, before it reads
    them.
    """
    ran = emulate(
        artifact,
        grid=call.grid,
        block=call.block,
        args=call.args,
        dynamic_smem=call.smem,
        cluster=call.cluster if math.prod(call.cluster) > 1 else None,  # None: as compiled
        uninitialized=[*results, *call.filled("empty")],
        outputs=call.filled(None),
        **how,
    )
    findings = tuple(replace(f, message=call.named(f.message)) for f in ran.findings)
    return replace(ran, findings=findings)
