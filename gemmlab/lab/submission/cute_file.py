"""Compile the CuTe DSL kernel of a Python file. Executes the file: for the compile process only."""

from __future__ import annotations

import runpy
from typing import Any

from gemmlab.compile import Artifact
from gemmlab.compile.cute import compile_kernel
from gemmlab.core.packages import CUTE_DSL
from gemmlab.errors import InputError, UnknownNameError
from gemmlab.lab.directives.call import TYPES, dims
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Parameter


def compile_file(submission: Submission) -> Artifact:
    """Compile the file's `@cute.kernel`, whose parameters are described by args=.

    Raises UnknownNameError if the file has no such kernel, InputError or UnknownNameError if the
    block is not constant, CompileError, and MissingDependencyError without CuTe DSL.
    """
    CUTE_DSL.load()  # the file imports it
    directive = submission.directive
    block = dims(directive.block, "block", {})  # compiled in as .reqntid, so equal for all shapes
    name, kernel = _kernel(submission)
    parameters = [_parameter(submission, word) for word in submission.argument_words]
    return compile_kernel(kernel, parameters, None, block, name, submission.arch)


def _kernel(submission: Submission) -> tuple[str, Any]:
    names = runpy.run_path(str(submission.path), run_name="gemmlab_submission")
    wanted = submission.directive.entry
    found = {
        name: value
        for name, value in names.items()
        if hasattr(value, "set_name_prefix") and value.__module__ == "gemmlab_submission"
    }
    if wanted is None and len(found) == 1:
        return next(iter(found.items()))
    if wanted not in found:
        known = ", ".join(found) or "none"
        what = f"no @cute.kernel {wanted!r}" if wanted else "no single @cute.kernel: give entry="
        raise UnknownNameError(f"{submission.path.name} has {what}; its kernels: {known}")
    return wanted, found[wanted]


def _parameter(submission: Submission, word: str) -> Parameter:
    """Return the parameter for a word of args=.

    The problem's arguments have the problem's types. Other integers are int32, floats float32.
    """
    known = {parameter.name: parameter for parameter in submission.problem.parameters}
    if word in known:
        return known[word]
    if ":" in word:
        name, _, rest = word.partition(":")
        element = rest.partition("[")[0]
        if element not in TYPES:
            raise InputError(
                f"argument {word!r} has an unknown type {element!r}; choose {', '.join(TYPES)}"
            )
        return Parameter(name, TYPES[element].name, "input")
    return Parameter(word, "float32" if "." in word else "int32", "scalar")
