"""The compiled kernel of a launch, from the cache of artifacts where it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gemmlab.compile import cache
from gemmlab.compile.architectures import DEFAULT
from gemmlab.compile.artifact import Artifact
from gemmlab.linalg.plan import Launch
from gemmlab.problems.problem import Parameter


def artifact_of(launch: Launch, arch: str = DEFAULT) -> Artifact:
    """Compile the launch's kernel in its configuration. Errors as `compile.cute.compile_kernel`."""
    from gemmlab.compile import cute

    def build() -> Artifact:
        kernel, parameters = _kernel(launch.kernel)
        entry = f"matmul_{launch.kernel}"
        return cute.compile_kernel(kernel, parameters, launch.config, launch.block, entry, arch)

    parts = ["linalg", launch.kernel, repr(launch.config), arch]
    return cache.fetch([*parts, cute.sources(), repr(cute.versions())], build)


def _kernel(name: str) -> tuple[Callable[..., None], Sequence[Parameter]]:
    """The kernel of that name and what it takes."""
    from gemmlab.kernels.gemm import fixup, fp16x3, split, split_deep

    match name:
        case "along" | "across":
            return getattr(split, name), split.PARAMETERS
        case "find_peaks" | "across_deep":
            return getattr(split_deep, name), split_deep.PARAMETERS[name]
        case "multiply":
            return fp16x3.kernel, fp16x3.PARAMETERS
        case _:
            return fixup.kernel, fixup.PARAMETERS
