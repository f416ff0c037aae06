"""Compile a kernel from any kind of source to an Artifact. Compilers are imported on first use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmlab.compile.architectures import DEFAULT, NVRTC_ARCHITECTURES, check_architecture
from gemmlab.compile.artifact import Artifact, ParameterType, Resources
from gemmlab.compile.source import read
from gemmlab.errors import DTypeError, InputError

__all__ = ["Artifact", "ParameterType", "Resources", "load"]

SUFFIXES = (".cu", ".cuh", ".ptx", ".py")


def load(
    source: str | Path,
    *,
    entry: str | None = None,
    arch: str | None = None,
    layout: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Artifact:
    """Compile one kernel for one GPU architecture. No GPU is needed.

    Args:
        source: path to a .cu, .cuh, .ptx or .py file, text of one of these kinds, or the name of a
            rung. A .py file has a kernel of the CuTe DSL and is executed; its directive gives the
            block and the types of the arguments. In text, #include "file" is relative to the
            working directory.
        entry: name of the kernel, if the source has several; also an instance of a template.
        arch: "sm_90a" by default, except that PTX is assembled for its own target if the assembler
            supports it.
        layout: memory layout of a rung's matrices. Other sources have none.
        settings: other values in a rung's configuration, such as {"block_m": 64}.

    Returns:
        The kernel's PTX and machine code, which `emulate` and devices launch.

    Raises:
        UnknownNameError: no file, rung, entry or architecture has that name.
        InputError: an option does not apply to this kind of source.
        DTypeError: `entry` is not a string, or `settings` are not named.
        CompileError: the compiler rejected the source; `log` is its output.
        PtxSyntaxError: PTX text does not parse; `line` is the line.
        MissingDependencyError: a compiler is missing; the message has the command that installs it.

    Examples:
        >>> kernel = gemmlab.load(
        ...     'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
        ... )
        >>> kernel.entry, kernel.arch, kernel.parameters[0].dtype
        ('twice', 'sm_90a', 'float32')
    """
    if not isinstance(entry, str | None):
        raise DTypeError(f"entry is {entry!r}; it must be the name of a kernel")
    if settings and not (isinstance(settings, Mapping) and all(type(x) is str for x in settings)):
        raise DTypeError(f"settings are {settings!r}; they must be values by name")
    text = str(source)
    if isinstance(source, str) and ".version" in text and ".target" in text:
        return _load_ptx(text, entry, arch, "PTX text")
    if isinstance(source, str) and "\n" in text and "cute.kernel" in text:
        _check_plain(layout, settings, "text")
        return _load_cute(text, entry, arch)
    if isinstance(source, str) and ("\n" in text or "__global__" in text):
        _check_plain(layout, settings, "text")
        return _load_cuda(text, entry, arch, "kernel.cu")
    path = Path(text)
    if path.suffix not in SUFFIXES:
        # Unlike Path.is_file, this takes a text that is too long for a path.
        if isinstance(source, Path) or "/" in text or os.path.isfile(text):
            raise InputError(f"{text} is not a kernel file: {', '.join(SUFFIXES)}")
        if entry is not None:
            raise InputError(f"entry is {entry!r}, but the rung {text!r} has one kernel")
        return _load_rung(text, layout, arch or DEFAULT, settings or {})
    _check_plain(layout, settings, text)
    content = read(path)
    if path.suffix == ".py":
        return _load_cute(path, entry, arch)
    if path.suffix == ".ptx":
        return _load_ptx(content, entry, arch, text)
    return _load_cuda(content, entry, arch, text)


def _check_plain(layout: str | None, settings: Mapping[str, Any] | None, source: str) -> None:
    if layout is not None:
        raise InputError(f"layout is {layout!r}, but only a rung has a layout; {source} has none")
    if settings:
        raise InputError(
            f"only a rung has settings such as {next(iter(settings))}; {source} has none"
        )


def _load_cuda(text: str, entry: str | None, arch: str | None, name: str) -> Artifact:
    from gemmlab.compile import nvrtc

    return nvrtc.compile_cuda(text, entry, arch or DEFAULT, name)


def _load_cute(source: str | Path, entry: str | None, arch: str | None) -> Artifact:
    from gemmlab.compile import cute_file
    from gemmlab.compile.directive import Directive

    check_architecture(arch or DEFAULT)
    if isinstance(source, str):
        return cute_file.load_text(source, entry, arch or DEFAULT)
    return cute_file.load_file(source, Directive(entry=entry), arch or DEFAULT)


def _load_rung(name: str, layout: str | None, arch: str, settings: Mapping[str, Any]) -> Artifact:
    """Look in the cache by name first: a hit does not import the CuTe DSL."""
    from gemmlab.compile import cache, cute

    check_architecture(arch)

    def build() -> Artifact:
        from gemmlab.kernels import ladder
        from gemmlab.kernels.settings import configured

        return cute.compile_rung(configured(ladder.find(name, layout), settings), arch)

    given = repr(sorted(settings.items()))
    parts = ["rung", name, layout or "", arch, given, cute.sources(), repr(cute.versions())]
    return cache.fetch(parts, build, name)


def _load_ptx(text: str, entry: str | None, arch: str | None, origin: str) -> Artifact:
    from gemmlab.compile import cache, ptx, resources

    if arch is not None:
        check_architecture(arch, NVRTC_ARCHITECTURES)
    artifact = ptx.describe(text, entry, origin)
    target = arch or (artifact.arch if artifact.arch in NVRTC_ARCHITECTURES else DEFAULT)
    assembler = ptx.assembler_version()
    if assembler is None:
        return artifact

    def build() -> Artifact:
        cubin = ptx.assemble(artifact, target)
        used = resources.read(cubin, artifact.entry, target)
        if ptx.misplaces_dynamic_shared(artifact, used.static_smem_bytes):
            return artifact  # the driver assembles the PTX itself and respects the alignment
        assembled = replace(artifact, arch=target, cubin=cubin, resources=used)
        options = " ".join(ptx.assembler_options(target))
        return replace(assembled, versions={"nvjitlink": assembler}, options=options)

    return cache.fetch(["ptx", text, artifact.entry, target, origin, assembler], build, origin)
