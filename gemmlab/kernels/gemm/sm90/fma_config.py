"""Configurations of `fma`. Nothing here needs the CuTe DSL."""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.kernels.common import MAX_SMEM, require

DEPTH = 16  # of k, a chunk
UNIT = 4  # of k, which a thread multiplies at once where less than a chunk is left
PADDING = 4  # padding words per row of a tile: 16-byte accesses, few bank conflicts


@dataclass(frozen=True)
class FmaConfig:
    """The tile of C that a block of `fma` computes, and the elements of it per thread."""

    block_m: int = 64
    block_n: int = 64
    thread_m: int = 8
    thread_n: int = 4
    stages: int = 4  # chunks of k
    min_blocks: int = 4  # per multiprocessor; limits registers

    def __post_init__(self) -> None:
        for axis in "mn":
            block, warp = getattr(self, f"block_{axis}"), getattr(self, f"warp_{axis}")
            require(block % warp == 0, f"block_{axis} = {block} is not a multiple of {warp}")
        for name in ("thread_m", "thread_n"):
            size = getattr(self, name)
            require(size in (4, 8), f"{name} = {size}, must be 4 or 8")
        for block in (self.block_m, self.block_n):
            rule = f"{self.threads} threads must be a multiple of a tile's {block} vectors"
            require(self.threads % block == 0, rule)
        require(self.stages > 1, f"stages = {self.stages}, must be at least 2")
        require(self.smem_bytes <= MAX_SMEM, f"{self.smem_bytes} bytes, at most {MAX_SMEM}")

    @property
    def warp_m(self) -> int:
        """Rows of a warp, whose lanes form 4 rows of 8."""
        return 4 * self.thread_m

    @property
    def warp_n(self) -> int:
        return 8 * self.thread_n

    @property
    def threads(self) -> int:
        return self.block_m * self.block_n // (self.thread_m * self.thread_n)

    @property
    def pitches(self) -> tuple[int, int]:
        """Words of a row of the tiles of A and B: one k."""
        return self.block_m + PADDING, self.block_n + PADDING

    @property
    def smem_bytes(self) -> int:
        """At the end, the tile of sums is in their place."""
        ring = self.stages * DEPTH * sum(self.pitches)
        return 4 * max(ring, self.block_m * (self.block_n + PADDING))
