"""The GPU architectures with kernels for tensor cores: one file each, chosen by capability."""

from __future__ import annotations

from gemmlab.linalg.arch.architecture import Architecture
from gemmlab.linalg.arch.sm80 import SM80
from gemmlab.linalg.arch.sm90 import SM90

# Compute capability -> architecture.
ARCHITECTURES = {arch.capability: arch for arch in (SM80, SM90)}
DEFAULT = SM90  # for plans without a GPU, and for the rungs

__all__ = ["ARCHITECTURES", "DEFAULT", "Architecture"]
