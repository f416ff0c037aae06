"""Compile the CuTe DSL kernel of a Python file, which executes the file."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmlab import problems
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.cute import compile_alone, measured
from gemmlab.compile.directive import TYPES, Directive, dims, read
from gemmlab.compile.source import read as read_text
from gemmlab.core import scratch
from gemmlab.core.packages import CUTE_DSL
from gemmlab.errors import CompileError, GemmlabError, InputError, UnknownNameError
from gemmlab.problems.problem import Parameter

SUFFIX = ".py"
_MODULE = "gemmlab_submission"
_NEEDS = (
    "block=… and the types of its arguments, in a comment at the top of the file: "
    "#! gemmlab block=256 args=x:f32[n],n n=1000, or a problem that has them: problem=gemm"
)


def load_text(text: str, entry: str | None, arch: str) -> Artifact:
    """Compile the kernel of a file with this text. Raises as `load_file`."""
    with scratch.folder() as folder:
        path = folder / f"kernel{SUFFIX}"
        path.write_text(text, encoding="utf-8")
        return load_file(path, Directive(entry=entry), arch)


def load_file(path: Path, words: Directive, arch: str) -> Artifact:
    """Compile the kernel of a file; `words` replace those of its directive.

    Raises CompileError for an error of the file's own code, and as `compile_file`.
    """
    directive = read(read_text(path)).overridden(words)
    try:
        return measured(compile_file(path, directive, arch))
    except (GemmlabError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the file's code may raise anything, including SystemExit
        log = f"{type(error).__name__}: {error}"
        raise CompileError(f"{path} cannot be executed", log) from error


def compile_file(path: Path, directive: Directive, arch: str) -> Artifact:
    """Compile the file's `@cute.kernel`, whose parameters are described by args=.

    Starts no process, so the artifact lacks its resources. Raises UnknownNameError if the file has
    no such kernel, InputError or UnknownNameError if the block is not constant, CompileError, and
    MissingDependencyError without CuTe DSL.
    """
    if CUTE_DSL.version is None:
        raise CUTE_DSL.unusable()
    if not directive.block or not (directive.args or directive.problem):
        raise InputError(f"{path} lacks {_NEEDS}")
    block = dims(directive.block, "block", {})  # compiled in as .reqntid, so equal for all shapes
    own = problems.find(directive.problem).parameters if directive.problem else ()
    known = {parameter.name: parameter for parameter in own}
    name, kernel = _kernel(path, directive.entry)
    parameters = [_parameter(word, known) for word in directive.args or known]
    artifact = compile_alone(kernel, parameters, None, block, name, arch)
    typed = zip(artifact.parameters, parameters, strict=True)
    return replace(
        artifact,
        origin=str(path),
        parameters=tuple(replace(of, dtype=parameter.dtype) for of, parameter in typed),
    )


def _kernel(path: Path, wanted: str | None) -> tuple[str, Any]:
    try:
        names = runpy.run_path(str(path), run_name=_MODULE)
    except Exception:
        CUTE_DSL.load()  # if it is broken, that is the error: the file imports it
        raise
    found = {
        name: value
        for name, value in names.items()
        if hasattr(value, "set_name_prefix") and value.__module__ == _MODULE
    }
    if wanted is None and len(found) == 1:
        return next(iter(found.items()))
    if wanted not in found:
        known = ", ".join(found) or "none"
        what = f"no @cute.kernel {wanted!r}" if wanted else "no single @cute.kernel: give entry="
        raise UnknownNameError(f"{path.name} has {what}; its kernels: {known}")
    return wanted, found[wanted]


def _parameter(word: str, known: Mapping[str, Parameter]) -> Parameter:
    """Return the parameter for a word of args=.

    The problem's arguments have the problem's types. Other integers are int32, floats float32.
    """
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
