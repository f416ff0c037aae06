"""Configurations of the kernel that multiplies with `mma.sync`. They need no CuTe DSL."""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.kernels.common import require
from gemmlab.kernels.gemm.sm90.config import FP16X3, Scheme, TileConfig, note_bytes

MAX_SMEM = 163 * 1024  # bytes per block, on an A100


@dataclass(frozen=True)
class WarpTileConfig(TileConfig):
    """The tile of C of a block of eight warps, each of which has a part of it."""

    scheme: Scheme = FP16X3
    block_n: int = 128
    stages: int = 4
    cluster: int = 1
    promote_k: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.block_m == 128, f"block_m = {self.block_m}, must be 128")
        require(self.block_n in (64, 128), f"block_n = {self.block_n}, must be 64 or 128")
        require(self.cluster == 1, f"cluster = {self.cluster}: there are none")
        parts = self.scheme.parts
        rule = f"stages = {self.stages}, must be two or more times the {parts} parts of a tile"
        require(self.tiles > 1 and self.stages % parts == 0, rule)
        rule = f"{self.stages} stages take {self.smem_bytes} bytes, at most {MAX_SMEM} are allowed"
        require(self.smem_bytes <= MAX_SMEM, rule)

    @property
    def threads(self) -> int:
        return 256

    @property
    def tiles(self) -> int:
        """Tiles, of all parts, for which there are stages."""
        return self.stages // self.scheme.parts

    @property
    def staged_bytes(self) -> int:
        """Sums are stored by way of the stages."""
        return 0

    @property
    def warp_m(self) -> int:
        return self.block_m * self.block_n // (8 * self.warp_n)

    @property
    def warp_n(self) -> int:
        return 32

    @property
    def notes(self) -> int:
        return 8 * self.warp_m // 16

    @property
    def notes_bytes(self) -> int:
        return self.notes * note_bytes(self.warp_n)

    @property
    def tensor_maps(self) -> tuple[()]:
        return ()
