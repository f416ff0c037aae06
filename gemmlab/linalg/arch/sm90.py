"""Hopper GPUs of compute capability 9.0, the only ones with wgmma; measured on an H200."""

from __future__ import annotations

from gemmlab.kernels.gemm.sm90.config import PackConfig, TileConfig
from gemmlab.linalg.arch.architecture import Architecture

SM90 = Architecture(
    target="sm_90a",
    capability=(9, 0),
    multiprocessors=132,
    kernels={
        "pack_k_major": ("sm90.pack", "pack_k_major"),
        "pack_mn_major": ("sm90.pack", "pack_mn_major"),
        "find_peaks": ("sm90.pack_deep", "find_peaks"),
        "pack_mn_major_deep": ("sm90.pack_deep", "pack_mn_major_deep"),
        "multiply_packed": ("sm90.mainloop", "kernel"),
        "repack": ("sm90.repack", "kernel"),
        "repair": ("sm90.repair", "kernel"),
    },
    tile=TileConfig,
    blocks=(2, 1),
    least_tiles=1,
    stages={192: 5, 128: 6, 64: 8},
    step_clocks={192: 2600, 128: 1850, 64: 1100},
    round_clocks=3000,
    long=1024,
    # First more blocks, then more elements per thread.
    clusters=(
        *(PackConfig(cluster=cluster, fours=4) for cluster in (1, 2, 4, 8)),
        PackConfig(fours=8),
        PackConfig(fours=16),
        PackConfig(fours=16, threads=512),
    ),
    # Fitted to 50 shapes (`benchmarks/h200/matmul.json`).
    launch_time=10.8e-6,
    fallback_time=6e-6,
    clock_time=0.9 / 1.755e9,
    vector_time=0.65e-9,
    pack_k_major_rate=3.3e12,
    pack_mn_major_rate=2.3e12,
    store_rate=6e12,
    sgemm_start=3.5e-6,
    sgemm_rate=52e12,
    sgemm_half=0.5e9,
    sgemm_bytes=4.0e12,
)
