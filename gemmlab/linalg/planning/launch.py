"""A planned launch: a kernel, its grid, and its arguments by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from gemmlab.kernels.gemm.sm90.config import CopyBox, PackConfig, TileConfig
from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.kernels.gemm.sm90.fma_config import FmaConfig
from gemmlab.kernels.gemm.sm90.gemv_config import GemvConfig
from gemmlab.kernels.gemm.sm90.streamed_config import StreamedConfig
from gemmlab.linalg.arch import DEFAULT, Architecture

if TYPE_CHECKING:
    from gemmlab.kernels.gemm import packed
    from gemmlab.kernels.rung import Dim3


class Address(Protocol):
    """A place in device memory: a number, or a span of a device's buffer."""

    def __add__(self, nbytes: int, /) -> Address: ...


Value = float | Address  # of a kernel's argument
# What compiled code depends on: the kernel's name, its configuration, block and architecture.
Config: TypeAlias = (
    "PackConfig | TileConfig | StreamedConfig | DirectConfig | FmaConfig | GemvConfig"
    " | packed.Config | None"
)
Code: TypeAlias = "tuple[str, Config, Dim3, Architecture]"


@dataclass(slots=True)
class PlannedLaunch:
    """One kernel launch, except for the compiled code.

    `args` are the kernel's arguments by name; `maps`, in order, come before them.
    """

    kernel: str  # a name of `arch.kernels`
    config: Config
    grid: Dim3
    block: Dim3
    args: Mapping[str, Value]
    maps: tuple[Map, ...] = ()
    cluster: int = 1
    dynamic_smem: int = 0
    arch: Architecture = DEFAULT

    @property
    def code(self) -> Code:
        """What the compiled code depends on."""
        return self.kernel, self.config, self.block, self.arch


@dataclass(slots=True)
class WorkspaceAddresses:
    """Addresses of two workspaces, the report, totals, and notes of doubtful sums.

    The report must be zero before its first product, and each product leaves its counts at zero.
    All else may have any contents.
    """

    left: Address
    right: Address
    report: Address
    totals: Address = 0
    notes: Address = 0


@dataclass(slots=True)
class Map:
    """A tensor map: a tensor, and the box that one copy moves.

    A kernel does without a map that is not `required` if the tensor is not aligned for TMA.
    """

    copy: CopyBox
    address: Address
    shape: tuple[int, int, int]  # elements: along a line, lines, parts of all items
    strides: tuple[int, int]  # bytes: from line to line, from part to part
    required: bool = True
