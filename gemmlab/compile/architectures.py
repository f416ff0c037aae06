"""The GPU architectures that gemmlab compiles for."""

from __future__ import annotations

from gemmlab.errors import UnknownNameError
from gemmlab.hardware import specs

# The CuTe DSL compiles for GPUs from Ampere on, NVRTC of CUDA 13 from Turing on.
ARCHITECTURES = tuple(
    target for row in specs.ARCHITECTURES.values() if row.has_cute for target in sorted(row.targets)
)
NVRTC_ARCHITECTURES = tuple(
    target for row in specs.ARCHITECTURES.values() for target in sorted(row.targets)
)
DEFAULT = "sm_90a"


def check_architecture(arch: str, known: tuple[str, ...] = ARCHITECTURES) -> str:
    """Return `arch`. Raises UnknownNameError, which lists the known names."""
    if arch not in known:
        raise UnknownNameError(f"unknown architecture {arch!r}; choose one of {', '.join(known)}")
    return arch
