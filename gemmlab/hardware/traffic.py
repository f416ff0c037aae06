"""Memory traffic that kernels request: one model per kind of kernel, from its tile sizes alone.

A model counts elements that lanes request: an element that 32 lanes load together counts 32 times,
because each lane waits for it. Models are exact for ragged shapes, where lanes past an edge request
nothing. Tests compare them with the emulator's counts.

The traffic of a tiled product, K·(M·⌈N/BN⌉ + N·⌈M/BM⌉) elements, is M·N·K·(1/BM + 1/BN) if the
tiles divide the matrix: every row of A is read once per column of blocks, every column of B once
per row of blocks (Kirk and Hwu, "Programming Massively Parallel Processors", chapter on tiling).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gemmlab.hardware.formula import Quantity, ceil_div, least

ZERO = Quantity.of(0)
BINS = 256  # of a byte histogram
WARP = 32


@dataclass(frozen=True)
class Traffic:
    """FLOPs, and the elements that the lanes of one launch request. None: not modelled.

    copied: elements of global memory that the copy engine moves, for no lane.
    more: field -> why a kernel may exceed its model.
    """

    flops: Quantity
    global_loads: Quantity | None
    global_stores: Quantity | None = ZERO
    global_atomics: Quantity | None = ZERO
    shared_loads: Quantity | None = ZERO
    shared_stores: Quantity | None = ZERO
    shared_atomics: Quantity | None = ZERO
    copied: Quantity = ZERO
    results: Quantity | None = None  # output elements, if each is written once
    thread_tile: tuple[int, int] | None = None  # TM×TN elements of C per thread, of a product
    load_bytes: int = 4  # of a loaded element in global memory; all others have 4
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def global_bytes(self) -> int | None:
        """Bytes of loads, stores, atomics and copies together, before any cache."""
        stores = (self.global_stores, self.global_atomics)
        if self.global_loads is None or None in stores:
            return None
        others = sum(q.value for q in (*stores, self.copied) if q)
        return self.load_bytes * self.global_loads.value + 4 * others


# (configuration, shape: axis -> extent) -> traffic
Model = Callable[[Any, Mapping[str, int]], Traffic]


def axes(shape: Mapping[str, int]) -> list[Quantity]:
    """Return the sizes of a problem as quantities named by its axes."""
    return [Quantity.named(axis.upper(), size) for axis, size in shape.items()]


def sizes(config: Any, **names: str) -> list[Quantity]:
    """Return fields of a configuration as quantities named by the letters of the formulas."""
    return [Quantity.named(name, getattr(config, field)) for name, field in names.items()]


# C = A·B


def direct_product(_config: Any, shape: Mapping[str, int]) -> Traffic:
    """Every thread reads a row of A and a column of B from global memory."""
    m, n, k = axes(shape)
    flops = loads = 2 * m * n * k
    return Traffic(flops, loads, global_stores=m * n, results=m * n, thread_tile=(1, 1))


def accesses_per_result(thread_tile: tuple[int, int], k: int) -> float:
    """K·(1/TM + 1/TN) + 1: what a thread loads for K steps, and its store, per element of C.

    A thread loads TM elements of A and TN of B per step, from wherever they are.
    """
    tm, tn = thread_tile
    return k * (1 / tm + 1 / tn) + 1


def staged_product(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Blocks of BM×BN stage tiles of A and B in shared memory. Reads of the tiles are not
    modelled."""
    m, n, k = axes(shape)
    bm, bn = sizes(config, BM="block_m", BN="block_n")
    return Traffic(
        2 * m * n * k,
        global_loads=k * (m * ceil_div(n, bn) + n * ceil_div(m, bm)),
        global_stores=m * n,
        results=m * n,
        shared_loads=None,
        shared_stores=None,
        more={"flops": "edge tiles are multiplied in full, including the zero padding"},
    )


def tiled_product(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Blocks stage tiles in shared memory. For each k, a thread reads TM + TN elements of them."""
    m, n, k = axes(shape)
    bm, bn, bk = sizes(config, BM="block_m", BN="block_n", BK="block_k")
    # A kernel without these fields computes one element of C per thread.
    tm, tn = (Quantity.named(f"T{x.upper()}", getattr(config, f"thread_{x}", 1)) for x in "mn")
    tiles = ceil_div(m, bm) * ceil_div(n, bn) * ceil_div(k, bk)
    threads = Quantity.named("threads", bm.value * bn.value // (tm.value * tn.value))
    return replace(
        staged_product(config, shape),
        shared_loads=tiles * bk * threads * (tm + tn),
        shared_stores=tiles * bk * (bm + bn),
        thread_tile=(tm.value, tn.value),
    )


def prefetching_product(config: Any, shape: Mapping[str, int]) -> Traffic:
    """A tiled product that prefetches the next tile while it multiplies the current one."""
    traffic = tiled_product(config, shape)
    why = "the last iteration of the loop prefetches a tile that is never used"
    return replace(traffic, more={**traffic.more, "global_loads": why, "shared_stores": why})


def copying_product(config: Any, shape: Mapping[str, int]) -> Traffic:
    """A tiled product whose tiles are copied in full; past an edge, the last column repeats."""
    traffic = tiled_product(config, shape)
    why = "tiles are copied in full; past an edge, the last column repeats"
    return replace(traffic, more={**traffic.more, "global_loads": why})


def specialized_product(config: Any, shape: Mapping[str, int]) -> Traffic:
    """A tiled product in which some warps only copy and the others only multiply."""
    traffic = tiled_product(config, shape)
    why = f"{traffic.more['flops']}; sums are multiplied by 1 before they are stored"
    return replace(traffic, more={"flops": why})


def sliced_product(config: Any, shape: Mapping[str, int]) -> Traffic:
    """A prefetching product whose k is split into S slices. Each slice of each block of C is
    written to memory and read back, with one atomic addition and one value shared by the block's
    threads."""
    traffic = prefetching_product(config, shape)
    assert traffic.global_loads and traffic.global_stores
    assert traffic.shared_loads and traffic.shared_stores
    m, n, k = axes(shape)
    bm, bn = sizes(config, BM="block_m", BN="block_n")
    blocks = ceil_div(m, bm) * ceil_div(n, bn)
    slices = min(config.blocks // blocks.value, k.value // config.slice_k, config.slices)
    if slices <= 1:
        return traffic
    parts = blocks * Quantity.named("S", slices)
    why = "the slices are summed"
    return replace(
        traffic,
        global_loads=traffic.global_loads + parts * bm * bn,
        global_stores=traffic.global_stores + parts * bm * bn + blocks,
        global_atomics=parts,
        shared_loads=traffic.shared_loads + parts * Quantity.named("threads", config.threads),
        shared_stores=traffic.shared_stores + parts,
        more={**traffic.more, "flops": f"{traffic.more['flops']}; {why}"},
    )


def shared_reads(config: Any, shape: Mapping[str, int], at_once: int) -> float:
    """Bytes of A and B that L2 reads from device memory if it cannot hold them and the `at_once`
    concurrent blocks share their reads: a wave that covers R rows and S columns of blocks reads
    R·BM rows of A and S·BN columns of B.

    Blocks are numbered along the rows of C, or in groups of `config.group` rows, column by column.
    This is an estimate; blocks that drift apart share less.
    """
    m, n, k = shape.values()
    bm, bn, group = config.block_m, config.block_n, getattr(config, "group", 1)
    down, across = -(-m // bm), -(-n // bn)
    waves = max(1.0, down * across / at_once)
    rows = min(down, max(group, at_once / across))
    columns = min(across, at_once / rows)
    return float(4 * k * waves * (rows * bm + columns * bn))


# B = Aᵀ


def direct_transpose(_config: Any, shape: Mapping[str, int]) -> Traffic:
    """Every element is loaded once and stored once."""
    m, n = axes(shape)
    return Traffic(ZERO, global_loads=m * n, global_stores=m * n, results=m * n)


def staged_transpose(config: Any, shape: Mapping[str, int]) -> Traffic:
    """The same, staged through shared memory."""
    m, n = axes(shape)
    return replace(
        direct_transpose(config, shape),
        shared_loads=m * n,
        shared_stores=m * n,
        more={"shared_stores": "stores to the tile are not guarded at the edges"},
    )


def turned_transpose(config: Any, shape: Mapping[str, int]) -> Traffic:
    """The same, with tiles that pass through shared memory in full."""
    m, n = axes(shape)
    bm, bn = sizes(config, BM="block_m", BN="block_n")
    staged = ceil_div(m, bm) * ceil_div(n, bn) * bm * bn
    return replace(direct_transpose(config, shape), shared_loads=staged, shared_stores=staged)


def copied_transpose(config: Any, shape: Mapping[str, int]) -> Traffic:
    """The copy engine moves rows in and out, if they are multiples of 16 bytes."""
    turned, (m, n) = turned_transpose(config, shape), axes(shape)
    if m.value % 4 or n.value % 4:
        return turned
    return replace(turned, global_loads=ZERO, global_stores=ZERO, copied=2 * m * n)


# Sum of n numbers


def _sum_blocks(config: Any, shape: Mapping[str, int]) -> tuple[Quantity, Quantity, Quantity]:
    """Return N, the threads per block, and the blocks needed for one element per thread."""
    (n,) = axes(shape)
    (t,) = sizes(config, T="threads")
    return n, t, ceil_div(n, t)


def atomic_sum(_config: Any, shape: Mapping[str, int]) -> Traffic:
    """Every element is added to one accumulator in global memory."""
    (n,) = axes(shape)
    return Traffic(n, global_loads=n, global_atomics=n)


def serial_sum(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Blocks store T elements to shared memory, and one thread reads them all."""
    n, t, blocks = _sum_blocks(config, shape)
    return Traffic(
        n,
        global_loads=n,
        global_atomics=blocks,
        shared_loads=blocks * t,
        shared_stores=blocks * t,
        more={"flops": "the first element is added to 0, and the block's sum to the total"},
    )


def tree_sum(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Blocks store T elements to shared memory, perform T - 1 additions there with two loads and a
    store each, and load the result once."""
    n, t, blocks = _sum_blocks(config, shape)
    return Traffic(
        n,
        global_loads=n,
        global_atomics=blocks,
        shared_loads=blocks * (2 * t - 1),
        shared_stores=blocks * (2 * t - 1),
        more={"flops": "the last block adds zeros past the end"},
    )


_SHUFFLED = "in every shuffle step all 32 lanes add, although most of the sums are unused"


def shuffled_sum(config: Any, shape: Mapping[str, int]) -> Traffic:
    """One word per warp passes through shared memory, the rest through shuffles."""
    n, t, blocks = _sum_blocks(config, shape)
    return _shuffled(n, t, blocks)


def strided_sum(config: Any, shape: Mapping[str, int]) -> Traffic:
    """The same with at most `config.blocks` blocks, which stride over the elements four at a
    time."""
    n, t, _ = _sum_blocks(config, shape)
    (most,) = sizes(config, blocks="blocks")
    return _shuffled(n, t, least(ceil_div(n, 4 * t), most))


def chunked_sum(config: Any, shape: Mapping[str, int]) -> Traffic:
    """The same, in chunks of four elements per load and thread."""
    n, t, chunks = _chunks(config, shape)
    (most,) = sizes(config, blocks="blocks")
    return _shuffled(n, t, least(chunks, most))


def ordered_sum(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Each chunk has a sum in the workspace. Each block draws a ticket, which its threads read in
    shared memory; the last one adds the sums of all chunks up."""
    n, t, chunks = _chunks(config, shape)
    (most,) = sizes(config, blocks="blocks")
    blocks, words = least(chunks, most), ceil_div(t, Quantity.of(WARP))
    return Traffic(
        n,
        global_loads=n + chunks + 1,
        global_stores=chunks + 2,
        global_atomics=blocks,
        shared_loads=(chunks + 1) * words + blocks * t,
        shared_stores=(chunks + 1) * words + blocks,
        more={"flops": _SHUFFLED},
    )


def _chunks(config: Any, shape: Mapping[str, int]) -> tuple[Quantity, Quantity, Quantity]:
    """Return N, the threads per block, and the chunks: `loads` times four elements per thread."""
    (n,) = axes(shape)
    t, loads = sizes(config, T="threads", loads="loads")
    return n, t, ceil_div(n, 4 * t * loads)


def _shuffled(n: Quantity, t: Quantity, blocks: Quantity) -> Traffic:
    words = blocks * ceil_div(t, Quantity.of(WARP))
    return Traffic(
        n,
        global_loads=n,
        global_atomics=blocks,
        shared_loads=words,
        shared_stores=words,
        more={"flops": _SHUFFLED},
    )


# Byte histogram


def atomic_histogram(_config: Any, shape: Mapping[str, int]) -> Traffic:
    """Every byte is counted by an atomic in global memory."""
    (n,) = axes(shape)
    return Traffic(ZERO, global_loads=n, global_atomics=n, load_bytes=1)


def staged_histogram(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Blocks of T threads count `run` bytes per thread in shared memory, then add their 256 counts
    to global memory."""
    (n,) = axes(shape)
    t, run = sizes(config, T="threads", run="run")
    counts = ceil_div(n, t * run) * BINS
    return Traffic(
        ZERO,
        global_loads=n,
        global_atomics=counts,
        shared_loads=counts,
        shared_stores=counts,
        shared_atomics=n,
        load_bytes=1,
    )


def _resident(config: Any, shape: Mapping[str, int], columns: int) -> Traffic:
    """Blocks count 16 bytes per load, in `columns` histograms in shared memory."""
    (n,) = axes(shape)
    t, most = sizes(config, T="threads", blocks="blocks")
    blocks = least(ceil_div(n, 16 * t), most)
    counts = blocks * BINS
    return Traffic(
        ZERO,
        global_loads=n,
        global_atomics=counts,
        shared_loads=counts * columns if columns > 1 else counts,
        shared_stores=counts * columns if columns > 1 else counts,
        shared_atomics=n,
        load_bytes=1,
    )


def resident_histogram(config: Any, shape: Mapping[str, int]) -> Traffic:
    """At most `config.blocks` blocks count in shared memory, 16 bytes per load, until all is
    counted, then add their 256 counts to global memory."""
    return _resident(config, shape, 1)


def lane_histogram(config: Any, shape: Mapping[str, int]) -> Traffic:
    """The same with a histogram per lane, which are added up at the end."""
    return _resident(config, shape, WARP)


# c = a + b


def vector_sum(_config: Any, shape: Mapping[str, int]) -> Traffic:
    """Two elements are loaded and their sum is stored."""
    (n,) = axes(shape)
    return Traffic(n, global_loads=2 * n, global_stores=n, results=n)
