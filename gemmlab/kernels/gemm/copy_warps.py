"""Four warps only copy; the other eight only multiply, 16×8 elements of C per thread.

Change from `async-copy`: there every warp computes addresses, copies, and waits at a barrier with
all others. Here four warps copy, and the others issue little besides FFMA and LDS: six LDS.128 feed
128 FFMA, where 8×8 elements per thread need eight. setmaxnreg moves registers from the copying
warps to the others, which need 176 for sums and two sets of fragments.

Each stage of the ring has two mbarriers: copying warps arrive at `full`, and a computing warp
arrives at `empty` after its last read. So warps drift apart: one computes while another waits.

The copying warps take issue slots from the others. So their addresses have constant distances,
their stores along k fall into different banks, and rows that are not aligned to 16 bytes are copied
word by word, each by one asynchronous instruction. The stages take 147 of the 256 KiB that they
share with L1. The sums are multiplied by 1 before they are stored: a 128-bit store takes four
consecutive registers, and without that product ptxas would keep the sums in such groups throughout.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Constexpr, Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.common import MAX_SMEM, check_registers, require
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.rung import Geometry, Rung

IN_FLIGHT = 12  # loads of 128 bits per copier


@dataclass(frozen=True)
class Config:
    """Block of C, depth and number of tiles, and elements of C per warp and per thread."""

    layout: str = "row"
    block_m: int = 128
    block_n: int = 256
    block_k: int = 32
    stages: int = 3
    warp_m: int = 64
    warp_n: int = 64
    thread_m: int = 16
    thread_n: int = 8
    depth: int = 8  # of the innermost loop
    group: int = 8  # rows of blocks in a band that is walked column by column
    copiers: int = 128  # threads that copy
    min_blocks: int = 1  # per multiprocessor; setmaxnreg needs the registers that this permits
    registers: tuple[int, int] = (104, 200)  # per thread that copies, and that computes

    @property
    def computing(self) -> int:  # threads
        return self.block_m // self.thread_m * (self.block_n // self.thread_n)

    @property
    def threads(self) -> int:
        return self.computing + self.copiers

    @property
    def rows(self) -> int:  # of a tile that is contiguous along x, that the copiers read at a time
        return min(self.block_k, self.copiers // 8)

    @property
    def unit(self) -> int:  # the axis along which B and C are contiguous
        return 0 if self.layout == "course" else 1

    @property
    def smem(self) -> int:
        return 4 * self.stages * self.block_k * (self.block_m + self.block_n + 2 * simt.PADDING)

    def __post_init__(self) -> None:
        simt.check_layout(self.layout)
        simt.check_warps(self)
        require(self.stages > 1, f"stages = {self.stages}, at least 2 are needed")
        rule = f"block_k = {self.block_k}, must be a multiple of 4: 128 bits"
        require(self.block_k % 4 == 0, rule)
        rule = f"block_k = {self.block_k} is not a multiple of depth = {self.depth}"
        require(self.block_k % self.depth == 0, rule)
        groups = self.computing % 128 == 0 and self.copiers % 128 == 0
        require(groups, f"{self.computing} + {self.copiers} threads, must be groups of four warps")
        for name, extent in (("block_m", self.block_m), ("block_n", self.block_n)):
            text = f"tile {name} × block_k is {extent} × {self.block_k}"
            rule = f"{text}, must be a multiple of four per thread that copies"
            require(extent * self.block_k % (4 * self.copiers) == 0, rule)
        granted = self.registers
        allowed = all(count % 8 == 0 and 24 <= count <= 240 for count in granted)
        require(allowed, f"registers = {granted}, must be multiples of 8 from 24 to 240")
        taken = granted[0] * self.copiers + granted[1] * self.computing
        check_registers(taken, self.threads, self.min_blocks)
        rule = f"{self.stages} stages take {self.smem} bytes, at most {MAX_SMEM} are allowed"
        require(self.smem <= MAX_SMEM, rule)


def place(thread: Int32, axis: int, config: Config) -> tuple[Int32, Int32]:
    """k and x of the four elements along `axis` of a tile that a copier copies first.

    Along k, two lanes read a sector, and a warp's stores of one word lie in different banks.
    """
    if axis == 0:
        return thread % 2 * 4, thread // 2
    lanes = config.copiers // config.rows
    return thread // lanes, thread % lanes * 4


def step(turn: int, width: int, axis: int, config: Config) -> tuple[int, int]:
    """Distance in k and x from a copier's first elements to those of a turn."""
    if axis == 0:
        sectors = config.block_k // 8
        return turn % sectors * 8, turn // sectors * (config.copiers // 2)
    span = 4 * config.copiers // config.rows
    return turn // (width // span) * config.rows, turn % (width // span) * span


@cute.jit
def fill(mA, mB, ring, corner, tiles: Int32, config: Constexpr):
    """Fill the stages with the first tiles of A (k,m) and B (k,n), 128 bits at a time."""
    sA, sB, full, empty = ring
    thread, _, _ = cute.arch.thread_idx()
    thread -= config.computing
    BK, S = config.block_k, config.stages
    whole = ((mA, sA, corner[0], 0), (mB, sB, corner[1], config.unit))
    turns = [
        (operand, turn)
        for operand in range(2)
        for turn in range(BK * whole[operand][1].shape[1] // (4 * config.copiers))
    ]
    for t in cutlass.range(tiles, unroll=1):
        for first in cutlass.range_constexpr(0, len(turns), IN_FLIGHT):
            staged = []
            for operand, turn in turns[first : first + IN_FLIGHT]:
                matrix, tile, corner_x, axis = whole[operand]
                k0, x0 = place(thread, axis, config)
                dk, dx = step(turn, tile.shape[1], axis, config)
                at = t * BK + k0, corner_x + x0
                origin = matrix.iterator + cute.crd2idx(at, matrix.layout)
                values = simt.quad(cute.make_tensor(origin, matrix.layout), (dk, dx)).load()
                staged.append((tile, t % S * BK + k0 + dk, x0 + dx, values, axis))
            if cutlass.const_expr(first == 0):
                # A wait for the phase before a new barrier's first returns at once.
                cute.arch.mbarrier_wait(empty + t % S, t // S % 2 ^ 1)
            for arguments in staged:
                simt.stage(*arguments)
        cute.arch.mbarrier_arrive(full + t % S)


@cute.jit
def fill_by_words(mA, mB, ring, corner, tiles, guarded: Constexpr, config: Constexpr):
    """Fill the stages with the tiles [first, last), a word at a time. guarded: zeros outside."""
    sA, sB, full, empty = ring
    BK, S = config.block_k, config.stages
    for t in cutlass.range(tiles[0], tiles[1], unroll=1):
        cute.arch.mbarrier_wait(empty + t % S, t // S % 2 ^ 1)
        for matrix, tile, x, axis in ((mA, sA, corner[0], 0), (mB, sB, corner[1], config.unit)):
            copy_words(matrix, tile, (t * BK, x, t % S * BK), axis, guarded, config)
        cute.arch.cp_async_mbarrier_arrive_noinc(full + t % S)


@cute.jit
def copy_words(matrix, tile, at, axis: Constexpr, guarded: Constexpr, config: Constexpr):
    """Start the copier's part of a tile's copies. at: k and x of the matrix, k of the tile."""
    k, x, row = at
    thread, _, _ = cute.arch.thread_idx()
    thread -= config.computing
    # Along k, eight lanes share a sector, and padding spreads their words over the banks.
    lanes = 8 if axis == 0 else 32
    across, along = thread // lanes, thread % lanes
    k0, x0 = (along, across) if axis == 0 else (across, along)
    lines, length = (tile.shape[1], config.block_k)[:: -1 if axis else 1]
    for line in cutlass.range_constexpr(0, lines, config.copiers // lanes):
        dk, dx = (0, line) if axis == 0 else (line, 0)
        origin = matrix.iterator + cute.crd2idx((k + k0 + dk, x + x0 + dx), matrix.layout)
        source = cute.make_tensor(origin, matrix.layout)
        for e in cutlass.range_constexpr(0, length, lanes):
            ek, ex = (e, 0) if axis == 0 else (0, e)
            inside = k + k0 + dk + ek < matrix.shape[0] and x + x0 + dx + ex < matrix.shape[1]
            word = simt.one(tile, (row + k0 + dk + ek, x0 + dx + ex))
            simt.copy_async(simt.one(source, (ek, ex)), word, inside if guarded else None)


@cute.jit
def multiply(tA, tB, rC, config: Constexpr):
    """rC (TM, TN) += the thread's elements of the product of tA (DEPTH, BM) and tB (DEPTH, BN)."""
    TM, TN, DEPTH = config.thread_m, config.thread_n, config.depth
    rows = [i * (config.warp_m // TM) for i in range(0, TM, 4)]
    columns = [j * (config.warp_n // TN) for j in range(0, TN, 4)]
    sums = [[rC[i, j] for j in range(TN)] for i in range(TM)]  # traced faster than a tensor
    rA, rB = [], []
    for kk in cutlass.range_constexpr(-1, DEPTH):
        if cutlass.const_expr(kk + 1 < DEPTH):
            rA.append([x for row in rows for x in simt.read_four(tA, (kk + 1, row))])
            rB.append([x for column in columns for x in simt.read_four(tB, (kk + 1, column))])
        if cutlass.const_expr(kk >= 0):
            for i in cutlass.range_constexpr(TM):
                for jj in cutlass.range_constexpr(TN):
                    j = TN - 1 - jj if i % 2 else jj
                    sums[i][j] += rA[kk][i] * rB[kk][j]
    for i in cutlass.range_constexpr(TM):
        for j in cutlass.range_constexpr(TN):
            rC[i, j] = sums[i][j]


@cute.jit
def at_address(tile, address: Int32):
    """A tile in shared memory that begins at an address, with the layout of `tile`."""
    pointer = cute.make_ptr(Float32, address, tile.memspace, assumed_align=16)
    return cute.make_tensor(pointer, tile.layout)


@cute.jit
def barrier(address: Int32):
    return cute.make_ptr(Int64, address, cute.AddressSpace.smem, assumed_align=8)


@cute.jit
def compute(ring, rC, tiles: Int32, own, config: Constexpr):
    """rC (TM, TN) = the thread's elements of C, which begin at `own`. By the computing warps."""
    sA, sB, full, empty = ring
    lane = cute.arch.lane_idx()
    rC.fill(0.0)
    S, BK, DEPTH = config.stages, config.block_k, config.depth
    # Addresses in the current stage; the loop advances them instead of computing them again.
    a = (sA.iterator + cute.crd2idx((0, own[0]), sA.layout)).toint()
    b = (sB.iterator + cute.crd2idx((0, own[1]), sB.layout)).toint()
    bar, last = full.toint(), full.toint() + 8 * (S - 1)
    freed = empty.toint() - full.toint()
    phase = Int32(0)
    for _ in cutlass.range(tiles, unroll=1):
        cute.arch.mbarrier_wait(barrier(bar), phase)
        for _ in cutlass.range(BK // DEPTH, unroll=1):
            multiply(at_address(sA, a), at_address(sB, b), rC, config)
            a += 4 * DEPTH * sA.stride[0]
            b += 4 * DEPTH * sB.stride[0]
        cute.arch.sync_warp()
        if lane == 0:
            cute.arch.mbarrier_arrive(barrier(bar + freed))
        bar += 8
        if bar > last:
            bar -= 8 * S
            phase ^= 1
            a -= 4 * S * BK * sA.stride[0]
            b -= 4 * S * BK * sB.stride[0]


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
    lda: Int64,
    ldb: Int64,
    ldc: Int64,
    config: Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    bx, by = simt.walk(config.group)
    mA, mB, mC = simt.matrices(a, b, c, (m, n, k), (lda, ldb, ldc), config.layout)
    mA = cute.make_tensor(mA.iterator, cute.select(mA.layout, mode=[1, 0]))  # (k, m)
    BM, BN = config.block_m, config.block_n
    sA, sB = simt.rings(config.stages * config.block_k, BM, BN)
    full = cute.arch.alloc_smem(Int64, config.stages, 8)
    empty = cute.arch.alloc_smem(Int64, config.stages, 8)
    if thread == 0:
        for stage in cutlass.range_constexpr(config.stages):
            cute.arch.mbarrier_init(full + stage, config.copiers)
            cute.arch.mbarrier_init(empty + stage, config.computing // 32)
    cute.arch.sync_threads()
    ring, corner = (sA, sB, full, empty), (by * BM, bx * BN)
    if warp >= config.computing // 32:
        cute.arch.setmaxregister_decrease(config.registers[0])
        inside = by * BM + BM <= m and bx * BN + BN <= n
        last = cute.ceil_div(k, config.block_k)
        whole = k // config.block_k if inside else Int32(0)  # tiles
        wide = Int32(0)  # how many of them are copied 128 bits at a time
        if simt.allows_quads(a, lda) and simt.allows_quads(b, ldb):
            wide = whole
        fill(mA, mB, ring, corner, wide, config)
        fill_by_words(mA, mB, ring, corner, (wide, whole), False, config)
        fill_by_words(mA, mB, ring, corner, (whole, last), True, config)
    else:
        cute.arch.setmaxregister_increase(config.registers[1])
        rC = cute.make_rmem_tensor((config.thread_m, config.thread_n), Float32)
        own = simt.warp_place(thread, config)
        compute(ring, rC, cute.ceil_div(k, config.block_k), own, config)
        one = Float32(cutlass.min(k, 1))  # not known to the compiler; for k = 0 the sums are 0
        for i in cutlass.range_constexpr(cute.size(rC)):
            rC[i] *= one
        wide = by * BM + BM <= m and bx * BN + BN <= n and simt.allows_quads(c, ldc)
        simt.store_warp_tiles(mC, *corner, rC, wide, config)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    return Geometry(simt.grid(config, shape), (config.threads, 1, 1), config.smem)


RUNGS = (
    Rung(
        name="copy-warps",
        problem="gemm",
        change="four warps copy, eight multiply 16×8 each",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={
            "block_m": (128, 256),
            "block_n": (128, 256),
            "block_k": (8, 16, 32),
            "stages": (2, 3, 4),
            "depth": (4, 8, 16),
            "group": (4, 8, 16),
        },
        requires=common.fits_grid(geometry),
        arch="sm_90a",
    ),
)
