"""The compiled kernel of a launch, from the cache of artifacts where it is there."""

from __future__ import annotations

from gemmlab.compile import cache
from gemmlab.compile.architectures import DEFAULT
from gemmlab.compile.artifact import Artifact
from gemmlab.linalg.plan import Launch


def artifact_of(launch: Launch, arch: str = DEFAULT) -> Artifact:
    """Compile the launch's kernel in its configuration. Errors as `compile.cute.compile_kernel`."""
    from gemmlab.compile import cute

    def build() -> Artifact:
        from gemmlab.kernels.gemm import fixup, fp16x3, split

        kernel, parameters = {
            "along": (split.along, split.PARAMETERS["along"]),
            "find_peaks": (split.find_peaks, split.PARAMETERS["find_peaks"]),
            "across": (split.across, split.PARAMETERS["across"]),
            "multiply": (fp16x3.kernel, fp16x3.PARAMETERS),
            "fixup": (fixup.kernel, fixup.PARAMETERS),
        }[launch.kernel]
        entry = f"matmul_{launch.kernel}"
        return cute.compile_kernel(kernel, parameters, launch.config, launch.block, entry, arch)

    parts = ["linalg", launch.kernel, repr(launch.config), arch]
    return cache.fetch([*parts, cute.sources(), repr(cute.versions())], build)
