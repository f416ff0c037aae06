"""The kernel of a user's file as a subject of `explain`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gemmlab.compile.artifact import Artifact
from gemmlab.compile.directive import Directive
from gemmlab.compile.source import summary
from gemmlab.emulator import Trace
from gemmlab.errors import CompileError, UnknownNameError
from gemmlab.hardware.specs import Gpu
from gemmlab.lab.explain import Subject, other_target, target_of
from gemmlab.lab.explain.counted import Launched
from gemmlab.lab.explain.stalls import Call
from gemmlab.lab.kernel_file import KernelFile
from gemmlab.problems.problem import Shape

_ALL_BYTES = "No problem is named: the minimum traffic is that of all arrays, each moved once."


def subject(path: Path, words: Directive, sizes: Shape | None = None) -> Subject:
    """Return the kernel of a file; `words` replace those of its directive, `sizes` its sizes.

    Its functions raise InputError for a directive that does not describe a launch, and as
    `kernel_file.run`. A file that cannot be compiled for a GPU is compiled for the default
    architecture, with a note.
    """
    file = KernelFile.read(path, words)
    if sizes:
        given = {axis: str(size) for axis, size in sizes.items()}
        file = replace(file, directive=file.directive.overridden(Directive(sizes=given)))

    def compiled(gpu: Gpu, notes: list[str]) -> Artifact:
        artifact = _compiled(file, gpu, notes)
        file.check_launch(artifact)
        if file.problem is None:
            notes.append(_ALL_BYTES)
        return artifact

    def launched(artifact: Artifact, shape: Shape) -> tuple[Launched, ...]:
        trace = Trace()
        done = file.launch(artifact, shape, trace=trace)
        told: tuple[str, ...] = ()
        if done.verdict is not None and not done.verdict.passed:
            told = (f"{done.verdict.status}: {done.verdict.message}",)
        made = Call(done.call.grid, done.call.block, done.call.args, done.call.smem)
        return (Launched(done.case, done.call.names, artifact, trace, done.run, told, made),)

    entry = file.directive.entry
    return Subject(
        name=path.name + (f" {entry}" if entry else ""),
        change=summary(file.text),
        layout=file.layout,
        shape=file.shape(),
        problem=file.problem,
        least_bytes=file.least_bytes,
        compiled=compiled,
        geometry=file.geometry,
        launched=launched,
    )


def _compiled(file: KernelFile, gpu: Gpu, notes: list[str]) -> Artifact:
    try:
        return file.compiled(target_of(gpu))
    except (UnknownNameError, CompileError) as error:
        artifact = file.compiled()  # an error of the file itself is raised again
        why = str(error).splitlines()[0]
    notes.append(other_target(gpu, why))
    return artifact
