"""How a float32 product becomes a few 16-bit products, and the tiles of the kernel that forms them.

Nothing here needs the CuTe DSL: plans are made, and compiled kernels launched, without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.kernels.common import MAX_SMEM, require

ARCH, CAPABILITY = "sm_90a", (9, 0)  # wgmma exists there alone
LINE = 64  # 16-bit elements in 128 bytes: the longest row that the 128-byte swizzle takes
MMA_M, MMA_K = 64, 16  # rows and depth of one warpgroup MMA (PTX ISA, wgmma.mma_async)
WARPGROUP = 128  # threads
# Float32 registers per thread for sums; the rest hold addresses and the like. With three consumer
# warpgroups a thread has 160 registers in all.
MAX_SUMS, MAX_SUMS_OF_THREE = 192, 128
PACK_WARPS = 8  # of a block of the split
STRIP = 32  # vectors that a cluster of the split holds: 128 bytes of each line
DEEP_STRIP = 128  # vectors per block of the split of a deep matrix
REPAIR_TILE = 64  # rows and columns of C that a block of the fix-up looks at
VECTOR_PITCH = 256  # exponents of one item of a batch are padded to a multiple
# A vector is wide where more elements are at risk than these, and one for every so many of depth. A
# count of elements goes up by `WIDE_COUNT` for each such vector: no such count is ever reached.
WIDE_LEAST, WIDE_EVERY = 4, 1024
WIDE_COUNT = 2**40


@dataclass(frozen=True)
class Scheme:
    """A float32 number as a sum of 16-bit parts, largest first, and the products that are kept.

    Each row of A and each column of B is scaled by a power of two so that its largest element has
    exponent `peak`. Elements whose exponent is then below `floor` lose bits: they are at risk.
    Where the parts hold one bit less than a float32 number, the last part `has_ties` to round.
    """

    name: str
    dtype: str
    products: tuple[tuple[int, int], ...]  # (part of A, part of B), in order of issue: small first
    peak: int
    floor: int
    has_ties: bool

    @property
    def parts(self) -> int:
        return 1 + max(max(pair) for pair in self.products)

    def last_product(self, part: int) -> int:
        """Index of the last product that a part of A or of B takes part in."""
        return max(i for i, pair in enumerate(self.products) if part in pair)


# Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022: hi·hi + hi·lo +
# lo·hi. With rows scaled to 2^14, lo needs no scale of its own: wgmma honours float16 subnormals.
FP16X3 = Scheme("fp16x3", "float16", ((0, 1), (1, 0), (0, 0)), peak=14, floor=-3, has_ties=True)
# Three bfloat16 parts hold all 24 bits and float32's range of exponents.
BF16X6 = Scheme(
    "bf16x6",
    "bfloat16",
    ((1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0)),
    peak=30,
    floor=-110,
    has_ties=False,
)
SCHEMES = {scheme.name: scheme for scheme in (FP16X3, BF16X6)}


@dataclass(frozen=True)
class CopyBox:
    """What TMA copies in one go: `lines` lines of `LINE` elements, written with 128-byte swizzle.

    The tensor in global memory has axes (contiguous, lines, parts). With `multicast`, the copy goes
    to every block of the cluster.
    """

    dtype: str
    lines: int
    multicast: bool


@dataclass(frozen=True)
class PackConfig:
    """The split of one operand.

    The `first` part is the number rounded to "nearest", or its magnitude "down" or "up". Where
    vectors are contiguous, that many `warps` of a block share one. Elsewhere a `cluster` of blocks
    of `threads` threads holds a strip of vectors. A thread holds `fours` times 128 bits.
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
        """Elements of a vector that a cluster can hold."""
        return self.cluster * self.fours * self.threads * 4 // STRIP


@dataclass(frozen=True)
class TileConfig:
    """Tile of C per block, and how it is computed.

    A stage of shared memory holds one part of A and of B, 64 deep. A `cluster` is that many blocks
    below each other in C, which share their tiles of B. Every `promote_k` of k starts a new chain
    in the tensor cores; float32 additions add finished chains to sums in registers. Every `total_k`
    of k the sums are added to totals in memory; 0 means never.
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
    raster: int = 8  # rows of clusters that are walked column by column, for L2

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
        require(
            self.stages > self.scheme.parts, f"{self.stages} stages, a step in k takes all parts"
        )
        # The boxes of TMA begin where the swizzle repeats: every 8 lines.
        require(self.b_copy.lines % 8 == 0, f"block_n = {self.block_n} in {self.cluster} pieces")
        rule = f"{self.stages} stages take {self.smem_bytes} bytes, at most {MAX_SMEM} are allowed"
        require(self.smem_bytes <= MAX_SMEM, rule)

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply, of 64 rows each. Several take turns at the tensor cores."""
        return self.block_m // MMA_M

    @property
    def chains(self) -> int:
        """Sums that the tensor cores form at a time."""
        return LINE // self.promote_k

    @property
    def threads(self) -> int:
        return WARPGROUP * (self.consumers + 1)

    @property
    def stage_bytes(self) -> int:
        return 2 * LINE * (self.block_m + self.block_n)

    @property
    def smem_bytes(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def totals_bytes(self) -> int:
        """Device memory for the totals of a block."""
        return 4 * self.block_m * self.block_n if self.total_k else 0

    @property
    def a_copy(self) -> CopyBox:
        return CopyBox(self.scheme.dtype, self.block_m if self.a_major == "k" else LINE, False)

    @property
    def b_copy(self) -> CopyBox:
        lines = self.block_n if self.b_major == "k" else LINE
        return CopyBox(self.scheme.dtype, lines // self.cluster, self.cluster > 1)

    @property
    def copies(self) -> tuple[CopyBox, ...]:
        """Those whose tensor maps are the kernel's first parameters."""
        return self.a_copy, self.b_copy
