"""Configurations of `direct`. Nothing here needs the CuTe DSL."""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.kernels.common import MAX_SMEM, check_registers, require
from gemmlab.kernels.gemm.sm90.sizes import MMA_M, WARPGROUP

CHUNK = 32  # of k, which a warpgroup multiplies in one turn
STEP = 8  # of k, which one wgmma multiplies
MOST_ITEMS = 63  # tiles that a block computes one after the other
# Products of parts, and k that a chain of sums covers -> the least k at which the accuracy contract
# holds (`gemmlab docs fp16x3`).
LEAST_K = {(3, 32): 192, (4, 16): 64, (4, 8): 32}
# Warpgroups that multiply, and blocks per multiprocessor -> see `DirectConfig.registers`.
REGISTERS = {(2, 1): (72, 216), (1, 1): (96, 160), (1, 2): (96, 160), (1, 3): (48, 112)}
SEVERAL_CHAINS = (80, 176)  # with one warpgroup that multiplies


@dataclass(frozen=True)
class DirectConfig:
    """The tile of C that a block of `direct` computes: 64 rows per warpgroup that multiplies."""

    a_major: str = "k"
    b_major: str = "mn"
    block_m: int = 64
    block_n: int = 64
    stages: int = 3  # chunks of k that are copied ahead
    min_blocks: int = 1  # per multiprocessor
    products: int = 3  # of parts
    chain: int = CHUNK  # of k, which tensor cores add up

    def __post_init__(self) -> None:
        for name in ("a_major", "b_major"):
            require(getattr(self, name) in ("k", "mn"), f"{name} = {getattr(self, name)!r}")
        require(self.block_m in (MMA_M, 2 * MMA_M), f"block_m = {self.block_m}")
        rule = f"block_n = {self.block_n}, must be 32, 64 or 128"
        require(self.block_n in (32, 64, 128), rule)
        rule = f"min_blocks = {self.min_blocks}, block_m = {self.block_m}"
        require((self.groups, self.min_blocks) in REGISTERS, rule)
        taken = self.registers[0] * WARPGROUP + self.registers[1] * self.consumers
        check_registers(taken, self.threads, self.min_blocks)
        rule = f"{self.products} products in chains of {self.chain}, must be one of"
        require((self.products, self.chain) in LEAST_K, f"{rule} {sorted(LEAST_K)}")
        require(self.stages > 1, f"stages = {self.stages}, must be at least 2")
        rule = f"{self.stages} stages take {self.smem_bytes} bytes, at most {MAX_SMEM} are allowed"
        require(self.smem_bytes <= MAX_SMEM, rule)

    @property
    def groups(self) -> int:
        """Warpgroups that multiply."""
        return self.block_m // MMA_M

    @property
    def consumers(self) -> int:
        """Threads of the warpgroups that multiply."""
        return WARPGROUP * self.groups

    @property
    def threads(self) -> int:
        """Threads of a block, including the warpgroup that splits B."""
        return self.consumers + WARPGROUP

    @property
    def warps(self) -> int:
        """Warps that multiply."""
        return self.consumers // 32

    @property
    def registers(self) -> tuple[int, int]:
        """Per thread that splits B, and per thread that multiplies: setmaxnreg moves them."""
        if self.groups == 1 and self.chains > 1:
            return SEVERAL_CHAINS
        return REGISTERS[self.groups, self.min_blocks]

    @property
    def transposes_k(self) -> bool:
        """Whether the positions of 16 values of k in the parts are transposed, as a 4 × 4 matrix.

        If A is K-major, a thread loads four values of k at once; wgmma expects them in four
        threads.
        """
        return self.a_major == "k"

    @property
    def jobs(self) -> int:
        """Pieces of a chunk of B, each for one warp."""
        return self.block_n // 16

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
        """Buffers for parts of B. The stages follow them, those of B first."""
        return 3

    @property
    def part_bytes(self) -> int:
        return self.buffers * 2 * 4 * CHUNK * self.block_n

    @property
    def smem_bytes(self) -> int:
        """At the end, sums take its place and need less."""
        return self.part_bytes + 4 * self.stages * CHUNK * (self.block_m + self.block_n)
