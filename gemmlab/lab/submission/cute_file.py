"""The kernel of a Python file that is written in CuTe DSL. Runs the file: in the compiling process
only."""

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
    """PTX of the file's `@cute.kernel`, which takes the arguments that args= names.

    Raises UnknownNameError where there is none of that name, InputError where the block is not
    the same for every shape, CompileError, MissingDependencyError for CuTe DSL.
    """
    CUTE_DSL.load()  # which the file imports
    directive = submission.directive
    block = dims(directive.block, "block", {})  # .reqntid: one for all shapes
    name, kernel = _kernel(submission)
    own = [_parameter(submission, word) for word in submission.argument_words]
    return compile_kernel(kernel, own, None, block, name, submission.arch)


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
        there = ", ".join(found) or "none"
        what = f"no @cute.kernel {wanted!r}" if wanted else "no single @cute.kernel"
        raise UnknownNameError(f"{submission.path.name} has {what}; there is: {there}")
    return wanted, found[wanted]


def _parameter(submission: Submission, word: str) -> Parameter:
    """Of the problem's own arguments as they are; sizes are int32, other numbers float32."""
    known = {parameter.name: parameter for parameter in submission.problem.parameters}
    if word in known:
        return known[word]
    if ":" in word:
        name, _, rest = word.partition(":")
        element = rest.partition("[")[0]
        if element not in TYPES:
            raise InputError(f"argument {word!r}: no type {element!r}; {', '.join(TYPES)}")
        return Parameter(name, TYPES[element].name, "input")
    return Parameter(word, "float32" if "." in word else "int32", "scalar")
