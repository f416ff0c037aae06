"""The copy engine moves rows of tiles in and out; threads only transpose in shared memory.

Change from `register-tiles`: there a block loads, stores and ends, and memory idles between. Here
blocks stay. One warp asks for the next tiles while the block transposes this one: a cp.async.bulk
copies a row of a tile, 256 bytes, to shared memory. An mbarrier counts the bytes of a tile; its
phase ends when all have arrived. The way out is the same: a bulk copy per row of B, from one of two
tiles in shared memory. No thread holds an address of A or B, and no register waits for memory.

An input buffer is refilled once all threads have read it; an output buffer is rewritten once the
copy engine has read it. Four words of padding per row spread columns over the banks: lanes in two
rows and four columns of 4×4 tiles read in one wavefront per eight lanes, and store in two.

Bulk copies need 16-byte boundaries and sizes: other matrices take the path of `register-tiles`.
Limiter on an H200: the copies of rows themselves. `register-tiles` reaches 94 % of a copy at 8192²,
this rung 67 %, and 45 % with a third tile on its way in and two blocks per multiprocessor.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import simt as accesses
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.kernels.transpose import register_tiles, simt

PADDING = 4  # words after each row


@dataclass(frozen=True)
class Config(register_tiles.Config):
    """Tiles of A on their way in, and the most blocks in the grid."""

    stages: int = 2
    blocks: int = 396

    def __post_init__(self) -> None:
        super().__post_init__()
        common.require(self.stages > 0, f"stages = {self.stages}, must be positive")
        common.require(self.blocks > 0, f"blocks = {self.blocks}, must be positive")
        rule = f"tiles take {self.smem} bytes, at most {common.MAX_SMEM} are allowed"
        common.require(self.smem <= common.MAX_SMEM, rule)

    @property
    def tile_in(self) -> int:  # words
        return self.block_m * (self.block_n + PADDING)

    @property
    def tile_out(self) -> int:
        return self.block_n * (self.block_m + PADDING)

    @property
    def smem(self) -> int:
        return 4 * (self.stages * self.tile_in + 2 * self.tile_out)


@cute.jit
def fetch(mA: cute.Tensor, corner: tuple, tile: cute.Tensor, full: cute.Pointer) -> None:
    """Start the copies of the block of A at `corner`, a row each. Run by one warp."""
    lane = cute.arch.lane_idx()
    rows = cutlass.min(tile.shape[0], mA.shape[0] - corner[0])
    size = 4 * cutlass.min(tile.shape[1], mA.shape[1] - corner[1])
    if lane == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(full, rows * size)
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    text += " [{$r0}], [{$r1}], {$r2}, [{$r3}];"
    for row in cutlass.range(lane, rows, 32, unroll=1):
        source = mA.iterator + cute.crd2idx((corner[0] + row, corner[1]), mA.layout)
        target = tile.iterator + cute.crd2idx((row, 0), tile.layout)
        given = [target.toint(), source.toint(), size, full.toint()]
        cute.arch.inline_ptx(text, read_only_args=given)


@cute.jit
def send(mB: cute.Tensor, corner: tuple, tile: cute.Tensor) -> None:
    """Start the copies of a tile to the block of B at `corner`, as a group. Run by one warp."""
    lane = cute.arch.lane_idx()
    rows = cutlass.min(tile.shape[0], mB.shape[0] - corner[0])
    size = 4 * cutlass.min(tile.shape[1], mB.shape[1] - corner[1])
    text = "cp.async.bulk.global.shared::cta.bulk_group [{$r0}], [{$r1}], {$r2};"
    for row in cutlass.range(lane, rows, 32, unroll=1):
        target = mB.iterator + cute.crd2idx((corner[0] + row, corner[1]), mB.layout)
        source = tile.iterator + cute.crd2idx((row, 0), tile.layout)
        given = [target.toint(), source.toint(), size]
        cute.arch.inline_ptx(text, read_only_args=given)
    cute.arch.cp_async_bulk_commit_group()


def place(tile: Int32, config: Config) -> tuple[Int32, Int32]:
    """Row and column of a thread's 4×4 tile: eight lanes have two rows and four columns."""
    columns, rest = config.block_n // 16, tile // 8
    return tile // 4 % 2 + rest // columns * 2, tile % 4 + rest % columns * 4


@cute.jit
def stream(
    mA: cute.Tensor,
    mB: cute.Tensor,
    smem: cute.Pointer,
    full: cute.Pointer,
    config: cutlass.Constexpr,
) -> None:
    """Transpose the block's share of the tiles of A."""
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    BM, BN, STAGES = config.block_m, config.block_n, config.stages
    shape_in = cute.make_layout((BM, BN, STAGES), stride=(BN + PADDING, 1, config.tile_in))
    shape_out = cute.make_layout((BN, BM, 2), stride=(BM + PADDING, 1, config.tile_out))
    sA = cute.make_tensor(smem, shape_in)
    sB = cute.make_tensor(smem + STAGES * config.tile_in, shape_out)
    columns = cute.ceil_div(mA.shape[1], BN)
    tiles = cute.ceil_div(mA.shape[0], BM) * columns
    if warp == 0:
        for i in cutlass.range(STAGES, unroll=1):
            tile = bx + i * blocks
            if tile < tiles:
                corner = tile // columns * BM, tile % columns * BN
                fetch(mA, corner, sA[None, None, i], full + i)
    held = cute.make_rmem_tensor((4, 4, config.turns), Float32)
    four = cute.make_rmem_tensor(4, Float32)
    turn = Int32(0)
    for tile in cutlass.range(bx, tiles, blocks, unroll=1):
        stage, out = turn % STAGES, turn % 2
        cute.arch.mbarrier_wait(full + stage, turn // STAGES % 2)
        for i in cutlass.range_constexpr(config.turns):
            r, c = place(tx + i * config.threads, config)
            for j in cutlass.range_constexpr(4):
                held[None, j, i].store(accesses.quad(sA, (4 * r + j, 4 * c, stage)).load())
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(1, read=True)  # the tile before the last
        cute.arch.sync_threads()
        if warp == 0:
            coming = tile + STAGES * blocks
            if coming < tiles:
                corner = coming // columns * BM, coming % columns * BN
                fetch(mA, corner, sA[None, None, stage], full + stage)
        for i in cutlass.range_constexpr(config.turns):
            r, c = place(tx + i * config.threads, config)
            for j in cutlass.range_constexpr(4):
                for e in cutlass.range_constexpr(4):
                    four[e] = held[j, e, i]
                accesses.quad(sB, (4 * c + j, 4 * r, out)).store(four.load())
        cute.arch.fence_view_async_shared()
        cute.arch.sync_threads()
        if warp == 0:
            send(mB, (tile % columns * BN, tile // columns * BM), sB[None, None, out])
        turn += 1
    if warp == 0:
        cute.arch.cp_async_bulk_wait_group(0)


@cute.kernel
def kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    m: Int32,
    n: Int32,
    lda: Int64,
    ldb: Int64,
    config: cutlass.Constexpr,
):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    mA, mB = simt.matrices(a, b, m, n, lda, ldb)
    smem = cute.arch.get_dyn_smem(Float32, alignment=16)
    full = cute.arch.alloc_smem(Int64, config.stages, 8)
    if tx == 0:
        for stage in cutlass.range_constexpr(config.stages):
            cute.arch.mbarrier_init(full + stage, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if m % 4 + n % 4 == 0 and accesses.allows_quads(a, lda) and accesses.allows_quads(b, ldb):
        stream(mA, mB, smem, full, config)
    else:
        BM, BN = config.block_m, config.block_n
        sB = cute.make_tensor(smem, cute.make_layout((BN, BM), stride=(BM, 1)))
        columns = cute.ceil_div(n, BN)
        for tile in cutlass.range(bx, cute.ceil_div(m, BM) * columns, blocks, unroll=1):
            corner = tile // columns * BM, tile % columns * BN
            register_tiles.move(mA, mB, corner, sB, False, config)
            cute.arch.sync_threads()


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    columns, rows, _ = register_tiles.geometry(config, shape).grid
    blocks = min(rows * columns, config.blocks)
    return Geometry((blocks, 1, 1), (config.threads, 1, 1), config.smem)


RUNGS = (
    Rung(
        name="bulk-copies",
        problem="transpose",
        change="rows copied by the copy engine, ahead",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={
            "block_m": (32, 64, 128),
            "block_n": (32, 64, 128),
            "stages": (2, 3, 4),
            "blocks": (132, 264, 396, 528),
        },
        arch="sm_90",
    ),
)
