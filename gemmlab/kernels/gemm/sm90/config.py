"""Schemes that represent a float32 product by 16-bit products, and configurations of the kernels.

Nothing here needs the CuTe DSL: planning and launching compiled kernels work without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmlab.kernels.common import MAX_SMEM, ceil_div, require
from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.kernels.gemm.sm90.sizes import MMA_M, WARPGROUP

LINE = 64  # 16-bit elements in 128 bytes, the longest line that the 128-byte swizzle permits
# Float32 registers per thread for sums; the rest hold addresses and the like. With three consumer
# warpgroups a thread has 160 registers in all.
MAX_SUMS, MAX_SUMS_OF_THREE = 192, 128
PACK_WARPS = 8  # per block of `pack`
FINISH_WARPS = 16  # … of `finish`
# What a warp stores by way of shared memory at a time (`staging`): rows and columns of C, and
# columns of the previous piece.
STAGED_ROWS, PIECE, MARGIN = 16, 32, 8
STRIP = 32  # vectors per cluster of `pack_mn_major`: 128 bytes of each line
DEEP_STRIP = 128  # vectors per block of `pack_deep`
REPAIR_TILE = 64  # rows, and columns, of C that a block of `repair` takes at a time
VECTOR_PITCH = 256  # the exponents of each batch item are padded to a multiple of this
# The shortfall of a vector is the exponent of its largest element less the mean exponent of all its
# elements, where 0 and subnormal numbers have the exponent -127. A vector has
# NO_SHORTFALL instead if its largest element is below 2^LEAST_PEAK, or if it is so deep that the
# sum of its exponents, which are added as bytes, does not fit in 32 bits.
NO_SHORTFALL, LEAST_PEAK, DEEPEST = 1000.0, -64, 2**23
# A vector is wide if more than WIDE_LEAST + depth // WIDE_EVERY of its elements are at risk, and
# its shortfall is above WIDE_SHORTFALL. Each wide vector adds WIDE_COUNT to the count of elements
# at risk, more than any matrix has elements.
WIDE_LEAST, WIDE_EVERY, WIDE_SHORTFALL = 8, 256, 20
WIDE_COUNT = 2**40
# Values in place of a vector's number of elements at risk, where none are counted.
NOT_FINITE_RISK, EMPTY_RISK = -1, -2
# A scale is near 1 if the magnitude of its exponent is at most NEAR; the product of two such powers
# of two is a normal number. A vector with any other scale raises the largest number of elements at
# risk of any vector to FAR, whose lower 32 bits are the largest possible such number.
NEAR, FAR = 63, 2**40 + 2**31 - 1
# Bits of the argument `launch` of kernels that multiply: it is the first launch of its product; the
# last one; it may compute the product in another way; its blocks may repeat tiles in this way, if
# many sums are doubtful.
FIRST, LAST, INSTEAD, REPEATS = 1, 2, 4, 8
ONLY = FIRST | LAST
INFINITY = float("inf")
NO_LIMIT = 2**64 - 1  # of the number of elements at risk
PAIRS = 16  # of columns, which a word has bits for in a note of doubtful sums (`notes`)


def note_bytes(columns: int) -> int:
    """Bytes of a note for that many columns of a warp's sums: a word, and two rows per lane."""
    return 4 + 32 * 2 * 4 * ceil_div(columns, 8 * PAIRS)


@dataclass(frozen=True)
class Scheme:
    """A float32 number as a sum of 16-bit parts, largest first, and the products that are formed.

    `pack` scales each row of A and each column of B so that its largest element has exponent
    `peak`. Elements whose exponent is then below `floor` are at risk: they lose bits. If the parts
    hold one bit less than a float32 number, rounding the last part `has_ties`.

    Up to a depth of `short_k`, or always if it is None, chains of sums in the tensor cores are
    short. Every `total_k` values of k the sums move from registers to memory; 0 means never. If
    many elements are at risk, the `fallback` computes a product for which no scheme was named.

    A sum of products of scaled elements is doubtful if its terms' magnitudes may add up to less
    than `doubt` times the number of elements at risk in its row of A and its column of B. An
    element at risk loses up to 2^-25, and its factor is below 2^15. So all other sums lose less
    than 2^-21, or 8 u, of the sum of their terms' magnitudes. This is for sums of 64 terms; longer
    ones may lose more, shorter ones less. 0: no sum is doubtful.

    The magnitudes add up to at least the magnitude of the sum, and to at least k·2^(2·peak - s),
    where s is the sum of the shortfalls of the row and the column, if s is at most 2·peak. Let both
    elements of a fraction 1 - f of the k terms be normal numbers, and let t be the mean number of
    powers of two by which these lie below both peaks. They add up to at least
    (1 - f)·k·2^(2·peak - t), because an arithmetic mean is at least the geometric mean. Each other
    term counts at least 63 (127 + LEAST_PEAK), so s ≥ 63·f + t·(1 - f). Since s ≤ 28, 63 - t is at
    least 35/(1 - f), so s ≥ t + 35·f/(1 - f), and 2^(-35·f/(1 - f)) ≤ 1 - f.
    """

    name: str
    dtype: str
    products: tuple[tuple[int, int], ...]  # (part of A, part of B), in order of issue: small first
    peak: int
    floor: int
    has_ties: bool
    short_k: int | None = None
    total_k: int = 0
    fallback: str | None = None
    doubt: float = 0.0

    @property
    def parts(self) -> int:
        return 1 + max(max(pair) for pair in self.products)

    def last_product(self, part: int) -> int:
        """The index of the last product that uses this part of A or of B."""
        return max(i for i, pair in enumerate(self.products) if part in pair)


# Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022: hi·hi + hi·lo +
# lo·hi. In rows scaled to 2^14, lo needs no scale: wgmma supports float16 subnormals.
FP16X3 = Scheme(
    "fp16x3",
    "float16",
    ((0, 1), (1, 0), (0, 0)),
    peak=14,
    floor=-3,
    has_ties=True,
    short_k=4096,
    fallback="bf16x6",
    doubt=2.0**11,
)
# Three bfloat16 parts hold all 24 bits of a float32 number over its range of exponents.
BF16X6 = Scheme(
    "bf16x6",
    "bfloat16",
    ((1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0)),
    peak=30,
    floor=-110,
    has_ties=False,
    total_k=1024,
)
SCHEMES = {scheme.name: scheme for scheme in (FP16X3, BF16X6)}


@dataclass(frozen=True)
class CopyBox:
    """What one TMA copy moves: `lines` lines of 128 bytes, with the 128-byte swizzle.

    The tensor in global memory has axes (along a line, lines, parts). A `multicast` copy goes to
    every block of the cluster.
    """

    dtype: str
    lines: int
    multicast: bool

    @property
    def line(self) -> int:
        """Elements in 128 bytes."""
        return LINE // 2 if self.dtype == "float32" else LINE


@dataclass(frozen=True)
class PackConfig:
    """How `pack` processes one operand.

    The `first` part rounds to "nearest", or its magnitude "down" or "up". K-major: `warps` warps of
    a block share a vector. MN-major: a `cluster` of blocks of `threads` threads holds a strip of
    vectors. A thread holds `fours` × 128 bits.
    """

    scheme: Scheme = FP16X3
    first: str = "nearest"
    warps: int = PACK_WARPS
    threads: int = 32 * PACK_WARPS
    cluster: int = 8
    fours: int = 16

    def __post_init__(self) -> None:
        ways = ("nearest", "down", "up") if self.scheme.dtype == "float16" else ("nearest",)
        require(self.first in ways, f"first = {self.first!r}, must be one of {', '.join(ways)}")
        rule = f"must be 1 or {PACK_WARPS}"
        require(self.warps in (1, PACK_WARPS), f"{self.warps} warps per vector, {rule}")
        rule = f"{self.threads} threads with {4 * self.fours} elements each"
        require(self.threads * self.fours <= 2**13, f"{rule} do not fit in registers")

    @property
    def deepest(self) -> int:
        """The longest vectors of which a cluster can hold a strip."""
        return self.cluster * self.fours * self.threads * 4 // STRIP


@dataclass(frozen=True)
class TileConfig:
    """The tile of C that a block computes, and how.

    A stage of shared memory holds one part of A and of B, 64 deep. A `cluster` is that many blocks,
    one below the other in C, which share their tiles of B. Every `promote_k` values of k, a new
    chain starts in the tensor cores; float32 additions add finished chains to sums in registers.
    Every `total_k` values of k, the sums are added to totals in memory; 0 means never. `again`: how
    the same launch can compute C if the values are too wide for the scheme; None: it cannot.
    """

    scheme: Scheme = FP16X3
    a_major: str = "k"  # the axis along which A is contiguous: "k" or "mn"
    b_major: str = "mn"
    block_m: int = 128
    block_n: int = 192
    stages: int = 5
    cluster: int = 2
    promote_k: int = 64
    total_k: int = 0
    raster: int = 8  # rows of clusters in a band that is walked column by column, for L2
    again: DirectConfig | None = None

    def __post_init__(self) -> None:
        for name in ("a_major", "b_major"):
            require(getattr(self, name) in ("k", "mn"), f"{name} = {getattr(self, name)!r}")
        groups = self.block_m // MMA_M
        require(self.block_m == groups * MMA_M and groups in (1, 2, 3), f"block_m = {self.block_m}")
        require(self.block_n % LINE == 0 and self.block_n <= 256, f"block_n = {self.block_n}")
        require(self.promote_k in (32, 64), f"promote_k = {self.promote_k}, must be 32 or 64")
        rule = f"total_k = {self.total_k}, must be a multiple of {LINE}"
        require(self.total_k >= 0 and self.total_k % LINE == 0, rule)
        sums = self.block_n // 2 * (1 + self.chains)
        rule = f"{self.chains} chains of {self.block_n} columns take {sums} registers per thread"
        most = MAX_SUMS if groups < 3 else MAX_SUMS_OF_THREE
        require(sums <= most, f"{rule}, at most {most} are allowed")
        if self.again is not None:
            rule = f"{self.again.threads} threads to compute C again, {self.threads} otherwise"
            require(self.again.threads == self.threads, rule)
        rule = f"{self.stages} stages, must be more than the {self.scheme.parts} parts of a tile"
        require(self.stages > self.scheme.parts, rule)
        # The swizzle repeats every 8 lines; TMA boxes must start there.
        require(self.b_copy.lines % 8 == 0, f"block_n = {self.block_n} in {self.cluster} pieces")
        rule = f"{self.stages} stages take {self.smem_bytes} bytes, at most {MAX_SMEM} are allowed"
        require(self.smem_bytes <= MAX_SMEM, rule)

    @property
    def consumers(self) -> int:
        """Consumer warpgroups: each multiplies 64 rows, in turn with the others."""
        return self.block_m // MMA_M

    @property
    def chains(self) -> int:
        """Sums that the tensor cores form per consumer warpgroup at a time."""
        return LINE // self.promote_k

    @property
    def threads(self) -> int:
        return WARPGROUP * (self.consumers + 1)

    @property
    def stage_bytes(self) -> int:
        return 2 * LINE * (self.block_m + self.block_n)

    @property
    def exponents(self) -> int:
        """The number of exponents of a tile: one per row, and one per column."""
        return self.block_m + self.block_n

    @property
    def exponent_buffers(self) -> int:
        """Tiles whose exponents fit in shared memory: one in the epilogue, the others in stages."""
        return 1 + ceil_div(self.stages, self.scheme.parts)

    @property
    def staged_bytes(self) -> int:
        """Of shared memory, through which warps store C."""
        return 4 * (PIECE + MARGIN) * self.block_m

    @property
    def smem_bytes(self) -> int:
        exponents = 4 * self.exponent_buffers * self.exponents
        own = self.stages * self.stage_bytes + exponents + self.staged_bytes
        return max(own, self.again.smem_bytes if self.again else 0)

    @property
    def notes(self) -> int:
        """Notes of doubtful sums per tile; see `notes.Notes`."""
        return WARPGROUP // 32 * self.consumers

    @property
    def notes_bytes(self) -> int:
        return self.notes * note_bytes(self.block_n)

    @property
    def totals_bytes(self) -> int:
        """Bytes of device memory for the totals of one block."""
        return 4 * self.block_m * self.block_n if self.total_k else 0

    @property
    def a_copy(self) -> CopyBox:
        return CopyBox(self.scheme.dtype, self.block_m if self.a_major == "k" else LINE, False)

    @property
    def b_copy(self) -> CopyBox:
        lines = self.block_n if self.b_major == "k" else LINE
        return CopyBox(self.scheme.dtype, lines // self.cluster, self.cluster > 1)

    @property
    def tensor_maps(self) -> tuple[Any, ...]:
        """The kernel's first parameters, of A and of B, for the compiler: CuTe copy atoms."""
        from gemmlab.kernels.gemm.sm90.tiles import tensor_map

        return tensor_map(self.a_copy), tensor_map(self.b_copy)
