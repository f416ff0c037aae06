"""Configurations of `gemv`. Nothing here needs the CuTe DSL."""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.kernels.common import MAX_THREADS, require

WARP = 32
GROUP = 32  # sums of the loads in flight in a group


@dataclass(frozen=True)
class GemvConfig:
    """The order of the matrix, and how a block reads it."""

    k_major: bool = True  # whether lines of the matrix run along k, else along the result
    lanes: int = 32  # of a warp that read the same line, four elements each; the others read others
    threads: int = 256  # of a block
    loads: int = 8  # of four elements, which a thread has in flight

    def __post_init__(self) -> None:
        require(self.lanes in (8, 16, 32), f"lanes = {self.lanes}, must be 8, 16 or 32")
        require(self.loads > 0, f"loads = {self.loads}, must be positive")
        # At the end, a thread stores a result.
        least = WARP if self.k_major else self.width
        rule = f"threads = {self.threads}, must be whole warps, {least} to {MAX_THREADS}"
        require(self.threads % WARP == 0 and least <= self.threads <= MAX_THREADS, rule)

    @property
    def warps(self) -> int:
        return self.threads // WARP

    @property
    def lines(self) -> int:
        """Lines that a warp reads at once."""
        return WARP // self.lanes

    @property
    def width(self) -> int:
        """Elements of a line that a warp reads at once."""
        return 4 * self.lanes

    @property
    def groups(self) -> bool:
        """Whether a thread adds up sums in groups: few chains of additions divide k in a block."""
        return not self.k_major and self.lines * self.warps < 32

    @property
    def smem_bytes(self) -> int:
        """Of partial sums: a line of results for each warp that shares them."""
        return 4 * self.warps * (self.lines if self.k_major else self.width)
