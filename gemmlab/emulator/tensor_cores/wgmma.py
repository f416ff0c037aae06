"""Warpgroup matrix products: wgmma.mma_async (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions").

Four warps multiply a 64×K tile A by a K×N tile B into 64×N accumulators; a row of K elements has 32
bytes. B is in shared memory, A in shared memory or registers. Each warp computes 16 rows
independently, so the code below works on warps, all of a chunk at once. The result is available
when the instruction completes; hardware guarantees it only after the wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, NoReturn

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic import tensor_core
from gemmlab.emulator.arithmetic.formats import FORMATS, values
from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, spread, three_axes
from gemmlab.emulator.arithmetic.tensor_core import E8M13, F16, F32
from gemmlab.emulator.copies.tensor_maps import swizzled_by
from gemmlab.emulator.launch.threads import Threads
from gemmlab.errors import EmulationError, OutOfBoundsError

ROWS, GROUP_WARPS = 16, 4  # rows of A per warp; warps per warpgroup
GROUP_ROWS = ROWS * GROUP_WARPS
ROW_BYTES = 32  # bytes of a tile row along k
# Batches of this many rows fit in a core's L2.
ROWS_AT_ONCE = 64

Places = tuple[np.ndarray, ...]  # block and warp number of each active warp


@dataclass(frozen=True)
class Product:
    """The static properties of a wgmma.mma_async instruction."""

    n: int
    result: str  # "f32", "f16" or "s32"
    a: str  # PTX type
    b: str
    scale_a: int = 1  # 1 or -1
    scale_b: int = 1
    transposes_a: bool = False  # A is M-major in shared memory
    transposes_b: bool = False  # B is N-major
    saturates: bool = False

    @property
    def num_registers(self) -> int:
        """Accumulator registers per thread."""
        return self.n // (4 if self.result == "f16" else 2)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype({"f32": "f4", "f16": "f2", "s32": "i4"}[self.result])


def multiply(
    p: Product, a: np.ndarray, b: np.ndarray, c: np.ndarray, is_exact: bool = True
) -> np.ndarray:
    """c + a·b with tensor core arithmetic, or in float32 if `is_exact` is False.

    a: (tiles, rows, K) and b: (tiles, N, K) in float64. c and the result: (tiles, rows, N) in the
    accumulator type.
    """
    a, b = a * p.scale_a, b * p.scale_b
    if p.result == "s32":
        total = (a @ b.transpose(0, 2, 1)).astype(np.int64) + c  # products and sums are exact
        if p.saturates:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        wrapped: np.ndarray = total.astype(np.int32)
        return wrapped
    if not is_exact:
        product = a.astype(np.float32) @ b.transpose(0, 2, 1).astype(np.float32)
        return np.asarray(product + c, p.dtype)
    is_fp8 = p.a in ("e4m3", "e5m2")
    bits = tensor_core.FP8_FRACTION_BITS if is_fp8 else tensor_core.FRACTION_BITS
    form = F16 if p.result == "f16" else E8M13 if is_fp8 else F32
    result = np.empty_like(c)
    step = max(1, ROWS_AT_ONCE // a.shape[1])
    for k in range(0, len(a), step):
        part = slice(k, k + step)
        left = np.ascontiguousarray(a[part].transpose(2, 0, 1))[:, :, :, None]
        right = np.ascontiguousarray(b[part].transpose(2, 0, 1))[:, :, None, :]
        before = c[part].astype(np.float64)
        result[part] = tensor_core.accumulate(left, right, before, FORMATS[p.a], form, bits)
    return result


def _to_registers(p: Product, tiles: np.ndarray) -> np.ndarray:
    """(warps, 16, N) to registers: (registers, warps, 32).

    In each group of 8 columns, lane 4·g + t holds columns 2·t and 2·t + 1 of rows g and g + 8.
    """
    parts = tiles.reshape(len(tiles), 2, 8, -1, 4, 2)  # row half, g, column group, t, column
    if p.result == "f16":
        together = np.ascontiguousarray(parts.transpose(3, 1, 0, 2, 4, 5)).view(np.uint32)
    else:
        together = np.ascontiguousarray(parts.transpose(3, 1, 5, 0, 2, 4))
    return together.reshape(p.num_registers, len(tiles), WARP)


@lru_cache(maxsize=512)
def chunk_offsets(rows: int, transposed: bool, descriptor: int) -> np.ndarray:
    """Unswizzled byte offsets of a tile's 16-byte chunks from its start.

    Shape (rows, 2); if `transposed`, (rows / 8, 16), where a chunk holds 8 rows at one k.
    """
    fields = Descriptor.of(np.uint64(descriptor))
    offsets: np.ndarray = chunk_offset(fields, transposed, *np.ogrid[: rows // 8, :8, :2])
    return offsets.swapaxes(1, 2).reshape(-1, 16) if transposed else offsets.reshape(-1, 2)


# Rules of both tiers. The native tier calls them with values of its IR.


class Descriptor(NamedTuple):
    """The fields of a matrix descriptor, as int64."""

    start: Value  # bytes, like the next two
    leading: Value
    stride: Value
    base: Value  # the 128-byte row, modulo 8, at which the swizzle pattern begins
    mode: Value  # 0: no swizzle; 1, 2, 3: patterns of 128, 64, 32 bytes

    @classmethod
    def of(cls, bits: Value) -> Descriptor:
        """Decode uint64."""

        def field(place: int, width: int) -> Value:
            return (bits >> np.uint64(place) & np.uint64((1 << width) - 1)).view(np.int64)

        start, leading, stride = (field(place, 14) * np.int64(CHUNK) for place in (0, 16, 32))
        return cls(start, leading, stride, field(49, 3), field(62, 2))

    @property
    def span(self) -> Value:
        """The bytes of a row of the swizzle pattern."""
        return np.where(self.mode == 0, np.int64(CHUNK), np.int64(256) >> self.mode)

    def swizzled(self, chunks: Value) -> Value:
        """Apply the swizzle to 16-byte chunk numbers."""
        return swizzled_by((self.span >> np.int64(4)) - np.int64(1), chunks, self.base)


def chunk_offset(of: Descriptor, transposes: Value, group: Value, x: Value, y: Value) -> Value:
    """The unswizzled byte offset of a 16-byte chunk from the start of a tile.

    group: of 8 rows. Chunk (x, y) of a group is half y of row x or, if `transposes`, 8 rows at
    k = 8·y + x.
    """
    leading, stride, mode, span = of.leading, of.stride, of.mode, of.span
    plain = mode == 0
    own = (group & ((span >> np.int64(4)) - np.int64(1))) * np.int64(CHUNK)
    shift = np.where(plain, np.int64(0), np.int64(4) - mode)
    in_column = np.where(plain, group * stride, (group >> shift) * leading + own)
    first = np.where(transposes, in_column, group * stride)
    by_row = np.where(plain, leading, np.int64(CHUNK))
    apart = np.where(transposes, np.where(plain, leading, stride), by_row)
    return first + x * span + y * apart


class Wgmma:
    """Executes wgmma for a chunk of blocks."""

    def __init__(self, threads: Threads, shared: np.ndarray) -> None:
        """shared: the shared memory of all blocks, (blocks, bytes)."""
        self.threads = threads
        self.shared = shared.reshape(threads.num_blocks, -1, CHUNK)

    def multiply(
        self,
        index: int,
        product: Product,
        accumulators: Sequence[Value],
        a: Value | Sequence[Value],
        b: Value,
        scale_d: Value,
        mask: Mask | None,
    ) -> Sequence[Value]:
        """wgmma.mma_async. Returns the new accumulators, each (blocks, warps, 32).

        a: a matrix descriptor or registers. b: a matrix descriptor. scale_d: False replaces the
        old accumulators by zeros.
        """
        if not self.threads.multiplies:
            return accumulators
        on = self.threads.active(mask)
        warps = on.any(axis=2)
        if not on[warps].all():
            message = "all lanes of a warp must execute wgmma together"
            self.threads.fault(EmulationError, message, index, on, np.zeros(on.shape))
        at = np.nonzero(warps)
        if isinstance(a, Sequence):
            left = values(self._rows_in_registers(a, at), product.a)
        else:
            part = (at[1] + self.threads.first_warp) % GROUP_WARPS
            left = self._tile(index, product.a, GROUP_ROWS, product.transposes_a, a, at, part)
        before = self._accumulators(product, accumulators, at)
        before[~self._of_warps(scale_d, at).astype(bool)] = 0
        together = self._sharing(b, at)  # consecutive warps that share one tile B
        first = tuple(x[::together] for x in at)
        right = self._tile(index, product.b, product.n, product.transposes_b, b, first)
        left, before = (x.reshape(-1, together * ROWS, x.shape[2]) for x in (left, before))
        after = multiply(product, left, right, before, self.threads.launch.exact_tensor)
        registers = _to_registers(product, after.reshape(-1, ROWS, product.n))
        if warps.all():
            return list(registers.reshape(len(registers), *on.shape))
        full = np.zeros((len(registers), *on.shape), registers.dtype)
        full[:, at[0], at[1]] = registers
        return list(full)

    def commit(self, mask: Mask | None) -> None:
        """wgmma.commit_group: has no effect, since results are already available."""
        for observer in self.threads.observers:
            observer.wgmma_committed(mask)

    def wait(self, most: int, mask: Mask | None) -> None:
        """wgmma.wait_group: has no effect. most: groups that may remain pending."""
        for observer in self.threads.observers:
            observer.wgmma_awaited(most, mask)

    def _of_warps(self, value: Value, at: Places) -> np.ndarray:
        """The value of each warp, given per lane and uniform in a warp."""
        shared: np.ndarray = np.broadcast_to(three_axes(value), self.threads.extent.shape)[(*at, 0)]
        return shared

    def _sharing(self, descriptor: Value, at: Places) -> int:
        """Number of consecutive warps that share one tile B: 4 if only full warpgroups with equal
        descriptors execute, else 1."""
        b = self._of_warps(descriptor, at)
        if len(b) % GROUP_WARPS or (at[1] % GROUP_WARPS != np.arange(len(b)) % GROUP_WARPS).any():
            return 1
        groups = b.reshape(-1, GROUP_WARPS)
        return GROUP_WARPS if (groups == groups[:, :1]).all() else 1

    def _rows_in_registers(self, a: Sequence[Value], at: Places) -> np.ndarray:
        """The rows of A in each warp's registers: (warps, 16, 32) bytes."""
        shape = self.threads.extent.shape
        words = [np.broadcast_to(three_axes(x), shape)[at] for x in a]
        # Register 2·c + r of lane 4·g + t holds bytes 16·c + 4·t to 16·c + 4·t + 3 of row 8·r + g.
        data = np.stack(words, axis=1).view(np.uint8).reshape(-1, 2, 2, 8, CHUNK)
        return data.transpose(0, 2, 3, 1, 4).reshape(-1, ROWS, ROW_BYTES)

    def _tile(
        self,
        index: int,
        type_: str,
        rows: int,
        transposed: bool,
        descriptor: Value,
        at: Places,
        part: np.ndarray | None = None,
    ) -> np.ndarray:
        """The tile at each warp's matrix descriptor: (warps, rows, K), float64.

        part: for each warp, which group of 16 rows to return; None returns all rows.
        """
        descriptors = self._of_warps(descriptor, at)
        start = Descriptor.of(descriptors).start
        layouts, layout_of = np.unique(descriptors & ~np.uint64(0xFFFF), return_inverse=True)
        tile_rows = rows // 8 if transposed else rows
        shape = tile_rows if part is None else tile_rows // GROUP_WARPS, 16 if transposed else 2
        chunks = np.empty((len(start), *shape), np.int64)
        for number, bits in enumerate(layouts.tolist()):
            selected = np.asarray(layout_of == number)
            tile = chunk_offsets(rows, transposed, bits)
            if part is not None:
                tile = tile.reshape(GROUP_WARPS, *shape)[part[selected]]
            addresses = start[selected, None, None] + tile
            layout = Descriptor.of(np.uint64(bits))
            chunks[selected] = layout.swizzled(addresses // CHUNK)
        outside = np.asarray((chunks >= self.shared.shape[1]).any(axis=(1, 2)))
        if outside.any():
            message = "the tile of a matrix descriptor ends past the end of shared memory"
            self._fail(index, OutOfBoundsError, message, at, outside)
        for observer in self.threads.observers:
            observer.wgmma_read(index, at, chunks)
        data = self.shared[at[0][:, None, None], chunks]
        if not transposed:
            return values(data.reshape(len(start), -1, ROW_BYTES), type_)
        tiles = values(data, type_).transpose(0, 1, 3, 2)
        return tiles.reshape(len(start), -1, tiles.shape[3])

    def _accumulators(self, p: Product, registers: Sequence[Value], at: Places) -> np.ndarray:
        """The accumulators of each warp: (warps, 16, N)."""
        shape = self.threads.extent.shape
        stacked = np.stack([spread(three_axes(x), shape)[at] for x in registers])
        if p.result == "f16":  # two elements per register
            parts = stacked.view(p.dtype).reshape(-1, 2, stacked.shape[1], 8, 4, 2)
        else:
            parts = np.moveaxis(stacked.reshape(-1, 2, 2, stacked.shape[1], 8, 4), 2, -1)
        return parts.transpose(2, 1, 3, 0, 4, 5).reshape(-1, ROWS, p.n)

    def _fail(
        self, index: int, error: type[EmulationError], message: str, at: Places, bad: np.ndarray
    ) -> NoReturn:
        lanes = np.zeros(self.threads.extent.shape, bool)
        lanes[at[0][bad], at[1][bad]] = True
        self.threads.fault(error, message, index, lanes, np.zeros(lanes.shape, np.int64))
