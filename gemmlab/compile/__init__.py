"""Compile a kernel from any kind of source to an Artifact. Compilers are imported on first use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gemmlab.compile.architectures import DEFAULT, NVRTC_ARCHITECTURES, check_architecture
from gemmlab.compile.artifact import Artifact, ParameterType, Resources
from gemmlab.compile.source import read
from gemmlab.errors import InputError

__all__ = ["Artifact", "ParameterType", "Resources", "load"]


def load(
    source: str | Path,
    *,
    entry: str | None = None,
    arch: str | None = None,
    layout: str | None = None,
) -> Artifact:
    """Compile one kernel for one GPU architecture. No GPU is needed.

    Args:
        source: path to a .cu, .cuh or .ptx file, CUDA C++ or PTX text, or the name of a rung. In
            text, #include "file" is relative to the working directory.
        entry: name of the kernel, if the source has several; also an instance of a template.
        arch: "sm_90a" by default, except that PTX is assembled for its own target if the assembler
            supports it.
        layout: memory layout of a rung's matrices. Other sources have none.

    Returns:
        The kernel's PTX and machine code, which `emulate` and devices launch.

    Raises:
        UnknownNameError: no file, rung, entry or architecture has that name.
        InputError: an option does not apply to this kind of source.
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
    text = str(source)
    if isinstance(source, str) and ".version" in text and ".target" in text:
        return _load_ptx(text, entry, arch, "PTX text")
    if isinstance(source, str) and ("\n" in text or "__global__" in text):
        _check_layout(layout, "text")
        return _load_cuda(text, entry, arch, "kernel.cu")
    path = Path(text)
    if path.suffix not in (".cu", ".cuh", ".ptx"):
        if isinstance(source, Path) or "/" in text or path.is_file():
            raise InputError(f"{text} is not a .cu, .cuh or .ptx file")
        if entry is not None:
            raise InputError(f"entry is {entry!r}, but the rung {text!r} has one kernel")
        return _load_rung(text, layout, arch or DEFAULT)
    _check_layout(layout, text)
    content = read(path)
    if path.suffix == ".ptx":
        return _load_ptx(content, entry, arch, text)
    return _load_cuda(content, entry, arch, text)


def _check_layout(layout: str | None, source: str) -> None:
    if layout is not None:
        raise InputError(f"layout is {layout!r}, but only a rung has a layout; {source} has none")


def _load_cuda(text: str, entry: str | None, arch: str | None, name: str) -> Artifact:
    from gemmlab.compile import nvrtc

    return nvrtc.compile_cuda(text, entry, arch or DEFAULT, name)


def _load_rung(name: str, layout: str | None, arch: str) -> Artifact:
    """Look in the cache by name first: a hit does not import the CuTe DSL."""
    from gemmlab.compile import cache, cute

    check_architecture(arch)

    def build() -> Artifact:
        from gemmlab.kernels import ladder

        return cute.compile_rung(ladder.find(name, layout), arch)

    parts = ["rung", name, layout or "", arch, cute.sources(), repr(cute.versions())]
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
