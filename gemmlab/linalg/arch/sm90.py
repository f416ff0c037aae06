"""Hopper GPUs of compute capability 9.0, the only ones with wgmma; measured on an H200."""

from __future__ import annotations

from gemmlab.kernels.gemm.sm90.config import PackConfig, TileConfig
from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.kernels.gemm.sm90.fma_config import FmaConfig
from gemmlab.linalg.arch.architecture import Architecture, DirectTile, FmaTile

SM90 = Architecture(
    target="sm_90a",
    capability=(9, 0),
    multiprocessors=132,
    kernels={
        "pack_k_major": ("sm90.pack_k_major", "pack_k_major"),
        "pack_mn_major": ("sm90.pack", "pack_mn_major"),
        "find_peaks": ("sm90.pack_deep", "find_peaks"),
        "pack_mn_major_deep": ("sm90.pack_deep", "pack_mn_major_deep"),
        "multiply_packed": ("sm90.mainloop", "kernel"),
        "multiply": ("sm90.direct", "kernel"),
        "multiply_fma": ("sm90.fma", "kernel"),
        "add_slices": ("sm90.add_slices", "kernel"),
        "repack": ("sm90.repack", "kernel"),
        "repair": ("sm90.repair", "kernel"),
        "finish": ("sm90.finish", "kernel"),
    },
    tile=TileConfig,
    blocks=(2, 1),
    least_tiles=1,
    stages={192: 5, 128: 6, 64: 8},
    step_clocks={192: 2600, 128: 1850, 64: 1100},
    round_clocks=3000,
    short=512,
    long=1024,
    # First more blocks, then more elements per thread.
    clusters=(
        *(PackConfig(cluster=cluster, fours=4) for cluster in (1, 2, 4, 8)),
        PackConfig(fours=8),
        PackConfig(fours=16),
        PackConfig(fours=16, threads=512),
    ),
    # Fitted to 77 shapes with every tile and division of k, and to 120 drawn at random: the times
    # of these tiles to benchmarks/h100/direct.json; those of `fma`, the rates, and SGEMM's to an
    # earlier version of benchmarks/h200/direct.json. A fit to its present one chooses no better.
    direct=(
        DirectTile(DirectConfig(block_m=128, block_n=128), 1, 1.31e-6, 1.31e-6, 6.12e-6, 1.38e-6),
        DirectTile(DirectConfig(block_m=128, block_n=64), 1, 0.863e-6, 0.863e-6, 4.47e-6, 0.984e-6),
        DirectTile(
            DirectConfig(block_m=64, block_n=64, min_blocks=2),
            2,
            0.774e-6,
            0.471e-6,
            3.85e-6,
            0.501e-6,
        ),
        DirectTile(
            DirectConfig(block_m=64, block_n=32, min_blocks=3),
            3,
            0.752e-6,
            0.29e-6,
            3.42e-6,
            2.2e-6,
        ),
        # For shallow products.
        DirectTile(
            DirectConfig(block_m=128, block_n=128, products=4, chain=16),
            1,
            1.65e-6,
            1.65e-6,
            6.28e-6,
            3.04e-6,
        ),
        DirectTile(
            DirectConfig(block_m=128, block_n=64, products=4, chain=8),
            1,
            1.13e-6,
            1.13e-6,
            3.95e-6,
            1.59e-6,
        ),
        DirectTile(
            DirectConfig(block_m=64, block_n=64, min_blocks=2, products=4, chain=8),
            2,
            0.645e-6,
            0.64e-6,
            3.85e-6,
            0.931e-6,
        ),
        DirectTile(
            DirectConfig(block_m=64, block_n=32, min_blocks=3, products=4, chain=8),
            3,
            0.501e-6,
            0.48e-6,
            2.77e-6,
            1.33e-6,
        ),
    ),
    # Fitted to the same shapes, with every tile and division of k.
    fma=(
        FmaTile(
            FmaConfig(block_m=64, block_n=128, thread_m=8, thread_n=8, stages=3, min_blocks=3),
            3,
            0.198e-6,
            0.873e-6,
            1e-6,
            1.69e-6,
        ),
        FmaTile(
            FmaConfig(block_m=64, block_n=64, thread_m=8, thread_n=4, min_blocks=4),
            4,
            0.115e-6,
            0.493e-6,
            0.66e-6,
            0.381e-6,
        ),
        FmaTile(
            FmaConfig(block_m=32, block_n=128, thread_m=8, thread_n=4, min_blocks=4),
            4,
            0.124e-6,
            0.493e-6,
            0.673e-6,
            0.42e-6,
        ),
        FmaTile(
            FmaConfig(block_m=128, block_n=32, thread_m=8, thread_n=4, min_blocks=4),
            4,
            0.124e-6,
            0.437e-6,
            0.693e-6,
            0.42e-6,
        ),
        FmaTile(
            FmaConfig(block_m=32, block_n=32, thread_m=4, thread_n=4, min_blocks=8),
            8,
            0.0398e-6,
            0.177e-6,
            0.433e-6,
            0.103e-6,
        ),
        FmaTile(
            FmaConfig(block_m=16, block_n=32, thread_m=4, thread_n=4, min_blocks=16),
            14,
            0.026e-6,
            0.18e-6,
            0.45e-6,
            0.0962e-6,
        ),
    ),
    # Two stages leave room for what repairs need.
    finish=(
        DirectConfig(block_m=128, block_n=128, stages=2),
        DirectConfig(block_m=128, block_n=64, products=4, chain=8),
    ),
    clusters_at_once={1: 132, 2: 66, 4: 30},
    direct_start=0.0164e-6,
    direct_join=0.827e-6,
    direct_add=0.145e-6,
    direct_add_bytes=0.973e12,
    direct_bytes=2.31e12,
    direct_fill=12.2e-6,
    direct_stream=3.98e12,
    direct_unaligned=0.193,
    fma_start=1.21e-6,
    fma_join=0.308e-6,
    fma_reads=1.68e12,
    fma_writes=7.71e12,
    # Of products that are packed, fitted to benchmarks/h200/direct.json.
    launch_time=6.46e-6,
    fallback_time=1.51e-6,
    pack_unaligned=0.273,
    store_unaligned=1.57,
    clock_time=0.9 / 1.755e9,
    vector_time=0.566e-9,
    pack_k_major_rate=3.4e12,
    pack_mn_major_rate=2.3e12,
    store_rate=7.71e12,
    # The rate is that of large products, the rest is fitted to the same shapes as `direct`.
    sgemm_start=3.58e-6,
    sgemm_grain=32,
    sgemm_tile=34.6,
    sgemm_rate=48.5e12,
    sgemm_half=0.968e9,
    sgemm_idle=0.76,
    sgemm_stacked=0.781,
    sgemm_ends=10.6,
    sgemm_unaligned_ends=64.1,
    sgemm_bytes=1.93e12,
    sgemm_narrow_bytes=1.5e12,  # 12000 × 16 × 12000 on an H100; with 11 columns 1.2e12
    sgemm_step=14.7e-9,
    sgemm_unaligned=0.396,
    sgemm_deep=629,
    sgemm_vector_start=2.47e-6,
    sgemm_vector_bytes=4e12,
)
