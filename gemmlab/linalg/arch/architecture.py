"""What planning needs to know about a GPU architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmlab.kernels.gemm.sm90.config import PackConfig, TileConfig
from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.kernels.gemm.sm90.fma_config import FmaConfig
from gemmlab.kernels.gemm.sm90.gemv_config import GemvConfig
from gemmlab.kernels.gemm.sm90.streamed_config import StreamedConfig


@dataclass(frozen=True)
class DirectTile:
    """A tile of a kernel that takes float32 operands as they are, and seconds per chunk of k.

    at_once: blocks that share a multiprocessor. latency: from one chunk of a block to the next, if
    nothing delays it. busy: what each block on the multiprocessor, itself included, adds to that;
    0 if `at_once` is 1. ends: before and after the chunks of a block. between: from
    one tile of a block to the next. unaligned_a, unaligned_b: the share by which a chunk takes
    longer if the lines of the kernel's A, or B, are not aligned to 16 bytes.
    """

    config: DirectConfig
    at_once: int
    latency: float
    busy: float
    ends: float
    between: float
    unaligned_a: float
    unaligned_b: float


@dataclass(frozen=True)
class StreamedTile:
    """A tile of the kernel that packs only one operand, and seconds.

    latency: per k-tile of a block. ends: before and after the k-tiles of a block. between: from one
    tile of a block to the next. unaligned: the share by which a k-tile takes longer if the lines of
    the other operand are not aligned to 16 bytes.
    """

    config: StreamedConfig
    latency: float
    ends: float
    between: float
    unaligned: float


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


@dataclass(frozen=True)
class GemvTile:
    """A way to read a matrix that is multiplied with a vector, and seconds.

    at_once: blocks that share a multiprocessor. latency: how long a thread waits for what it has in
    flight. ends: before and after all of these.
    """

    config: GemvConfig
    at_once: int
    latency: float
    ends: float


@dataclass(frozen=True)
class SgemmTile:
    """A tile of kernels of cuBLAS SGEMM, and seconds.

    at_once: blocks that share a multiprocessor. busy: how long a step along k of a block keeps the
    multiprocessor from other blocks, if no operand is K-major; between: the time before and after
    all steps. latency: from one step of a block to the next, if nothing delays it and the operands
    are in L2; ends: before and after all steps. most_splits: blocks that k is divided among at
    most. only_mn_major_b: whether it is used only if rows of b are contiguous.
    """

    rows: int
    columns: int
    at_once: int
    busy: float
    between: float
    latency: float
    ends: float
    most_splits: int = 1
    only_mn_major_b: bool = False


@dataclass(frozen=True)
class Large:
    """Sizes from which products are packed, without a comparison of predicted times.

    side: rows, and columns, of C. depth: k. work: multiply-adds of each product of a stack.
    """

    side: int
    depth: int
    work: int


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
    streamed: tuple[StreamedTile, ...]  # of products of which one operand is packed
    fma: tuple[FmaTile, ...]  # of products of float32 multiply-adds
    gemv: tuple[GemvTile, ...]  # the same with a vector
    again: tuple[DirectConfig, ...]  # of kernels that may compute a packed product as `direct` does
    # Blocks of a cluster -> clusters of one block per multiprocessor that fit.
    clusters_at_once: Mapping[int, int]
    direct_start: float  # seconds
    direct_join: float  # seconds to add up the blocks of a cluster
    direct_add: float  # seconds of the launch that adds up slices, and bytes of C per second
    direct_add_bytes: float
    direct_stream: float  # bytes per second of matrices, each element once
    # Products of one packed operand: seconds of the launches, and of the one that adds up slices;
    # bytes of slices per second.
    streamed_start: float
    streamed_add: float
    streamed_add_bytes: float
    # Products of float32 multiply-adds: seconds of a launch, and to add each further block of a
    # cluster; the share by which they take longer per K-major operand; bytes per second read from
    # and written to memory.
    fma_start: float
    fma_join: float
    fma_k_major: float
    fma_reads: float
    fma_writes: float
    # Of products with a vector: a launch, to add up the blocks of a cluster, the share by which
    # reading takes longer if the lines of the matrix are not aligned to 16 bytes; bytes per second
    # that multiprocessors can read from L2 and from memory, and that memory delivers.
    gemv_start: float
    gemv_join: float
    gemv_unaligned: float
    gemv_near: float
    gemv_far: float
    gemv_bytes: float

    # Predicted times in seconds.
    launch_time: float  # packing and product
    fallback_time: float  # launches that exit immediately
    # Shares by which a product takes longer: storing C if there is a fallback, as doubtful elements
    # are looked for; all of it if lines of any matrix are not aligned to 16 bytes.
    fallback_stored: float
    packed_unaligned: float
    clock_time: float  # per predicted clock of the product
    vector_time: float  # to pack a vector, however short
    long_vector_time: float  # so much more if it is K-major and longer than `long`
    pack_strip: float  # per k, to pack MN-major vectors, however few
    # Bytes per second: packing K-major and MN-major operands, and writing C.
    pack_k_major_rate: float
    pack_mn_major_rate: float
    store_rate: float
    # Further shares: by which packing an operand, or writing C, takes longer if its lines are not
    # aligned, and by which packing takes longer if L2 does not keep the matrices.
    pack_unaligned: float
    store_unaligned: float
    pack_far: float
    # Bytes of matrices that L2 keeps between products in addition to their packed parts, and the
    # excess over them at which it keeps none; then both for products without parts.
    pack_l2_bytes: float
    pack_l2_overflow: float
    l2_bytes: float
    l2_overflow: float
    # SGEMM: seconds of a launch, of the launch that adds up divisions of k, and that a step along k
    # waits longer for device memory than for L2; the share by which a step is longer for each
    # K-major operand; bytes per second. Products with a vector: start in seconds, bytes per second
    # from L2 and from memory.
    sgemm: tuple[SgemmTile, ...]
    sgemm_start: float
    sgemm_join: float
    sgemm_far: float
    sgemm_k_major: float
    sgemm_bytes: float
    sgemm_vector_start: float
    sgemm_vector_near: float
    sgemm_vector_bytes: float
    large: Large | None = None  # None: products of all sizes are compared
