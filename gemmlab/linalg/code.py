"""The compiled kernel of a launch: found once per process, compiled once per machine."""

from __future__ import annotations

from functools import cache
from typing import Any

from gemmlab.compile import cache as disk
from gemmlab.compile.architectures import DEFAULT
from gemmlab.compile.artifact import Artifact
from gemmlab.linalg.plan import Launch


def artifact_of(launch: Launch, arch: str = DEFAULT) -> Artifact:
    """Compile the launch's kernel in its configuration. Errors as `compile.cute.compile_kernel`."""
    return _artifact(launch.kernel, launch.config, launch.block, arch)


@cache
def _artifact(kernel: str, config: Any, block: tuple[int, int, int], arch: str) -> Artifact:
    from gemmlab.compile import cute

    def build() -> Artifact:
        from gemmlab.kernels.gemm import fixup, fp16x3, resplit, split, split_deep

        code, parameters = {
            "along": (split.along, split.PARAMETERS),
            "across": (split.across, split.PARAMETERS),
            "find_peaks": (split_deep.find_peaks, split_deep.PARAMETERS["find_peaks"]),
            "across_deep": (split_deep.across_deep, split_deep.PARAMETERS["across_deep"]),
            "multiply": (fp16x3.kernel, fp16x3.PARAMETERS),
            "resplit": (resplit.kernel, resplit.PARAMETERS),
            "fixup": (fixup.kernel, fixup.PARAMETERS),
        }[kernel]
        entry = f"matmul_{kernel}"
        return cute.compile_kernel(code, parameters, config, block, entry, arch)

    parts = ["linalg", kernel, repr(config), arch, cute.sources(), repr(cute.versions())]
    return disk.fetch(parts, build)
