"""Shared by the rungs on tensor cores: operands in float16 parts, their tiles, the epilogue.

`sm90/pack.py` makes two float16 matrices, hi and lo, of each float32 matrix. It scales rows of A
and columns of B by powers of two. A line is contiguous: a row of A along k, and of B a column along
k (K-major) or a row along n (MN-major). Lines are padded with zeros to 128 bytes. For a
column-major C, the product Cᵀ = Bᵀ·Aᵀ is computed, so rows of C are always contiguous here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Float16, Float32, Int32, Int64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.common import MAX_SMEM, MAX_THREADS, ceil_div, require
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import FP16X3, LINE, CopyBox, Scheme
from gemmlab.kernels.gemm.sm90.epilogue import exponents_of, power
from gemmlab.kernels.gemm.sm90.sizes import WARPGROUP
from gemmlab.kernels.rung import Geometry
from gemmlab.kernels.signature import signatures

PARTS, PRODUCTS = FP16X3.parts, FP16X3.products  # lo·hi and hi·lo before hi·hi
EIGHT = 8  # float16 elements in 128 bits
POINTERS = {
    "a": ("float16", "input"),
    "b": ("float16", "input"),
    "c": ("float32", "output"),
    "unscale_a": ("int32", "input"),
    "unscale_b": ("int32", "input"),
}


@dataclass(frozen=True)
class Config:
    """The block of C and the depth of its tiles; `stages` of shared memory hold one part each."""

    layout: str = "row"
    block_m: int = 128
    block_n: int = 128
    block_k: int = LINE
    stages: int = 4
    group: int = 8  # rows of blocks in a band that is walked column by column

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        require(self.group > 0, f"group = {self.group}, must be positive")
        for name in ("block_m", "block_n"):
            size = getattr(self, name)
            require(size > 0 and size % LINE == 0, f"{name} = {size}, must be a multiple of {LINE}")
        rule = f"stages = {self.stages}, must be a multiple of the {PARTS} parts of a tile"
        require(self.stages > 0 and self.stages % PARTS == 0, rule)
        rule = f"{self.stages} stages take {self.smem} bytes, at most {MAX_SMEM} are allowed"
        require(self.smem <= MAX_SMEM, rule)

    @property
    def threads(self) -> int:
        return WARPGROUP

    @property
    def scheme(self) -> Scheme:
        return FP16X3

    @property
    def b_major(self) -> str:
        return "mn" if self.layout == "row" else "k"

    @property
    def smem(self) -> int:
        return 2 * self.stages * self.block_k * (self.block_m + self.block_n)

    @property
    def tiles(self) -> int:
        """Tiles, of all parts, for which there are stages."""
        return self.stages // PARTS

    @property
    def b_tile(self) -> tuple[int, int]:
        """Lines and elements per line of a tile of B."""
        wide = self.block_k, self.block_n
        return wide if self.b_major == "mn" else wide[::-1]

    @property
    def a_copy(self) -> CopyBox:
        return CopyBox("float16", self.block_m, False)

    @property
    def b_copy(self) -> CopyBox:
        return CopyBox("float16", self.b_tile[0], False)


@dataclass(frozen=True)
class WarpTiles(Config):
    """Each warp has a tile of `warp_m` × `warp_n` of the block of C."""

    warp_m: int = 64
    warp_n: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        for axis in "mn":
            warp, block = getattr(self, f"warp_{axis}"), getattr(self, f"block_{axis}")
            require(warp > 0 and warp % 16 == 0, f"warp_{axis} = {warp}, must be a multiple of 16")
            rule = f"block_{axis} = {block} is not a multiple of warp_{axis} = {warp}"
            require(block % warp == 0, rule)
        rule = f"a warp tile of {self.warp_m}×{self.warp_n}, at most 4096 elements are allowed"
        require(self.warp_m * self.warp_n <= 4096, rule)
        rule = f"{self.threads} threads per block, at most {MAX_THREADS} are allowed"
        require(self.threads <= MAX_THREADS, rule)
        check_copies(self)

    @property
    def threads(self) -> int:
        return 32 * (self.block_m // self.warp_m) * (self.block_n // self.warp_n)


def check_copies(config: Config) -> None:
    """Rules of kernels whose threads copy 128 bits at a time."""
    rule = f"block_k = {config.block_k}, must be a multiple of 16: one step of a tensor core"
    require(config.block_k > 0 and config.block_k % 16 == 0, rule)
    for name in ("block_m", "block_n"):
        text = f"tile {name} × block_k is {getattr(config, name)} × {config.block_k}"
        rule = f"{text}, must be a multiple of eight elements per thread of {config.threads}"
        require(getattr(config, name) * config.block_k % (EIGHT * config.threads) == 0, rule)


def check_ring(config: Config) -> None:
    """Rules of kernels that copy tiles into a ring of stages with the 128-byte swizzle."""
    require(config.block_k == LINE, f"block_k = {config.block_k}, must be {LINE}: 128 bytes")
    require(config.tiles > 1, f"stages = {config.stages}, two tiles take {2 * PARTS}")


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    """One block per tile of the C that is computed."""
    rows, columns = (shape[axis] for axis in ("mn" if config.layout == "row" else "nm"))
    grid = ceil_div(columns, config.block_n), ceil_div(rows, config.block_m), 1
    return Geometry(grid, (config.threads, 1, 1), config.smem)


@cute.jit
def lines_of(parts: cute.Pointer, lines: Int32, pitch: Int64) -> cute.Tensor:
    """An operand (lines, elements of a line, parts)."""
    shape = cute.make_layout((lines, pitch, PARTS), stride=(pitch, 1, lines * pitch))
    return cute.make_tensor(parts, shape)


@cute.jit
def operands(a: Any, b: Any, sizes: Any, pitches: Any, config: cutlass.Constexpr) -> Any:
    """A and B as `lines_of`."""
    m, n, k = sizes
    return (
        lines_of(a, m, pitches[0]),
        lines_of(b, k if config.b_major == "mn" else n, pitches[1]),
    )


@cute.jit
def several(pointer: cute.Pointer, offset: Any, size: cutlass.Constexpr) -> cute.Tensor:
    """Eight or four elements of 16 bits, for one access. The address must be aligned."""
    address = (pointer + offset).toint()
    aligned = cute.make_ptr(Float16, address, pointer.memspace, assumed_align=2 * size)
    return cute.make_tensor(aligned, cute.make_layout(size))


@cute.jit
def eight(pointer: cute.Pointer, offset: Any) -> cute.Tensor:
    """Eight elements, for one 128-bit access. The address must be aligned."""
    return several(pointer, offset, EIGHT)


@cute.jit
def tile(
    pointer: cute.Pointer, lines: cutlass.Constexpr, elements: cutlass.Constexpr
) -> cute.Tensor:
    """A tile (lines, elements of a line, parts) in shared memory."""
    shape = cute.make_layout((lines, elements, PARTS), stride=(elements, 1, lines * elements))
    return cute.make_tensor(pointer, shape)


def columns(part: cute.Tensor, config: Any) -> cute.Tensor:
    """A part of a tile of B as (columns, k), whichever its lines are."""
    order = [1, 0] if config.b_major == "mn" else [0, 1]
    return cute.make_tensor(part.iterator, cute.select(part.layout, mode=order))


@cute.jit
def fetch(
    matrix,
    ring: cute.Pointer,
    first: Int32,
    corner: Any,
    config: cutlass.Constexpr,
    size: cutlass.Constexpr = EIGHT,
):
    """Start the copies of all parts of a tile at `corner`, to the stages from `first` on.

    A stage holds 128-byte lines, in boxes of 64 elements side by side if the lines are longer.
    Chunk x of line y is at x ^ (y mod 8): eight lines of a column lie in different banks. A copy
    moves a chunk, or half of one if `size` is 4.
    """
    thread, _, _ = cute.arch.thread_idx()
    (lines, width), parts = corner[2], matrix.shape[2]
    copies, pieces = width // size, EIGHT // size
    for r in cutlass.range_constexpr(parts * lines * copies // config.threads):
        i, part = thread + r // parts * config.threads, r % parts
        y, x = i // copies, i % copies
        chunk, start = x, 0
        if cutlass.const_expr(pieces > 1):
            chunk, start = x // pieces, x % pieces * size
        box = (first + part) * (width // LINE) + chunk // 8
        within = (box * lines + y) * LINE + (chunk % 8 ^ y % 8) * EIGHT + start
        target = several(ring, within, size)
        line, element = corner[0] + y, corner[1] + x * size
        offset = cute.crd2idx((line, element, part), matrix.layout)
        source = several(matrix.iterator, offset, size)
        inside = line < matrix.shape[0] and element < matrix.shape[1]
        simt.copy_async(source, target, inside)


@cute.jit
def fetch_tiles(operands: Any, rings: Any, block: Any, t: Int32, config: cutlass.Constexpr):
    """Start the copies of tile t of A and of B for a block of C, as one group."""
    k0, first = t * config.block_k, t % config.tiles * PARTS
    lines, width = config.b_tile
    at = (k0, block[1] * width) if config.b_major == "mn" else (block[1] * lines, k0)
    fetch(
        operands[0],
        rings[0],
        first,
        (block[0] * config.block_m, k0, (config.block_m, LINE)),
        config,
    )
    fetch(operands[1], rings[1], first, (*at, (lines, width)), config)


@cute.jit
def store_rows(sums: cute.Tensor, at: Any, mC: cute.Tensor, scales: Any) -> None:
    """Store a warp's 16 rows of C from `at` on, scaled back.

    sums (2, 2, columns / 8): a lane's element (e, r, j) is in row lane / 4 + 8·r and in column
    2·(lane % 4) + e + 8·j. scales: exponents of the rows and of the columns of C.
    """
    m, n = mC.shape
    lane = cute.arch.lane_idx()
    row, col = at[0] + lane // 4, at[1] + lane % 4 * 2
    uA, uB = exponents_of(scales[0], Int32(0), m), exponents_of(scales[1], Int32(0), n)
    pairs_fit = mC.iterator.toint() % 8 == 0 and mC.stride[0] % 2 == 0
    for r in cutlass.range_constexpr(2):
        for j in cutlass.range_constexpr(sums.shape[2]):
            two, i, first = [], row + 8 * r, col + 8 * j
            for e in cutlass.range_constexpr(2):
                # Two steps: the power itself may lie outside the range of float32.
                exponent = uA[i] + uB[first + e]
                half = exponent >> 1
                two.append(sums[e, r, j] * power(half) * power(exponent - half))
            if pairs_fit and i < m and first + 1 < n:
                pointer = mC.iterator + cute.crd2idx((i, first), mC.layout)
                vectors.write(pointer, two)
            else:
                for e in cutlass.range_constexpr(2):
                    simt.store_inside(mC, i, first + e, two[e])


@cute.jit
def warp_tile(config: cutlass.Constexpr) -> tuple:
    """The place of the warp's tile among those of the block."""
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    columns = config.block_n // config.warp_n
    return warp // columns, warp % columns


@cute.jit
def no_sums(shape: Any) -> cute.Tensor:
    """A thread's sums, all 0."""
    sums = cute.make_rmem_tensor(shape, Float32)
    sums.fill(0.0)
    return sums


@cute.jit
def store_warp_tile(sums, corner, mC, scales, config: cutlass.Constexpr):
    """Store the warp's tile of the block of C at `corner`, 16 rows at a time."""
    row, col = warp_tile(config)
    rows, columns = config.warp_m // 16, config.warp_n // 8
    for i in cutlass.range_constexpr(rows):
        layout = cute.make_layout((2, 2, columns), stride=(1, 2, 4 * rows))
        at = corner[0] + row * config.warp_m + 16 * i, corner[1] + col * config.warp_n
        store_rows(cute.make_tensor(sums.iterator + 4 * i, layout), at, mC, scales)


def signature(kernel: Any) -> Any:
    """The arguments of a kernel's C ABI."""
    return signatures(POINTERS, kernel)[kernel.__name__]
