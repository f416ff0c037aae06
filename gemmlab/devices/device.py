"""What a kernel runs on. The same calls work on a GPU and on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.tensor_map import TensorMap

Dim3 = tuple[int, int, int]


class Buffer(Protocol):
    """Device memory of `nbytes` bytes."""

    nbytes: int

    def write(self, data: np.ndarray, offset: int = 0) -> None: ...

    def read(self) -> np.ndarray:
        """All bytes, as uint8."""


@dataclass(frozen=True)
class Span:
    """The part of a buffer that a kernel may touch: a pointer argument."""

    buffer: Buffer
    offset: int
    nbytes: int


Argument = Span | TensorMap | int | float  # the array of a TensorMap is a Span


@dataclass(frozen=True)
class Launched:
    """What one launch told: counters on the emulator, seconds on a GPU."""

    counters: dict[str, int] | None = None
    time_s: float | None = None


class Device(Protocol):
    """Allocates memory and launches artifacts."""

    name: str  # "emulated", "cuda:0 NVIDIA H200"
    arch: str  # what to compile for, "sm_90a"

    def allocate(self, nbytes: int) -> Buffer: ...

    def launch(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> Launched: ...

    def versions(self) -> dict[str, str]:
        """Driver and library versions that a reader needs to repeat a result."""
