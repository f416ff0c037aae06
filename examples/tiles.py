"""Counts what tiles of other sizes cost: the rung tile-2d-8x8-strided at 512×512×128."""

import numpy as np

import gemmlab
from gemmlab.hardware.occupancy import occupancy

M, N, K = 512, 512, 128
TILES = [  # BM, BN, BK, TM, TN
    (64, 64, 8, 4, 4),
    (128, 128, 8, 4, 4),
    (128, 128, 8, 8, 4),
    (128, 128, 8, 8, 8),
    (128, 128, 16, 8, 8),
    (256, 128, 8, 16, 8),
]
GLOBAL = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
EXCESS = "derived__memory_l1_wavefronts_shared_excessive"

rng = np.random.default_rng(0)
a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
c = np.empty((M, N), np.float32)
print(
    "   tile     thread  threads  shared  registers  occupancy  sectors  wavefronts   excess  SMs"
)
for bm, bn, bk, tm, tn in TILES:
    settings = dict(block_m=bm, block_n=bn, block_k=bk, thread_m=tm, thread_n=tn)
    kernel = gemmlab.load("tile-2d-8x8-strided", settings=settings)
    grid, block = (N // bn, M // bm), (bn // tn, bm // tm)
    sizes = [M, N, K, K, N, N]  # and the leading dimensions
    counters = gemmlab.emulate(kernel, grid=grid, block=block, args=[a, b, c, *sizes]).counters
    registers, smem = kernel.resources.registers, kernel.resources.static_smem_bytes
    share = occupancy(kernel.arch, block[0] * block[1], registers, smem).fraction
    print(
        f"{bm:3}×{bn:3}×{bk:<3} {tm:3}×{tn:<2} {block[0] * block[1]:8} {smem:7,} {registers:10}"
        f" {share:10.0%} {counters[GLOBAL]:8,} {counters[SHARED]:11,} {counters[EXCESS]:8,}"
        f" {min(grid[0] * grid[1], 132):4}"
    )
