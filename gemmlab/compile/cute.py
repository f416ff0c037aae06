"""Compile a CuTe DSL kernel to an Artifact. Requires neither a GPU nor a driver."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmlab import kernels, problems
from gemmlab.compile import cache, cute_positions, ptx, resources
from gemmlab.compile.architectures import DEFAULT, check_architecture
from gemmlab.compile.artifact import Artifact, ParameterType
from gemmlab.compile.closure import closure
from gemmlab.core import interrupts, scratch
from gemmlab.core.packages import CUTE_DSL
from gemmlab.errors import ArchitectureError, CompileError
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Dim3, Rung
from gemmlab.problems.problem import WORKSPACE, Parameter

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def compile_rung(rung: Rung, arch: str = DEFAULT) -> Artifact:
    """Compile a rung's kernel for one architecture, or load it from the cache.

    Raises ArchitectureError if the rung requires another architecture, and the errors of
    `compile_kernel` and of its pass over the machine code.
    """
    check_architecture(arch)
    if lacking := rung.lacks(arch):
        raise ArchitectureError(f"{label(rung)} {lacking}; it cannot be compiled for {arch}")
    problem = problems.find(rung.problem)
    # The block depends only on the configuration, so the geometry of any shape has it.
    geometry = rung.geometry(rung.config, dict.fromkeys(problem.axes, 1))
    artifact = cache.fetch(
        _key(rung, arch),
        lambda: compile_kernel(
            rung.kernel, parameters(rung), rung.config, geometry.block, entry_name(rung), arch
        ),
        label(rung),
    )
    if rung.rewrite is not None:
        compiled = artifact
        artifact = cache.fetch(
            _rewritten_key(rung, arch), lambda: _rewritten(rung, compiled), label(rung)
        )
    smem = geometry.dynamic_smem_bytes
    return replace(artifact, dynamic_smem_bytes=smem, origin=label(rung))


def is_cached(rung: Rung, arch: str) -> bool:
    """Whether `compile_rung` loads the artifact instead of compiling."""
    return cache.has(_key(rung, arch))


def _key(rung: Rung, arch: str) -> list[str]:
    """All text that determines the artifact of the rung's kernel."""
    name, config = entry_name(rung), repr(rung.config)
    return ["cute", name, config, arch, sources(rung.kernel), repr(versions())]


def _rewritten_key(rung: Rung, arch: str) -> list[str]:
    return [*_key(rung, arch), "rewritten", sources(rung.rewrite)]


def _rewritten(rung: Rung, compiled: Artifact) -> Artifact:
    """The kernel after the rung's pass over its machine code."""
    assert rung.rewrite is not None and compiled.cubin is not None
    return measured(replace(compiled, cubin=rung.rewrite(compiled.cubin, compiled.entry)))


def parameters(rung: Rung) -> tuple[Parameter, ...]:
    """Return the parameters of the rung's C ABI, in order."""
    if rung.parameters is not None:
        return rung.parameters
    own = problems.find(rung.problem).parameters
    return own if rung.workspace is None else (*own, WORKSPACE)


def compile_kernel(
    kernel: Callable[..., None],
    parameters: Sequence[Parameter],
    config: Any,
    block: Dim3,
    entry: str,
    arch: str,
    line_info: bool = True,
) -> Artifact:
    """Compile one `@cute.kernel` for one block size.

    `line_info` adds the PTX text and the lines and paths of the source to the cubin; the machine
    code is the same without.

    Raises CompileError with the DSL's message, and MissingDependencyError if the DSL is missing or
    broken.
    """
    return measured(compile_alone(kernel, parameters, config, block, entry, arch, line_info))


def measured(artifact: Artifact) -> Artifact:
    """Return a compiled artifact with its resources, which another process reads."""
    assert artifact.cubin is not None and artifact.arch is not None
    return replace(
        artifact, resources=resources.read(artifact.cubin, artifact.entry, artifact.arch)
    )


@interrupts.deferred()
def compile_alone(
    kernel: Callable[..., None],
    parameters: Sequence[Parameter],
    config: Any,
    block: Dim3,
    entry: str,
    arch: str,
    line_info: bool = True,
) -> Artifact:
    """Compile as `compile_kernel`, but start no process: the artifact lacks its resources."""
    with CUTE_DSL.importing():
        import cutlass
        from cutlass import cute

        from gemmlab.compile.cute_launch import launch

    arguments = []
    for parameter in parameters:
        element = getattr(cutlass, parameter.dtype.capitalize())
        if parameter.kind == "scalar":
            arguments.append(element(1))
        else:
            space = cute.AddressSpace.gmem
            arguments.append(cute.runtime.make_ptr(element, 0, space, element.width // 8))
    kernel.set_name_prefix(  # type: ignore[attr-defined]
        entry, remove_cutlass_symbol=True, keep_mangled_name=False
    )
    with scratch.folder() as folder, cute_positions.found_once(), warnings.catch_warnings():
        # A loop over a thread's registers must be unrolled, however long it is.
        warnings.filterwarnings("ignore", message="This static loop has")
        options = f"{'--generate-line-info ' * line_info}--gpu-arch {arch}"
        try:
            compiled = cute.compile(
                launch,
                kernel,
                tuple(arguments),
                config,
                block,
                options=f"{options} --keep-ptx --keep-cubin --dump-dir {folder}",
            )
        except Exception as error:  # the DSL's exceptions have no common base class
            log = _COLOUR.sub("", str(error)).strip()
            raise CompileError(f"CuTe DSL cannot compile {entry} for {arch}", log) from error
        text, cubin = compiled.__ptx__, compiled.__cubin__
    artifact = ptx.describe(text.rstrip("\0"), origin=entry)
    maps = len(artifact.parameters) - len(parameters)  # tensor maps have no names
    names = [""] * maps + [parameter.name for parameter in parameters]
    return replace(
        artifact,
        parameters=tuple(map(_named, artifact.parameters, names)),
        arch=arch,
        cubin=cubin,
        versions=versions(),
        options=options,
    )


def _named(parameter: ParameterType, name: str) -> ParameterType:
    return replace(parameter, name=name)


def entry_name(rung: Rung) -> str:
    """Return a C identifier of problem, rung and layout, e.g. "gemm_tile_2d_8x8_row"."""
    name = rung.rewritten or rung.name
    return "_".join([rung.problem, name, rung.layout]).replace("-", "_")


def versions() -> dict[str, str]:
    """Return the compiler's name and version without importing it.

    Raises MissingDependencyError.
    """
    if (version := CUTE_DSL.version) is None:
        raise CUTE_DSL.unusable()
    return {CUTE_DSL.name: version}


def sources(kernel: Path | Callable[..., Any] | None = None) -> str:
    """Return the source text of a kernel, given its file or a function in it; None: all kernels."""
    host = Path(__file__).with_name("cute_launch.py")
    if kernel is None:
        return closure(host, *sorted(Path(kernels.__file__).parent.rglob("*.py")))
    if not isinstance(kernel, Path):
        kernel = Path(inspect.getfile(inspect.unwrap(kernel)))
    return closure(host, kernel)
