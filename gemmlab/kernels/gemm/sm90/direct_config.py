"""Configurations of `direct`. Nothing here needs the CuTe DSL."""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.kernels.common import MAX_SMEM, require
from gemmlab.kernels.gemm.sm90.config import MMA_M, WARPGROUP

CHUNK = 32  # of k, which a warpgroup multiplies in one turn
STEP = 8  # of k, which one wgmma multiplies
MOST_ITEMS = 63  # tiles that a block computes one after the other
# Products of parts, and k that a chain of sums covers -> the least k at which the accuracy contract
# holds (`gemmlab docs fp16x3`).
LEAST_K = {(3, 32): 192, (4, 16): 64, (4, 8): 32}


@dataclass(frozen=True)
class DirectConfig:
    """The tile of C that a block of `direct` computes: 64 rows per warpgroup."""

    a_major: str = "k"
    b_major: str = "mn"
    block_m: int = 64
    block_n: int = 64
    stages: int = 3  # chunks of k that are copied ahead
    min_blocks: int = 1  # per multiprocessor; limits registers
    products: int = 3  # of parts
    chain: int = CHUNK  # of k, which tensor cores add up

    def __post_init__(self) -> None:
        for name in ("a_major", "b_major"):
            require(getattr(self, name) in ("k", "mn"), f"{name} = {getattr(self, name)!r}")
        require(self.block_m in (MMA_M, 2 * MMA_M), f"block_m = {self.block_m}")
        rule = f"block_n = {self.block_n}, must be 32, 64 or 128"
        require(self.block_n in (32, 64, 128), rule)
        rule = f"{self.jobs} pieces of B for {self.warps} warps"
        require(self.jobs in (self.warps, self.warps // 2), rule)
        rule = f"{self.products} products in chains of {self.chain}, must be one of"
        require((self.products, self.chain) in LEAST_K, f"{rule} {sorted(LEAST_K)}")
        require(self.stages > 1, f"stages = {self.stages}, must be at least 2")
        rule = f"{self.stages} stages take {self.smem_bytes} bytes, at most {MAX_SMEM} are allowed"
        require(self.smem_bytes <= MAX_SMEM, rule)

    @property
    def groups(self) -> int:
        """Warpgroups."""
        return self.block_m // MMA_M

    @property
    def threads(self) -> int:
        return WARPGROUP * self.groups

    @property
    def warps(self) -> int:
        return self.threads // 32

    @property
    def transposes_k(self) -> bool:
        """Whether the positions of 16 values of k in the parts are transposed, as a 4 × 4 matrix.

        If A is K-major, a thread loads four values of k at once; wgmma expects them in four
        threads.
        """
        return self.a_major == "k"

    @property
    def jobs(self) -> int:
        """Pieces of a chunk of B: one for each warp, or for every second one."""
        return self.block_n // 16

    @property
    def loads_early(self) -> bool:
        """Whether staged elements are loaded before wgmma start. Larger tiles gain nothing."""
        return self.groups == 1 and self.jobs == self.warps

    @property
    def shares_multiprocessor(self) -> bool:
        """Whether several blocks run on a multiprocessor at the same time."""
        return self.min_blocks > 1

    @property
    def least_k(self) -> int:
        return LEAST_K[self.products, self.chain]

    @property
    def chains(self) -> int:
        """Chains per chunk."""
        return CHUNK // self.chain

    @property
    def buffers(self) -> int:
        """Buffers for parts of B, which are split two chunks ahead. The stages follow them."""
        return 2 + self.groups

    @property
    def part_bytes(self) -> int:
        return self.buffers * 2 * 4 * CHUNK * self.block_n

    @property
    def stage_words(self) -> int:
        return CHUNK * (self.block_m + self.block_n)

    @property
    def smem_bytes(self) -> int:
        """At the end, sums take its place and need less."""
        return self.part_bytes + 4 * self.stages * self.stage_words
