"""CUDA C++ text to Artifact through NVRTC, on a machine with no GPU, no driver and no toolkit."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import replace
from functools import partial
from typing import Any

from gemmlab.compile import cache, compiler_process, declarations, headers, ptx, resources
from gemmlab.compile.architectures import DEFAULT, NVRTC_ARCHITECTURES, check_architecture
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.program import ERROR, Program
from gemmlab.compile.source import instances
from gemmlab.core import status
from gemmlab.core.packages import CUDA_BINDINGS, NVRTC
from gemmlab.errors import CompileError, UnknownNameError

# A name that NVRTC has to look up in C++: a template's instance, or a kernel in a namespace.
_EXPRESSION = re.compile(r".*(<.*>|::\w+)", re.DOTALL)
_EXPRESSIONS = "__nv_name_map"  # the file that NVRTC makes of them


def compile_cuda(
    source: str,
    entry: str | None = None,
    arch: str = DEFAULT,
    name: str = "kernel.cu",
    options: tuple[str, ...] = (),
) -> Artifact:
    """Compile CUDA C++ text, from the cache where it is there.

    `entry` is a kernel's name as in the source ("lab::sgemm" in a namespace), its name in the PTX,
    or an instance of a template such as "sgemm<128, 8>"; it may be left out where there is one
    kernel. `name` is what messages and line numbers call the text. Functions of the host, and
    headers that only those need, are left out where they do not compile. Raises CompileError with
    the compiler's log.
    """
    check_architecture(arch, NVRTC_ARCHITECTURES)
    made_by = versions()
    # The PTX says where the lines of a file are.
    place = os.path.abspath(name) if os.path.isfile(name) else name
    parts = ["nvrtc", source, entry or "", arch, name, place, *options, repr(made_by)]
    if re.search(r'#\s*include\s*"', source):  # what is included from disk is in no key
        with status.doing(f"compiling {name}"):
            return _build(source, entry, arch, name, options, made_by)
    return cache.fetch(parts, lambda: _build(source, entry, arch, name, options, made_by), name)


def versions() -> dict[str, str]:
    """NVRTC's version."""
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
            if not error.log:  # it crashed, perhaps for want of them
                gone = f"{error}; left out as code of the host: {', '.join(program.left_out)}"
                raise CompileError(gone) from error
            without = f"{name}, without its code of the host, does not compile for {arch}"
            raise CompileError(without, f"{error.log}\n{program.why(error.log)}") from error


def _compile(program: Program, entry: str | None, arch: str, options: tuple[str, ...]) -> Artifact:
    nvrtc = _nvrtc()
    told = [
        f"--gpu-architecture={arch}",
        "--generate-line-info",
        "--std=c++17",
        "--device-int128",
        *options,
    ]
    # Helpers that nvcc compiles for the host are for the device here: there is no host.
    told += ["--device-as-default-execution-space", f"--pre-include={headers.PRELUDE}"]
    source, name = program.source, program.name
    paths = headers.include_paths(source, name, nvrtc, versions()["nvrtc"])
    flags = [*told, *(f"--include-path={path}" for path in paths)]
    instance = entry if entry and _EXPRESSION.fullmatch(entry) else None
    ask = partial(compiler_process.ask, name=name, headers=program.headers, options=flags)
    made = ask(source=source, instance=instance)
    if made.get("error") == "NVRTC_ERROR_COMPILATION":
        files = {file for file, _, _ in ERROR.findall(made["log"])}
        if files == {_EXPRESSIONS}:
            raise UnknownNameError(f"{name} has no kernel {entry!r}")
        raise CompileError(f"{name} does not compile for {arch}", made["log"])
    if "error" in made:
        raise CompileError(f"{name}: NVRTC says {made['error']}", made.get("log", ""))
    text, cubin = made["ptx"], base64.b64decode(made["cubin"])
    chosen = ptx.choose(ptx.parse(text).entries, made.get("entry", entry), name, demangle=True)
    artifact = ptx.describe(text, chosen, name)
    used = resources.read(cubin, chosen, arch)
    artifact = replace(artifact, arch=arch, cubin=cubin, resources=used, options=" ".join(told))

    def log(more: str) -> str:
        return ask(source=source + more, only_log=True).get("log", "")

    return declarations.typed(artifact, source, instance, log)


def _templates(source: str, entry: str | None) -> str:
    """What to say of a source's templates where no kernel is found."""
    found = instances(source)
    called = (entry or "").partition("<")[0].rpartition("::")[2].strip()
    meant = [found[called]] if called in found else [*found.values()]
    if not meant:
        return ""
    names = " or ".join(f"entry={name!r}" for name in meant)
    return f"; a template is an entry with its arguments, as in {names}"


def _nvrtc() -> Any:
    nvrtc: Any = CUDA_BINDINGS.load("cuda.bindings.nvrtc")
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:  # its library is not found, or cannot be loaded
        raise NVRTC.unusable(error) from error
    return nvrtc
