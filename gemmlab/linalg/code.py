"""The compiled kernel of a launch: found once per process, compiled once per machine."""

from __future__ import annotations

from functools import cache
from typing import Any

from gemmlab.compile import cache as disk
from gemmlab.compile.architectures import DEFAULT
from gemmlab.compile.artifact import Artifact
from gemmlab.kernels.rung import Dim3
from gemmlab.linalg import compiled
from gemmlab.linalg.plan import Launch


@cache
def artifact(kernel: str, config: Any, block: Dim3, arch: str = DEFAULT) -> Artifact:
    """Compile a launch's kernel in its configuration. Errors as `compile.cute.compile_kernel`."""
    if kernel != "resplit":
        return compiled.artifact_of(Launch(kernel, config, (1, 1, 1), block, ()), arch)
    from gemmlab.compile import cute

    def build() -> Artifact:
        from gemmlab.kernels.gemm import resplit

        code, parameters = resplit.kernel, resplit.PARAMETERS
        return cute.compile_kernel(code, parameters, config, block, "matmul_resplit", arch)

    parts = ["linalg", kernel, repr(config), arch, cute.sources(), repr(cute.versions())]
    return disk.fetch(parts, build)
