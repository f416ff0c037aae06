"""Ampere GPUs of compute capability 8.0: A100. Other Ampere GPUs have half the float16 rate.

No A100 was available. The kernels were run on the emulator and, compiled for `sm_80`, on an H200;
times are predicted from data sheets, and from shares of peak that the same kernels reach there.
"""

from dataclasses import replace

from gemmlab.kernels.gemm.sm80.config import WarpTileConfig
from gemmlab.linalg.arch.sm90 import SM90

SM80 = replace(
    SM90,
    target="sm_80",
    capability=(8, 0),
    multiprocessors=108,
    kernels={
        **{
            name: SM90.kernels[name]
            for name in ("pack_k_major", "find_peaks", "pack_mn_major_deep", "repack")
        },
        "multiply_packed": ("sm80.mainloop", "kernel"),
    },
    tile=WarpTileConfig,
    blocks=(1,),
    least_tiles=2,
    stages={128: 4, 64: 6},
    # 128·128·64·3 multiply-adds, of which a multiprocessor does 1024 per clock, at 60 %.
    step_clocks={128: 5120, 64: 3000},
    round_clocks=6000,
    clusters=(),
    direct=(),
    streamed=(),
    fma=(),
    gemv=(),
    again=(),
    launch_time=12e-6,
    fallback_time=8e-6,
    fallback_stored=0.0,
    # As fitted to earlier kernels on Hopper; not measured on an A100.
    pack_unaligned=0.273,
    store_unaligned=1.57,
    clock_time=1 / 1.41e9,
    # Of 1.9 TB/s (80 GB), as large a share as an H200 reaches of 4.8 TB/s.
    pack_k_major_rate=1.3e12,
    pack_mn_major_rate=0.9e12,
    store_rate=2.4e12,
    pack_far=0.0,
    # cuBLAS SGEMM, published: 18.8 of 19.5 TFLOPS, which an H200 exceeds by a factor of 2.6 in all,
    # of 2.1 per multiprocessor.
    sgemm=tuple(replace(tile, busy=2.1 * tile.busy) for tile in SM90.sgemm),
    sgemm_bytes=1.6e12,
    sgemm_vector_near=1.6e12,
    sgemm_vector_bytes=1.6e12,
    l2_bytes=30e6,  # as large a share as of an H200's
)
