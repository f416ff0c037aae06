"""The compiled kernel of a launch: found once per process, compiled once per machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gemmlab.compile import cache as disk
from gemmlab.compile.architectures import DEFAULT
from gemmlab.compile.artifact import Artifact
from gemmlab.kernels.gemm.plan import Launch
from gemmlab.kernels.rung import Dim3
from gemmlab.packages import CUTE_DSL
from gemmlab.problems.problem import Parameter


def artifact_of(launch: Launch, arch: str = DEFAULT) -> Artifact:
    """Compile the launch's kernel in its configuration. Errors as `compile.cute.compile_kernel`."""
    return artifact(launch.kernel, launch.config, launch.block, arch)


@cache
def artifact(name: str, config: Any, block: Dim3, arch: str = DEFAULT) -> Artifact:
    """As `artifact_of`, by what decides it: the kernel's name, configuration and block."""
    from gemmlab.compile import cute

    def build() -> Artifact:
        kernel, parameters = _kernel(name)
        return cute.compile_kernel(kernel, parameters, config, block, f"matmul_{name}", arch)

    parts = ["linalg", name, repr(config), repr(block), arch]
    return disk.fetch([*parts, cute.sources(), repr(cute.versions())], build)


def _kernel(name: str) -> tuple[Callable[..., None], Sequence[Parameter]]:
    """The kernel of that name and what it takes."""
    with CUTE_DSL.importing():
        from gemmlab.kernels.gemm import fixup, fp16x3, resplit, split, split_deep

    match name:
        case "along" | "across":
            return getattr(split, name), split.PARAMETERS
        case "find_peaks" | "across_deep":
            return getattr(split_deep, name), split_deep.PARAMETERS[name]
        case "multiply":
            return fp16x3.kernel, fp16x3.PARAMETERS
        case "resplit":
            return resplit.kernel, resplit.PARAMETERS
        case _:
            return fixup.kernel, fixup.PARAMETERS
