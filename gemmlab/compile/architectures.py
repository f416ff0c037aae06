"""The GPU architectures that gemmlab compiles for."""

from __future__ import annotations

from gemmlab.errors import UnknownNameError

# What CuTe DSL and NVRTC both take.
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
# NVRTC of CUDA 13 begins at Turing, CuTe DSL at Ampere.
NVRTC_ARCHITECTURES = ("sm_75", *ARCHITECTURES, "sm_110", "sm_110a")
DEFAULT = "sm_90a"


def check_architecture(arch: str, known: tuple[str, ...] = ARCHITECTURES) -> str:
    """Return `arch`, or raise UnknownNameError with the names that are known."""
    if arch not in known:
        raise UnknownNameError(f"unknown architecture {arch!r}; choose one of {', '.join(known)}")
    return arch
