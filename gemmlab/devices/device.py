"""What a kernel runs on. The same calls work on a GPU and on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.core.tensor_map import TensorMap
from gemmlab.errors import LaunchError

if TYPE_CHECKING:
    from gemmlab.devices.runtime import Runtime

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

    def __add__(self, nbytes: int) -> Span:
        """The rest of it, so many bytes on: what a pointer does."""
        return Span(self.buffer, self.offset + nbytes, self.nbytes - nbytes)


# The array of a TensorMap is a Span. Where the kernel takes `const CUtensorMap*`, a map or a list
# of them is put into device memory, and the kernel gets its address.
Argument = Span | TensorMap | list[TensorMap] | int | float


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

    def runtime(self, artifact: Artifact) -> AbstractContextManager[Runtime]:
        """For one flow around one kernel; see devices/flow.py. When it is left, all is done."""

    def versions(self) -> dict[str, str]:
        """Driver and library versions that a reader needs to repeat a result."""


def check_compiled_block(artifact: Artifact, block: Dim3) -> None:
    """A kernel compiled for one block size runs with no other."""
    if artifact.block is not None and artifact.block != block:
        raise LaunchError(f"block {block}; {artifact.entry} was compiled for {artifact.block} only")
