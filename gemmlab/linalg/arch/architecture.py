"""What planning needs to know of a GPU architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmlab.kernels.gemm.sm90.config import PackConfig, TileConfig


@dataclass(frozen=True, eq=False)
class Architecture:
    """The kernels of one compute capability, their tiles, and times measured on one of its GPUs."""

    target: str  # to compile for, "sm_90a"
    capability: tuple[int, int]
    multiprocessors: int  # of the GPU measured
    kernels: Mapping[str, tuple[str, str]]  # name in a launch -> module, function

    tile: type[TileConfig]
    blocks: tuple[int, ...]  # of a cluster that multiplies, best first
    least_tiles: int  # of all parts, in shared memory
    stages: Mapping[int, int]  # width of the tile -> stages of shared memory
    step_clocks: Mapping[int, int]  # width of the tile -> clocks per 64 of k
    round_clocks: int  # to fill the pipeline and to write C
    long: int  # elements; a whole block packs each longer K-major vector
    # Configurations that pack MN-major operands, smallest first; none before clusters existed.
    clusters: tuple[PackConfig, ...]

    # Predicted times in seconds.
    launch_time: float  # packing, product and repair
    fallback_time: float  # launches that exit immediately
    clock_time: float  # per predicted clock of the product
    vector_time: float  # to pack a vector, however short
    # Bytes per second: packing K-major and MN-major operands, and writing C.
    pack_k_major_rate: float
    pack_mn_major_rate: float
    store_rate: float
    # SGEMM: start in seconds; operations per second of large products, and the operations at which
    # half of that is reached; bytes per second.
    sgemm_start: float
    sgemm_rate: float
    sgemm_half: float
    sgemm_bytes: float
