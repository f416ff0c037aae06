"""A kernel file as a contender of `gemmlab bench`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gemmlab.compile import load
from gemmlab.compile.architectures import DEFAULT
from gemmlab.errors import GemmlabError, InputError, ShapeError
from gemmlab.lab.bench.job import Kernel
from gemmlab.lab.bench.session import Guest
from gemmlab.lab.directives import read
from gemmlab.lab.judge import precision
from gemmlab.lab.submission import judging
from gemmlab.lab.submission.launching import contender
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Shape


def guest(path: Path, layout: str | None = None) -> Guest:
    """Return a contender that launches the kernel of a file as its directive says.

    It compiles when the architecture is known, and raises CompileError with the status of the
    judge's step that failed. Raises InputError and UnknownNameError for the file or its directive,
    and InputError if the file's layout is not `layout`.
    """
    text = judging.read_file(path)
    try:
        directive = read(text)
        uncompiled = Submission(path, directive, DEFAULT, seed=0)
        uncompiled.check()
    except GemmlabError as error:
        raise InputError(f"{path}: {error}") from error
    if layout not in (None, uncompiled.layout):
        raise InputError(f"{path} has layout {uncompiled.layout}, not {layout}")

    @cache
    def compiled(arch: str) -> Submission:
        return judging.prepare(path, judging.Options(arch=arch, seed=0))

    def kernel(shape: Shape, arch: str) -> Kernel:
        fitted = uncompiled.fitted(tuple(shape[axis] for axis in uncompiled.problem.axes))
        if fitted != dict(shape):
            raise ShapeError(uncompiled.rule)
        submission = compiled(arch)
        problem, wanted = submission.problem, submission.precision
        artifact = load(submission.ptx, entry=submission.entry, arch=arch)
        case = problem.case(shape, submission.layout, problem.families[0], submission.seed)
        found = precision.classify([wanted], submission.ptx, wanted)
        return contender(submission, artifact, case, path.name, found)

    return Guest(
        str(path), uncompiled.problem.name, uncompiled.layout, uncompiled.precision, kernel
    )
