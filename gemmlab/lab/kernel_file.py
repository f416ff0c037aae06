"""Somebody's kernel file, run once on the emulator as its directive says."""

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
    """What came of it. `verdict` is there where a problem is named and the launch ended."""

    artifact: Artifact
    call: Call
    run: Run
    verdict: Verdict | None = None


def directive_of(path: Path, options: Directive) -> Directive:
    """The directive in the file, with the command line's words in place of its own.

    Raises UnknownNameError where there is no such file, InputError where it cannot be read.
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
    """Compile and emulate once. `how` goes to `gemmlab.emulate`.

    Raises InputError or UnknownNameError with the word of the directive at fault, CompileError for
    the file, LaunchError and EmulationError as `gemmlab.emulate` does.
    """
    directive = directive_of(path, options)
    artifact = load(path, entry=directive.entry, arch=arch)
    status.say(f"emulating {artifact.entry}")
    if not directive.grid or not directive.block:
        raise InputError(_how_to_call(path, artifact))
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


def _how_to_call(path: Path, artifact: Artifact) -> str:
    """What to say of a file that does not tell how its kernel is launched."""
    types = ", ".join(f".{p.ptx_type}" if p.size <= 8 else "struct" for p in artifact.parameters)
    return (
        f"{path} does not say grid and block of {artifact.entry}({types}): give "
        "grid=… block=… args=… here, or in a comment at its top, "
        "//! gemmlab block=256 grid=ceil_div(n,256) args=x:f32[n],n n=1000"
    )


def _emulated(
    artifact: Artifact, call: Call, results: list[np.ndarray], how: dict[str, Any]
) -> Run:
    """results: arrays that the kernel must write before it reads them, besides those with the fill
    `empty`."""
    ran = emulate(
        artifact,
        grid=call.grid,
        block=call.block,
        args=call.args,
        dynamic_smem=call.smem,
        cluster=call.cluster if math.prod(call.cluster) > 1 else None,  # else as compiled
        uninitialized=[*results, *call.filled("empty")],
        outputs=call.filled(None),
        **how,
    )
    findings = tuple(replace(f, message=call.named(f.message)) for f in ran.findings)
    return replace(ran, findings=findings)
