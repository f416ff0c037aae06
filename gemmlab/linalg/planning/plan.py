"""A product's plan: which kernels run, on what grids, with what memory. Arithmetic alone, no GPU.

    C (m, n) = alpha · A (m, k) · B (k, n) + beta · C, for each item of a batch

One launch or two convert each operand into a *packed* operand (`kernels.gemm.sm90.pack`). Then one
launch multiplies (`kernels.gemm.sm90.mainloop`), or several if k is very large. A packed operand
may be kept and used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import (
    BF16X6,
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
from gemmlab.linalg.arch import sm90

ALIGNMENT = 128  # bytes, of everything in a workspace
STATUS_BYTES = 16  # elements at risk and vectors that are not finite, 64 bits each
REPORT_BYTES = 24  # elements at risk and vectors that are not finite of the last product; a counter
_SHORT = 4096  # up to this k `fp16x3` has short chains; beyond, first parts rounded one way
_TOTAL = 1024  # of k, after which `bf16x6` moves its sums from registers to memory
_DEEPEST = 16384  # of k in one launch
_MOST_PARTS = 64  # launches, however deep


class Address(Protocol):
    """A place in device memory: a number, or a span of a device's buffer."""

    def __add__(self, nbytes: int, /) -> Address: ...


Addresses = tuple[Address, Address, Address]
Value = float | Address  # of a kernel's argument


@dataclass(frozen=True)
class Operand:
    """A float32 matrix in device memory, as rows of A or columns of B: `vectors` of `depth`.

    `along` says that the elements of a vector lie next to each other; `ld` elements lie between
    vectors then, and otherwise between the elements of one. `batch_stride` elements lie between
    the items of a batch.
    """

    vectors: int
    depth: int
    along: bool
    ld: int
    batch: int = 1
    batch_stride: int = 0


@dataclass(frozen=True)
class Packed:
    """Where a packed operand has what, in bytes from its start; see `kernels.gemm.sm90.pack`."""

    scheme: Scheme
    vectors: int
    depth: int
    along: bool
    batch: int = 1
    factor: str = "a"  # or "b"

    @property
    def first(self) -> str:
        """The way its first parts are rounded.

        Where chains are long, sums are cut off further and further. There a's first parts are
        rounded down and b's up: the rests have opposite signs, and the products of rests, which are
        left out, are as much below zero as sums lose.
        """
        if self.scheme.dtype != "float16" or self.depth <= _SHORT:
            return "nearest"
        return {"a": "down", "b": "up"}[self.factor]

    @property
    def lines(self) -> int:
        """Contiguous lines of one part of one item."""
        return self.vectors if self.along else self.depth

    @property
    def length(self) -> int:
        """Elements of a line."""
        return self.depth if self.along else self.vectors

    @property
    def pitch(self) -> int:
        """Elements from line to line."""
        return ceil_div(self.length, LINE) * LINE

    @property
    def padded(self) -> int:
        """Exponents of an item. A tile that goes on after the last reads what lies behind, which is
        "risk", and makes no use of it."""
        return ceil_div(self.vectors, VECTOR_PITCH) * VECTOR_PITCH

    @property
    def chunk(self) -> int:
        """Lines per block of a deep split: a multiple of 64, for at most 32 blocks."""
        return ceil_div(self.depth, 32 * 64) * 64

    @property
    def deep(self) -> bool:
        """Whether the split across vectors is that of `kernels.gemm.sm90.pack_deep`."""
        return not self.along and self.depth > sm90.CLUSTERS[-1].deepest

    @property
    def chunks(self) -> int:
        return ceil_div(self.depth, self.chunk) if self.deep else 0

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Bytes from the start to each part, and "end"."""
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
class Launch:
    """One kernel launch: everything but the compiled code.

    `args` are the kernel's arguments by name; `maps`, in order, come before them.
    """

    kernel: str  # a name of runtime/kernels.py
    config: PackConfig | TileConfig | None
    grid: Dim3
    block: Dim3
    args: Mapping[str, Value]
    maps: tuple[Map, ...] = ()
    cluster: int = 1
    dynamic_smem: int = 0


@dataclass(frozen=True)
class Map:
    """A tensor map: a tensor of 16-bit elements, and the box that a copy takes of it."""

    copy: CopyBox
    address: Address
    shape: tuple[int, int, int]  # elements: along a line, lines, parts of all items
    strides: tuple[int, int]  # bytes: from line to line, from part to part


def pack(operand: Operand, packed: Packed, source: Address, target: Address) -> tuple[Launch, ...]:
    """The launches that split the operand at address `source` into memory at `target`.

    The first `STATUS_BYTES` of the target must be zero when they start.
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
    if operand.along:
        warps = PACK_WARPS if operand.depth > sm90.LONG else 1
        config = PackConfig(packed.scheme, packed.first, warps, fours=8)
        grid = (ceil_div(operand.vectors * config.warps, PACK_WARPS), operand.batch, 1)
        return (Launch("pack_k_major", config, grid, block, args),)
    if not packed.deep:
        config = next(config for config in sm90.CLUSTERS if operand.depth <= config.deepest)
        config = replace(config, scheme=packed.scheme, first=packed.first)
        strips = ceil_div(operand.vectors, STRIP)
        grid, block = (strips * config.cluster, operand.batch, 1), (config.threads, 1, 1)
        return (Launch("pack_mn_major", config, grid, block, args, cluster=config.cluster),)
    config = PackConfig(packed.scheme, packed.first)
    grid = (ceil_div(operand.vectors, DEEP_STRIP), packed.chunks, operand.batch)
    chunks = {"peaks": at["peaks"], "chunk": packed.chunk}
    find = {**found, "risk": at["risk"], **chunks}
    return (
        Launch("find_peaks", PackConfig(packed.scheme), grid, block, find),
        Launch("pack_mn_major_deep", config, grid, block, {**args, **chunks}),
    )


@dataclass(frozen=True)
class Product:
    """C and what is made of it: alpha · A · B + beta · C, C row-major with rows `ldc` apart."""

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
) -> tuple[Launch, ...]:
    """The launches that multiply packed operands; `addresses` are those of A, B and C.

    The exponents and counts of A and B are those of the operands at `bases`, by default their own.
    At `totals` are `totals_bytes` for these sizes. The kernels do nothing unless the number of
    elements at risk lies in `risk`, ends included. Where k is very large each takes a part of it
    and adds to C: no sum gets too many terms then, which would round too often.
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
        sizes = tile.cluster, tile.smem_bytes
        launches.append(Launch("multiply_packed", tile, grid, block, args, maps, *sizes))
    return tuple(launches)


def totals_bytes(product: Product, tile: TileConfig, sms: int) -> int:
    """Device memory for totals; its contents do not matter before or after."""
    return _blocks(product, tile, sms) * tile.totals_bytes if product.k > tile.total_k else 0


def _blocks(product: Product, tile: TileConfig, sms: int) -> int:
    """That stay for all tiles of C."""
    down = ceil_div(product.m, tile.block_m * tile.cluster)
    clusters = down * ceil_div(product.n, tile.block_n) * product.batch
    return min(clusters, sms // tile.cluster) * tile.cluster


def segments(k: int) -> list[tuple[int, int]]:
    """First element and length of the parts of k that one launch after the other multiplies."""
    parts = min(ceil_div(k, _DEEPEST), _MOST_PARTS)
    length = ceil_div(k, parts * LINE) * LINE
    return [(first, min(length, k - first)) for first in range(0, k, length)]


def _map(copy: CopyBox, packed: Packed, address: Address, first: int, depth: int) -> Map:
    """The parts of a packed operand at `address`, from `first` on along k."""
    line = 2 * packed.pitch  # bytes
    return Map(
        copy,
        address + packed.offsets["out"] + first * (2 if packed.along else line),
        (
            depth if packed.along else packed.length,
            packed.lines if packed.along else depth,
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
) -> Launch:
    """The launch that computes rows and columns of C that are not finite, and ends a product.

    `addresses` are those of A, B and C, `workspaces` those of packed A, packed B and a report of
    `REPORT_BYTES`, zero before its first use. Counts of A (1) and of B (2) are cleared as `clear`
    says, for operands that are split again.
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
        "row_a": a.ld if a.along else 1,
        "col_a": 1 if a.along else a.ld,
        "row_b": 1 if b.along else b.ld,
        "col_b": b.ld if b.along else 1,
        "ldc": product.ldc,
        "batch_a": a.batch_stride if a.batch > 1 else 0,
        "batch_b": b.batch_stride if b.batch > 1 else 0,
        "batch_c": product.batch_c,
        "alpha": product.alpha,
        "clear": clear,
    }
    tiles = ceil_div(product.m, REPAIR_TILE) * ceil_div(product.n, REPAIR_TILE) * product.batch
    return Launch("repair_non_finite", None, (min(tiles, sms), 1, 1), (256, 1, 1), args)


def choose_tile(product: Product, a: Packed, b: Packed, sms: int) -> TileConfig:
    """The tile for a product on a GPU with that many multiprocessors: the least time predicted.

    Short chains drift half as far. `bf16x6` always has them: it is there for terms so unequal that
    a chain is cut off at its full size from the first of its steps on. And it has totals: behind a
    large term only the additions of its part round. `fp16x3` pays for short chains with the widest
    tile, which is worth more the larger the product; long ones have `Packed.first` against drift.
    Which it is depends on k alone, as an operand may be packed before its product is known.
    """
    tiles = _tiles(a, b, *_sums(a.scheme, product.k))
    return min(tiles, key=lambda tile: predicted_clocks(product, tile, sms))


def predicted_clocks(product: Product, tile: TileConfig, sms: int) -> int:
    """Of the multiplication: rounds of all multiprocessors, and for each of them its steps in k."""
    down = ceil_div(product.m, tile.block_m * tile.cluster)
    clusters = down * ceil_div(product.n, tile.block_n) * product.batch
    rounds = ceil_div(clusters, sms // tile.cluster)
    return rounds * (ceil_div(product.k, LINE) * sm90.STEP_CLOCKS[tile.block_n] + sm90.ROUND_CLOCKS)


def _sums(scheme: Scheme, k: int) -> tuple[int, int]:
    """`promote_k` and `total_k` of tiles for products that deep."""
    if scheme == BF16X6:
        return 32, _TOTAL
    return (32 if k <= _SHORT else 64), 0


def _tiles(a: Packed, b: Packed, promote_k: int, total_k: int) -> Iterator[TileConfig]:
    for block_n, stages in sm90.STAGES.items():
        for cluster in (2, 1) if block_n // 2 * (1 + LINE // promote_k) <= MAX_SUMS else ():
            yield TileConfig(
                scheme=a.scheme,
                a_major="k" if a.along else "mn",
                b_major="k" if b.along else "mn",
                block_n=block_n,
                stages=stages,
                cluster=cluster,
                promote_k=promote_k,
                total_k=total_k,
            )
