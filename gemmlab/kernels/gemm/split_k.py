"""Several blocks share one block of C: each sums a slice of k, and the last to finish adds them up.

Change from `rasterized`: a C of 512×512 is 16 blocks of 128×128, which leaves 116 of an H200's 132
multiprocessors idle. Grid z cuts k into as many slices as there are multiprocessors for, at least
64 deep. A block stores its sums to the workspace and draws a ticket. The block with the last ticket
knows that all slices are complete and adds them in the order of k. So results have the same bits in
every run, whichever block is last. (Atomic additions to C would need no workspace, but their order
depends on the scheduler.)

Global traffic: M·N·K·(1/BM + 1/BN) elements as before, and 2·S·M·N to write and read S slices. It
pays if blocks are few and k is long: on an H200 512³ took 23 µs instead of 62, and 128×128×65536
took 225 µs instead of 6,777. With enough blocks S is 1 and nothing changes.
Limiter: the last block of each tile, which reads S·BM·BN elements alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import cutlass
from cutlass import Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.gemm import double_buffer, simt
from gemmlab.kernels.rung import Geometry, Rung


@dataclass(frozen=True)
class Config(double_buffer.Config):
    """The tiles of `rasterized`, and how k is sliced."""

    group: int = 8
    min_blocks: int = 1  # at 128 registers the additional code for slices would spill
    blocks: int = 132  # most blocks if k is sliced: one per multiprocessor
    slices: int = 32  # most slices
    slice_k: int = 64  # least depth of a slice

    def __post_init__(self) -> None:
        super().__post_init__()
        least = min(self.blocks, self.slices, self.slice_k)
        rule = f"the least of blocks, slices and slice_k is {least}, must be positive"
        common.require(least > 0, rule)


@cute.jit
def add_slices(rC: cute.Tensor, workspace: cute.Pointer, config: cutlass.Constexpr):
    """Store this slice; if it is the last of its block of C, set rC to the sum of all slices.

    Returns whether it is the last.
    """
    thread, _, _ = cute.arch.thread_idx()
    bx, by, bz = cute.arch.block_idx()
    columns, rows, slices = cute.arch.grid_dim()
    tile, size = Int64(by) * columns + bx, config.block_m * config.block_n
    fours = config.thread_m * config.thread_n // 4
    # (slice, four, thread, element): the fours of neighbouring threads are adjacent.
    strides = size, 4 * config.threads, 4, 1
    mine = cute.make_layout((slices, fours, config.threads, 4), stride=strides)
    partial = cute.make_tensor(workspace + tile * slices * size, mine)
    tickets = cute.make_ptr(
        Int32, (workspace + Int64(columns) * rows * slices * size).toint(), workspace.memspace
    )
    flat = cute.make_tensor(rC.iterator, cute.make_layout((fours, 4), stride=(4, 1)))
    for q in cutlass.range_constexpr(fours):
        simt.quad(partial, (bz, q, thread, 0)).store(flat[q, None].load())

    sTicket = cute.make_tensor(cute.arch.alloc_smem(Int32, 1), cute.make_layout(1))
    cute.arch.fence_acq_rel_gpu()  # the thread's stores become visible before the ticket is drawn
    cute.arch.sync_threads()
    if thread == 0:
        sTicket[0] = cute.arch.atomic_add(tickets + tile, Int32(1), sem="relaxed", scope="gpu")
    cute.arch.sync_threads()
    is_last = sTicket[0] == slices - 1
    if is_last:
        cute.arch.fence_acq_rel_gpu()
        rC.fill(0.0)
        for z in cutlass.range(slices):
            for q in cutlass.range_constexpr(fours):
                four = simt.quad(partial, (z, q, thread, 0)).load()
                flat[q, None].store(flat[q, None].load() + four)
        if thread == 0:
            cute.make_tensor(tickets + tile, cute.make_layout(1))[0] = 0  # for the next launch
    return is_last


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
    workspace: cute.Pointer,
    config: cutlass.Constexpr,
):
    _, _, bz = cute.arch.block_idx()
    _, _, slices = cute.arch.grid_dim()
    bx, by = simt.walk(config.group)
    mA, mB, mC = simt.matrices(a, b, c, (m, n, k), (lda, ldb, ldc), config.layout)
    row, col = by * config.block_m, bx * config.block_n

    # Uniform across the block, so no warp diverges.
    inside = row + config.block_m <= m and col + config.block_n <= n
    wide_loads = inside and simt.allows_quads(a, lda) and simt.allows_quads(b, ldb)

    step = 2 * config.block_k
    depth = cute.ceil_div(k, slices * step) * step
    ks = bz * depth, cutlass.min(bz * depth + depth, k)
    rC = double_buffer.product(mA, mB, (row, col), ks, wide_loads, config)
    is_last = cutlass.Boolean(True)
    if slices > 1:
        is_last = add_slices(rC, workspace, config)
    if is_last:
        wide_stores = inside and simt.allows_quads(c, ldc)
        simt.store_warp_tiles(mC, row, col, rC, wide_stores, config)


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    x, y, _ = simt.grid(config, shape)
    wanted = min(config.blocks // (x * y), shape["k"] // config.slice_k, config.slices)
    return Geometry((x, y, max(1, wanted)), (config.threads, 1, 1))


def workspace(config: Config, shape: Mapping[str, int]) -> int:
    """Bytes: the slices and one ticket counter for each block of C."""
    x, y, slices = geometry(config, shape).grid
    return 4 * x * y * (slices * config.block_m * config.block_n + 1) if slices > 1 else 0


RUNGS = (
    Rung(
        name="split-k",
        problem="gemm",
        change="k split into slices, added in order",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"slices": (4, 8, 16, 32), "slice_k": (32, 64, 128), "blocks": (132, 264)},
        requires=common.fits_grid(geometry),
        workspace=workspace,
    ),
)
