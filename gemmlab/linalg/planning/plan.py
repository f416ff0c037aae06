"""The plan of a product: its kernels, their grids and memory. Arithmetic alone, no GPU.

    C (m, n) = alpha · A (m, k) · B (k, n) + beta · C, for each item of a batch

One launch or two convert each operand into a *packed* operand (`kernels.gemm.sm90.pack`). Then one
launch multiplies (`kernels.gemm.sm90.mainloop`), or several if k is very large. A packed operand
can be kept and used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import (
    DEEP_STRIP,
    LINE,
    MAX_SUMS,
    PACK_WARPS,
    REPAIR_TILE,
    STRIP,
    VECTOR_PITCH,
    CopyBox,
    PackConfig,
    Scheme,
    TileConfig,
)
from gemmlab.kernels.rung import Dim3
from gemmlab.linalg.arch import DEFAULT, Architecture

ALIGNMENT = 128  # bytes, of every array in a workspace
STATUS_BYTES = 16  # two 64-bit counts: elements at risk, non-finite vectors
REPORT_BYTES = 24  # both counts of the last product, and a counter of blocks
_DEEPEST = 16384  # of k per launch, unless there would be more than _MOST_SEGMENTS launches
_MOST_SEGMENTS = 64


class Address(Protocol):
    """A place in device memory: a number, or a span of a device's buffer."""

    def __add__(self, nbytes: int, /) -> Address: ...


Addresses = tuple[Address, Address, Address]
Value = float | Address  # of a kernel's argument


@dataclass(frozen=True)
class Operand:
    """A float32 matrix in device memory, as rows of A or columns of B: `vectors` of `depth`.

    If `k_major`, the elements of a vector are contiguous and vectors are `ld` elements apart.
    Otherwise the vectors are contiguous and the elements of each are `ld` apart. The items of a
    batch are `batch_stride` elements apart.
    """

    vectors: int
    depth: int
    k_major: bool
    ld: int
    batch: int = 1
    batch_stride: int = 0


@dataclass(frozen=True)
class Packed:
    """The memory layout of a packed operand; see `kernels.gemm.sm90.pack`."""

    scheme: Scheme
    vectors: int
    depth: int
    k_major: bool
    batch: int = 1
    factor: str = "a"  # or "b"
    arch: Architecture = DEFAULT

    @property
    def first(self) -> str:
        """How first parts are rounded: "nearest", "down" or "up".

        Long chains truncate more. There A's first parts are rounded down and B's up. The remainders
        then have opposite signs, so leaving out their products adds to each sum about what it loses
        by truncation.
        """
        if _promote_k(self.scheme, self.depth) < LINE:
            return "nearest"
        return {"a": "down", "b": "up"}[self.factor]

    @property
    def lines(self) -> int:
        """Number of contiguous lines in one part of one item."""
        return self.vectors if self.k_major else self.depth

    @property
    def length(self) -> int:
        """Elements per line."""
        return self.depth if self.k_major else self.vectors

    @property
    def pitch(self) -> int:
        """Elements from the start of one line to the next."""
        return ceil_div(self.length, LINE) * LINE

    @property
    def padded(self) -> int:
        """Exponents per item. A tile that extends past the last one reads into "risk", which comes
        next, and does not use what it reads."""
        return ceil_div(self.vectors, VECTOR_PITCH) * VECTOR_PITCH

    @property
    def chunk(self) -> int:
        """Lines per block of `pack_deep`: a multiple of 64, for at most 32 blocks."""
        return ceil_div(self.depth, 32 * 64) * 64

    @property
    def deep(self) -> bool:
        """Whether `kernels.gemm.sm90.pack_deep` packs it: too deep for a cluster's registers."""
        return not self.k_major and self.depth > self.arch.clusters[-1].deepest

    @property
    def chunks(self) -> int:
        return ceil_div(self.depth, self.chunk) if self.deep else 0

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Offsets in bytes of each array from the start, and of the "end"."""
        sizes = {
            "status": STATUS_BYTES,
            "unscale": 4 * self.batch * self.padded,
            "risk": 4 * self.batch * self.padded,
            "peaks": 4 * self.batch * self.padded * self.chunks,
            "out": 2 * self.batch * self.scheme.parts * self.lines * self.pitch,
        }
        offsets, at = {}, 0
        for name, size in sizes.items():
            offsets[name] = at
            at += ceil_div(size, ALIGNMENT) * ALIGNMENT
        return {**offsets, "end": at}

    @property
    def nbytes(self) -> int:
        return self.offsets["end"]


@dataclass(frozen=True)
class PlannedLaunch:
    """One kernel launch, except for the compiled code.

    `args` are the kernel's arguments by name; `maps`, in order, come before them.
    """

    kernel: str  # a name of `arch.kernels`
    config: PackConfig | TileConfig | None
    grid: Dim3
    block: Dim3
    args: Mapping[str, Value]
    maps: tuple[Map, ...] = ()
    cluster: int = 1
    dynamic_smem: int = 0
    arch: Architecture = DEFAULT

    @property
    def code(self) -> tuple[str, PackConfig | TileConfig | None, Dim3, Architecture]:
        """What the compiled code depends on."""
        return self.kernel, self.config, self.block, self.arch


@dataclass(frozen=True)
class Map:
    """A tensor map: a tensor of 16-bit elements, and the box that one copy moves."""

    copy: CopyBox
    address: Address
    shape: tuple[int, int, int]  # elements: along a line, lines, parts of all items
    strides: tuple[int, int]  # bytes: from line to line, from part to part


def pack(
    operand: Operand, packed: Packed, source: Address, target: Address
) -> tuple[PlannedLaunch, ...]:
    """Return the launches that pack the operand at `source` into memory at `target`.

    The first `STATUS_BYTES` at `target` must be zero when they start.
    """
    at = {name: target + offset for name, offset in packed.offsets.items()}
    results = {name: at[name] for name in ("out", "unscale", "risk", "status")}
    found = {
        "x": source,
        "vectors": operand.vectors,
        "depth": operand.depth,
        "ldx": operand.ld,
        "batch_x": operand.batch_stride,
    }
    args = {**found, **results, "pitch": packed.pitch}
    block = (32 * PACK_WARPS, 1, 1)
    if operand.k_major:
        warps = PACK_WARPS if operand.depth > packed.arch.long else 1
        config = PackConfig(packed.scheme, packed.first, warps, fours=8)
        grid = (ceil_div(operand.vectors * config.warps, PACK_WARPS), operand.batch, 1)
        return (PlannedLaunch("pack_k_major", config, grid, block, args, arch=packed.arch),)
    if not packed.deep:
        config = next(config for config in packed.arch.clusters if operand.depth <= config.deepest)
        config = replace(config, scheme=packed.scheme, first=packed.first)
        strips = ceil_div(operand.vectors, STRIP)
        grid, block = (strips * config.cluster, operand.batch, 1), (config.threads, 1, 1)
        rest = (), config.cluster, 0, packed.arch
        return (PlannedLaunch("pack_mn_major", config, grid, block, args, *rest),)
    config = PackConfig(packed.scheme, packed.first)
    grid = (ceil_div(operand.vectors, DEEP_STRIP), packed.chunks, operand.batch)
    chunks = {"peaks": at["peaks"], "chunk": packed.chunk}
    find = {**found, "risk": at["risk"], **chunks}
    arch, any_part = packed.arch, PackConfig(packed.scheme)
    return (
        PlannedLaunch("find_peaks", any_part, grid, block, find, arch=arch),
        PlannedLaunch("pack_mn_major_deep", config, grid, block, {**args, **chunks}, arch=arch),
    )


@dataclass(frozen=True)
class Product:
    """C = alpha · A · B + beta · C, with C row-major and its rows `ldc` elements apart."""

    m: int
    n: int
    k: int
    ldc: int
    batch: int = 1
    batch_c: int = 0
    alpha: float = 1.0
    beta: float = 0.0


def multiply(
    product: Product,
    tile: TileConfig,
    a: Packed,
    b: Packed,
    addresses: Addresses,
    sms: int,
    risk: tuple[int, int] = (0, 2**64 - 1),
    totals: Address = 0,
    bases: tuple[Address, Address] | None = None,
) -> tuple[PlannedLaunch, ...]:
    """Return the launches that multiply packed operands.

    addresses: of the packed A, the packed B, and C. totals: address of `totals_bytes` bytes. The
    kernels return at once unless the number of elements at risk lies in `risk`, ends included.
    bases: the packed operands whose exponents and counts apply, if not A and B themselves. If k is
    very large, each launch covers a segment of it and adds to C, which limits the number of
    rounded additions per sum.
    """
    assert a.first == "nearest" or a.first != b.first, "first parts of a and b rounded one way"
    at_a, at_b, at_c = addresses
    base_a, base_b = bases or (at_a, at_b)
    blocks = _blocks(product, tile, sms)
    launches = []
    for first, depth in segments(product.k):
        maps = (_map(tile.a_copy, a, at_a, first, depth), _map(tile.b_copy, b, at_b, first, depth))
        args = {
            "c": at_c,
            "unscale_a": base_a + a.offsets["unscale"],
            "unscale_b": base_b + b.offsets["unscale"],
            "status_a": base_a + a.offsets["status"],
            "status_b": base_b + b.offsets["status"],
            "totals_c": totals,
            "m": product.m,
            "n": product.n,
            "k": depth,
            "batch": product.batch,
            "ldc": product.ldc,
            "batch_c": product.batch_c,
            "item_stride_a": int(a.batch > 1),
            "item_stride_b": int(b.batch > 1),
            "alpha": product.alpha,
            "beta": 1.0 if first else product.beta,
            "least_risk": risk[0],
            "most_risk": risk[1],
        }
        grid, block = (blocks, 1, 1), (tile.threads, 1, 1)
        rest = maps, tile.cluster, tile.smem_bytes, a.arch
        launches.append(PlannedLaunch("multiply_packed", tile, grid, block, args, *rest))
    return tuple(launches)


def totals_bytes(product: Product, tile: TileConfig, sms: int) -> int:
    """Bytes of device memory for totals. It need not be initialized."""
    return _blocks(product, tile, sms) * tile.totals_bytes if product.k > tile.total_k else 0


def _blocks(product: Product, tile: TileConfig, sms: int) -> int:
    """The blocks of the persistent kernel."""
    down = ceil_div(product.m, tile.block_m * tile.cluster)
    clusters = down * ceil_div(product.n, tile.block_n) * product.batch
    return min(clusters, sms // tile.cluster) * tile.cluster


def segments(k: int) -> list[tuple[int, int]]:
    """First element and length of the segment of k that each launch covers."""
    launches = min(ceil_div(k, _DEEPEST), _MOST_SEGMENTS)
    length = ceil_div(k, launches * LINE) * LINE
    return [(first, min(length, k - first)) for first in range(0, k, length)]


def _map(copy: CopyBox, packed: Packed, address: Address, first: int, depth: int) -> Map:
    """The tensor map of a packed operand's parts for a segment of k."""
    line = 2 * packed.pitch  # bytes
    return Map(
        copy,
        address + packed.offsets["out"] + first * (2 if packed.k_major else line),
        (
            depth if packed.k_major else packed.length,
            packed.lines if packed.k_major else depth,
            packed.batch * packed.scheme.parts,
        ),
        (line, line * packed.lines),
    )


def repair(
    product: Product,
    a: Operand,
    b: Operand,
    packed: tuple[Packed, Packed],
    addresses: Addresses,
    workspaces: Addresses,
    sms: int,
    clear: int = 3,
) -> PlannedLaunch:
    """Return the launch that repairs non-finite rows and columns of C, the last of a product.

    addresses: of A, B and C. workspaces: of packed A, packed B, and a report of `REPORT_BYTES`,
    zeroed before its first use. clear: bit 0 clears the counts of A, bit 1 those of B, for operands
    that the next product packs again.
    """
    at_a, at_b, report = workspaces
    args = {
        "a": addresses[0],
        "b": addresses[1],
        "c": addresses[2],
        "risk_a": at_a + packed[0].offsets["risk"],
        "risk_b": at_b + packed[1].offsets["risk"],
        "status_a": at_a + packed[0].offsets["status"],
        "status_b": at_b + packed[1].offsets["status"],
        "report": report,
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "batch": product.batch,
        "row_a": a.ld if a.k_major else 1,
        "col_a": 1 if a.k_major else a.ld,
        "row_b": 1 if b.k_major else b.ld,
        "col_b": b.ld if b.k_major else 1,
        "ldc": product.ldc,
        "batch_a": a.batch_stride if a.batch > 1 else 0,
        "batch_b": b.batch_stride if b.batch > 1 else 0,
        "batch_c": product.batch_c,
        "alpha": product.alpha,
        "clear": clear,
    }
    tiles = ceil_div(product.m, REPAIR_TILE) * ceil_div(product.n, REPAIR_TILE) * product.batch
    grid, block, arch = (min(tiles, sms), 1, 1), (256, 1, 1), packed[0].arch
    return PlannedLaunch("repair_non_finite", None, grid, block, args, arch=arch)


def choose_tile(product: Product, a: Packed, b: Packed, sms: int) -> TileConfig:
    """Return the tile with the least predicted time on a GPU with `sms` multiprocessors.

    Short chains drift half as far as long ones. `bf16x6` always has short chains: its terms may be
    so unequal that a chain reaches its full size, and truncates, from its first step on. It also
    has totals, so that behind a large term only the additions of one `total_k` of k round. In
    `fp16x3` short chains rule out the widest tile, which gains more the larger the product; for
    long chains, `Packed.first` offsets the drift. The choice depends on k alone, because an operand
    can be packed before its product is known.
    """
    tiles = _tiles(a, b, product.k)
    return min(tiles, key=lambda tile: predicted_clocks(product, tile, sms, a.arch))


def predicted_clocks(product: Product, tile: TileConfig, sms: int, arch: Architecture) -> int:
    """Predicted clocks of the multiplication: rounds of tiles, times k-tiles per round."""
    down = ceil_div(product.m, tile.block_m * tile.cluster)
    clusters = down * ceil_div(product.n, tile.block_n) * product.batch
    rounds = ceil_div(clusters, sms // tile.cluster)
    steps = ceil_div(product.k, LINE)
    return rounds * (steps * arch.step_clocks[tile.block_n] + arch.round_clocks)


def _promote_k(scheme: Scheme, k: int) -> int:
    """The length of chains in a product of depth k."""
    return 32 if scheme.short_k is None or k <= scheme.short_k else LINE


def _tiles(a: Packed, b: Packed, k: int) -> Iterator[TileConfig]:
    promote_k = _promote_k(a.scheme, k)
    for block_n, stages in a.arch.stages.items():
        for cluster in (2, 1) if block_n // 2 * (1 + LINE // promote_k) <= MAX_SUMS else ():
            yield TileConfig(
                scheme=a.scheme,
                a_major="k" if a.k_major else "mn",
                b_major="k" if b.k_major else "mn",
                block_n=block_n,
                stages=stages,
                cluster=cluster,
                promote_k=promote_k,
                total_k=a.scheme.total_k,
            )
