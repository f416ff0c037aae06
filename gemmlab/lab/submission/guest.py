"""A kernel file among the contenders of `gemmlab bench`."""

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
    """The kernel of a file, called as its directive says, to be compiled when it is known for what.

    Raises InputError and UnknownNameError for the file, for its directive, and where its layout is
    not the one asked for; its kernel raises CompileError, with the status of the judge's step that
    failed.
    """
    text = judging.read_file(path)
    try:
        directive = read(text)
        told = Submission(path, directive, DEFAULT, seed=0)
        told.check()
    except GemmlabError as error:
        raise InputError(f"{path}: {error}") from error
    if layout not in (None, told.layout):
        raise InputError(f"{path} is in layout {told.layout}, not {layout}")

    @cache
    def compiled(arch: str) -> Submission:
        return judging.prepare(path, judging.Options(arch=arch, seed=0))

    def kernel(shape: Shape, arch: str) -> Kernel:
        fitted = told.fitted(tuple(shape[axis] for axis in told.problem.axes))
        if fitted != dict(shape):
            raise ShapeError(f"takes multiples of {','.join(directive.multiple)} only")
        own = compiled(arch)
        artifact = load(own.ptx, entry=own.entry, arch=arch)
        case = own.problem.case(shape, own.layout, own.problem.families[0], own.seed)
        found = precision.classify([told.precision], own.ptx, told.precision)
        return contender(own, artifact, case, path.name, found)

    return Guest(str(path), told.problem.name, told.layout, told.precision, kernel)
