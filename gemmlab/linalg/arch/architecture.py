"""What planning needs to know about a GPU architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmlab.kernels.gemm.sm90.config import PackConfig, TileConfig
from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.kernels.gemm.sm90.fma_config import FmaConfig


@dataclass(frozen=True)
class DirectTile:
    """A tile of a kernel that takes float32 operands as they are, and seconds per chunk of k.

    at_once: blocks that share a multiprocessor. latency: from one chunk of a block to the next.
    busy: how long a block's chunk keeps the multiprocessor from other blocks' chunks. ends: before
    and after the chunks of a block. between: from one tile of a block to the next.
    """

    config: DirectConfig
    at_once: int
    latency: float
    busy: float
    ends: float
    between: float


@dataclass(frozen=True)
class FmaTile:
    """A tile of a kernel that multiplies in float32, and seconds.

    at_once: blocks that share a multiprocessor. busy: how long 4 values of k of a block keep the
    multiprocessor from other blocks; between: the time before and after them. latency: from one
    chunk of k of a block to the next, if nothing delays it; ends: before and after all chunks.
    """

    config: FmaConfig
    at_once: int
    busy: float
    between: float
    latency: float
    ends: float


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
    short: int  # elements; longer K-major vectors fill more registers of a thread
    long: int  # elements; a whole block packs each longer K-major vector
    # Configurations that pack MN-major operands, smallest first; none before clusters existed.
    clusters: tuple[PackConfig, ...]

    direct: tuple[DirectTile, ...]  # of products that need no packing
    fma: tuple[FmaTile, ...]  # of products of float32 multiply-adds
    finish: tuple[DirectConfig, ...]  # of the launch that may compute a packed product again
    # Blocks of a cluster -> clusters of one block per multiprocessor that fit.
    clusters_at_once: Mapping[int, int]
    direct_start: float  # seconds
    direct_join: float  # seconds to add up the blocks of a cluster
    direct_add: float  # seconds of the launch that adds up slices, and bytes per second of slices
    direct_add_bytes: float
    # Bytes per second of matrices, each element once; of large ones after the time to get there.
    direct_bytes: float
    direct_fill: float
    direct_stream: float
    # The share by which a product takes longer for each matrix with lines not aligned to 16 bytes.
    direct_unaligned: float
    # Of float32 multiply-adds: a launch, to add another block of a cluster, and bytes per second.
    fma_start: float
    fma_join: float
    fma_reads: float
    fma_writes: float

    # Predicted times in seconds.
    launch_time: float  # packing, product and repair
    fallback_time: float  # launches that exit immediately
    clock_time: float  # per predicted clock of the product
    vector_time: float  # to pack a vector, however short
    # Bytes per second: packing K-major and MN-major operands, and writing C.
    pack_k_major_rate: float
    pack_mn_major_rate: float
    store_rate: float
    # Shares by which packing an operand, and writing C, take longer if lines are not aligned.
    pack_unaligned: float
    store_unaligned: float
    # SGEMM: start in seconds; rows and columns are computed in multiples of the grain, and at least
    # so many; operations per second of large products; what others lose, as operations, at most as
    # a share of their own, and how much of that stacks lose; steps of k that the ends of a tile
    # take, and how many more if any lines are unaligned; bytes per second, also for narrow products
    # whose larger factor is K-major; seconds per step along k, the share by which it is longer for
    # unaligned lines, and the most steps that one block takes of a product that is not in a stack.
    # Products with a vector: start in seconds, bytes per second.
    sgemm_start: float
    sgemm_grain: int
    sgemm_tile: float
    sgemm_rate: float
    sgemm_half: float
    sgemm_idle: float
    sgemm_stacked: float
    sgemm_ends: float
    sgemm_unaligned_ends: float
    sgemm_bytes: float
    sgemm_narrow_bytes: float
    sgemm_step: float
    sgemm_unaligned: float
    sgemm_deep: int
    sgemm_vector_start: float
    sgemm_vector_bytes: float
