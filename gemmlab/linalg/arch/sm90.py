"""Hopper GPUs of compute capability 9.0: kernels, tiles, and times measured on an H200."""

from __future__ import annotations

from gemmlab.kernels.gemm.sm90.config import PackConfig

ARCH, CAPABILITY = "sm_90a", (9, 0)  # the only architecture with wgmma
MULTIPROCESSORS = 132  # of an H200

PACKAGE = "gemmlab.kernels.gemm.sm90"
# Kernel name in a launch -> file in that package, function.
KERNELS = {
    "pack_k_major": ("pack", "pack_k_major"),
    "pack_mn_major": ("pack", "pack_mn_major"),
    "find_peaks": ("pack_deep", "find_peaks"),
    "pack_mn_major_deep": ("pack_deep", "pack_mn_major_deep"),
    "multiply_packed": ("mainloop", "kernel"),
    "repack": ("repack", "kernel"),
    "repair_non_finite": ("repair", "kernel"),
}

# Stages of shared memory, and clocks per 64 of k on an H200, by the width of the tile.
STAGES = {192: 5, 128: 6, 64: 8}
STEP_CLOCKS = {192: 2600, 128: 1850, 64: 1100}
ROUND_CLOCKS = 3000  # to fill the pipeline and to write C
LONG = 1024  # elements; a whole block packs each longer K-major vector
# Configurations that pack MN-major operands, smallest first: more blocks, then more per thread.
CLUSTERS = (
    *(PackConfig(cluster=cluster, fours=4) for cluster in (1, 2, 4, 8)),
    PackConfig(fours=8),
    PackConfig(fours=16),
    PackConfig(fours=16, threads=512),
)

# Coefficients of predicted times in seconds, fitted to 50 shapes on an H200
# (`benchmarks/h200/matmul.json`).
LAUNCHES, WAY_OUT = 10.8e-6, 6e-6  # packing, product and repair; launches that exit immediately
CLOCK = 0.9 / 1.755e9  # per predicted clock of the product
VECTOR = 0.65e-9  # to pack a vector, however short
# Bytes per second: packing K-major and MN-major operands, and writing C.
PACK_K_MAJOR, PACK_MN_MAJOR, STORE = 3.3e12, 2.3e12, 6e12
# SGEMM: start; operations per second of large products, and at which size half of that is reached;
# bytes per second.
SGEMM_START, SGEMM_RATE, SGEMM_HALF, SGEMM_BYTES = 3.5e-6, 52e12, 0.5e9, 4.0e12
