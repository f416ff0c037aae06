"""Compile CUDA C++ to an Artifact with NVRTC. Requires no GPU, no driver and no toolkit."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gemmlab.compile import cache, compiler_process, declarations, headers, ptx, resources
from gemmlab.compile.architectures import DEFAULT, NVRTC_ARCHITECTURES, check_architecture
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.program import ERROR, Program
from gemmlab.compile.source import instances
from gemmlab.core import status
from gemmlab.core.packages import CUDA_BINDINGS, NVRTC
from gemmlab.errors import CompileError, UnknownNameError

# A C++ name expression for NVRTC to resolve: a template instance, or a kernel in a namespace.
_EXPRESSION = re.compile(r".*(<.*>|::\w+)", re.DOTALL)
_EXPRESSIONS = "__nv_name_map"  # the file in which NVRTC reports errors of name expressions


def compile_cuda(
    source: str,
    entry: str | None = None,
    arch: str = DEFAULT,
    name: str = "kernel.cu",
    options: tuple[str, ...] = (),
) -> Artifact:
    """Compile CUDA C++ text, or load it from the cache.

    `entry` is a kernel's name in the source ("lab::sgemm" in a namespace), its PTX name, or a
    template instance such as "sgemm<128, 8>". It may be omitted if there is only one kernel.
    Messages and line information refer to the text as `name`. Host functions that do not compile,
    and the headers that only they need, are removed.

    Raises CompileError with the compiler's log, and UnknownNameError for `entry` or `arch`.
    """
    check_architecture(arch, NVRTC_ARCHITECTURES)
    made_by = versions()
    parts = ["nvrtc", source, entry or "", arch, name, _place(name), *options, repr(made_by)]
    if re.search(r'#\s*include\s*"', source):  # the cache key lacks files included from disk
        with status.doing(f"compiling {name}"):
            return _build(source, entry, arch, name, options, made_by)
    return cache.fetch(parts, lambda: _build(source, entry, arch, name, options, made_by), name)


def _place(name: str) -> str:
    """Return the path of the file that is called so: the PTX's line information contains it."""
    return os.path.abspath(name) if os.path.isfile(name) else name


def versions() -> dict[str, str]:
    """Return NVRTC's version, e.g. {"nvrtc": "13.0"}."""
    _, major, minor = _nvrtc().nvrtcVersion()
    return {"nvrtc": f"{major}.{minor}"}


def _build(
    source: str,
    entry: str | None,
    arch: str,
    name: str,
    options: tuple[str, ...],
    made_by: dict[str, str],
) -> Artifact:
    program = Program(source, name)
    while True:
        try:
            artifact = _compile(program, entry, arch, options)
            return replace(artifact, versions=made_by, left_out=program.left_out)
        except UnknownNameError as error:
            raise UnknownNameError(f"{error}{_templates(source, entry)}") from None
        except CompileError as error:
            if program.leave_out(error.log):
                continue
            if not program.left_out:
                raise
            if not error.log:  # NVRTC crashed, perhaps because something was removed
                gone = f"{error}; removed as host code: {', '.join(program.left_out)}"
                raise CompileError(gone) from error
            without = f"{name}, without its host code, does not compile for {arch}"
            raise CompileError(without, f"{error.log}\n{program.why(error.log)}") from error


def _compile(program: Program, entry: str | None, arch: str, more: tuple[str, ...]) -> Artifact:
    nvrtc = _nvrtc()
    flags = [
        f"--gpu-architecture={arch}",
        "--generate-line-info",
        "--std=c++17",
        "--device-int128",
        *more,
    ]
    # Compile unmarked functions, which nvcc compiles for the host, for the device.
    flags += ["--device-as-default-execution-space", f"--pre-include={headers.PRELUDE}"]
    source, name = program.source, program.name
    paths = headers.include_paths(source, name, nvrtc, versions()["nvrtc"])
    options = (*flags, *(f"--include-path={path}" for path in paths))
    instance = entry if entry and _EXPRESSION.fullmatch(entry) else None
    kernels = [instance] if instance else declarations.kernels(source)
    rest = name, _place(name), tuple(program.headers.items()), options, instance
    made = _ask(source + declarations.questions(kernels), *rest)
    types = declarations.answers(made.get("log", ""), kernels)
    if "error" in made:
        own_log, wrong = declarations.without_answers(made.get("log", ""))
        # An error in a question may hide or cause errors of the source.
        made = _ask(source, *rest) if wrong else made | {"log": own_log}
    if made.get("error") == "NVRTC_ERROR_COMPILATION":
        files = {file for file, _, _ in ERROR.findall(made["log"])}
        if files == {_EXPRESSIONS}:
            raise UnknownNameError(f"{name} has no kernel {entry!r}")
        raise CompileError(f"{name} does not compile for {arch}", made["log"])
    if "error" in made:
        raise CompileError(f"{name}: NVRTC failed with {made['error']}", made.get("log", ""))
    text, cubin = made["ptx"], base64.b64decode(made["cubin"])
    entries = ptx.parse(text).entries
    chosen = ptx.choose(entries, made.get("entry", entry), name, demangle=True)
    artifact = ptx.describe(text, chosen, name)
    used = resources.read(cubin, chosen, arch)
    artifact = replace(artifact, arch=arch, cubin=cubin, resources=used, options=" ".join(flags))

    def log(more: str) -> str:
        return _ask(source + more, *rest, only_log=True).get("log", "")

    return declarations.typed(artifact, source, instance, entries, types, log)


# Kernels of one file are often loaded in succession. They share its cubin and the answers.
@lru_cache(maxsize=2)
def _ask(
    source: str,
    name: str,
    _path: str,
    included: tuple[tuple[str, str], ...],
    options: tuple[str, ...],
    instance: str | None,
    only_log: bool = False,
) -> dict[str, str]:
    """Return the answer of the compiler process. It contains `_path`, that of the file."""
    return compiler_process.ask(
        source=source,
        name=name,
        headers=dict(included),
        options=options,
        instance=instance,
        only_log=only_log,
    )


def _templates(source: str, entry: str | None) -> str:
    """Return a hint about the source's kernel templates, for when no kernel was found."""
    found = instances(source)
    called = (entry or "").partition("<")[0].rpartition("::")[2].strip()
    meant = [found[called]] if called in found else [*found.values()]
    if not meant:
        return ""
    names = " or ".join(f"entry={name!r}" for name in meant)
    return f"; name a template with its arguments, as in {names}"


def _nvrtc() -> Any:
    nvrtc: Any = CUDA_BINDINGS.load("cuda.bindings.nvrtc")
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:  # its library is missing or cannot be loaded
        raise NVRTC.unusable(error) from error
    return nvrtc
