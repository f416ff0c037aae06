"""The GPU architectures that gemmlab compiles for."""

from __future__ import annotations

from gemmlab.errors import UnknownNameError

# Supported by both the CuTe DSL and NVRTC.
ARCHITECTURES = (
    "sm_80",
    "sm_86",
    "sm_87",
    "sm_89",
    "sm_90",
    "sm_90a",
    "sm_100",
    "sm_100a",
    "sm_103",
    "sm_103a",
    "sm_120",
    "sm_120a",
    "sm_121",
    "sm_121a",
)
# NVRTC of CUDA 13 supports GPUs from Turing on, the CuTe DSL from Ampere on.
NVRTC_ARCHITECTURES = ("sm_75", *ARCHITECTURES, "sm_110", "sm_110a")
DEFAULT = "sm_90a"


def check_architecture(arch: str, known: tuple[str, ...] = ARCHITECTURES) -> str:
    """Return `arch`. Raises UnknownNameError, which lists the known names."""
    if arch not in known:
        raise UnknownNameError(f"unknown architecture {arch!r}; choose one of {', '.join(known)}")
    return arch
