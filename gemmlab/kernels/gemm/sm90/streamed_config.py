"""Configurations of `streamed`. Nothing here needs the CuTe DSL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmlab.kernels.common import MAX_SMEM, require
from gemmlab.kernels.gemm.sm90.config import (
    FP16X3,
    LINE,
    MARGIN,
    PIECE,
    CopyBox,
    Scheme,
    note_bytes,
)
from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.kernels.gemm.sm90.sizes import MMA_M, WARPGROUP

GROUPS = 2  # warpgroups that multiply, 64 vectors of the streamed operand each
CHAIN = 32  # of k, which tensor cores add up
COPIERS = WARPGROUP  # threads that copy, if the streamed operand is not aligned
FOUR = 4  # elements of a piece of 16 bytes, which each of them copies at once
AGAIN = DirectConfig(block_m=128, block_n=128, stages=2)
REGISTERS = (40, 232)  # per thread that copies, and that multiplies: setmaxnreg moves them


@dataclass(frozen=True)
class StreamedConfig:
    """The tile that a block of `streamed` computes, and the order of both operands in memory."""

    streamed_major: str = "mn"  # the axis along which an operand is contiguous: "k" or "mn"
    packed_major: str = "k"
    block_n: int = 128  # vectors of the packed operand
    stages: int = 3
    again: DirectConfig = AGAIN  # computes C if vectors of the packed operand are too wide

    def __post_init__(self) -> None:
        for name in ("streamed_major", "packed_major"):
            require(getattr(self, name) in ("k", "mn"), f"{name} = {getattr(self, name)!r}")
        rule = f"{self.again.threads} threads to compute C again, {self.threads} otherwise"
        require(self.again.threads == self.threads, rule)
        require(self.block_n in (64, 128), f"block_n = {self.block_n}, must be 64 or 128")
        require(self.stages > 1, f"stages = {self.stages}, must be at least 2")
        rule = f"{self.stages} stages take {self.smem_bytes} bytes, at most {MAX_SMEM} are allowed"
        require(self.smem_bytes <= MAX_SMEM, rule)

    @property
    def scheme(self) -> Scheme:
        return FP16X3

    @property
    def block_m(self) -> int:
        """Vectors of the streamed operand."""
        return GROUPS * MMA_M

    @property
    def consumers(self) -> int:
        """Warps that multiply."""
        return GROUPS * WARPGROUP // 32

    @property
    def threads(self) -> int:
        return GROUPS * WARPGROUP + COPIERS

    @property
    def streamed_bytes(self) -> int:
        """Of a stage: a tile of float32 elements, `LINE` deep."""
        return 4 * LINE * self.block_m

    @property
    def lines(self) -> int:
        """Of a tile of the streamed operand: along them, its elements are neighbors in memory."""
        return self.block_m if self.streamed_major == "k" else LINE

    @property
    def pitch(self) -> int:
        """Elements from line to line of a tile that TMA cannot copy: a line, and a piece."""
        return LINE * self.block_m // self.lines + FOUR

    @property
    def streamed_room(self) -> int:
        """Bytes of a stage for the streamed operand."""
        return max(self.streamed_bytes, 4 * self.pitch * self.lines)

    @property
    def packed_bytes(self) -> int:
        """Of a stage: all parts of a tile, `LINE` deep."""
        return 2 * LINE * self.block_n * self.scheme.parts

    @property
    def staged_bytes(self) -> int:
        """Of shared memory, through which warps store C."""
        return 4 * (PIECE + MARGIN) * self.block_m

    @property
    def smem_bytes(self) -> int:
        own = self.stages * (self.streamed_room + self.packed_bytes) + self.staged_bytes
        return max(own, self.again.smem_bytes)

    @property
    def notes_bytes(self) -> int:
        """Of device memory per tile, for notes of doubtful sums."""
        return self.consumers * note_bytes(self.block_n)

    @property
    def streamed_copy(self) -> CopyBox:
        return CopyBox("float32", self.lines, False)

    @property
    def packed_copy(self) -> CopyBox:
        lines = self.block_n if self.packed_major == "k" else LINE
        return CopyBox(self.scheme.dtype, lines, False)

    @property
    def tensor_maps(self) -> tuple[Any, ...]:
        """The kernel's first parameters, of both operands, for the compiler: CuTe copy atoms."""
        from gemmlab.kernels.gemm.sm90.tiles import tensor_map

        return tensor_map(self.streamed_copy), tensor_map(self.packed_copy)
