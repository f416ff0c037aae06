"""Matrices distributed over the registers of a warp: ldmatrix, stmatrix, movmatrix, mma.sync.

Lane l has group g = l / 4 and position t = l % 4 in the group. A register holds e consecutive
elements along one axis of a matrix (PTX ISA, "Warp Level Matrix Instructions"). One formula covers
all shapes and types. Let A have 8·h rows, and write register number r = half + h·part. Element i of
register r is in row g + 8·half and column i + e·t + 4·e·part of A. For B, exchange rows and
columns. An accumulator has 8·h rows; each lane holds its columns 2·t and 2·t + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.emulator.arithmetic import tensor_core
from gemmlab.emulator.arithmetic.doubles import fused
from gemmlab.emulator.arithmetic.formats import FORMATS, narrow, widen
from gemmlab.emulator.arithmetic.lanes import WARP, Extent, Mask, Value, three_axes
from gemmlab.emulator.memory.chunk import offsets_of
from gemmlab.emulator.memory.spaces import SharedSpace
from gemmlab.emulator.observer import observed
from gemmlab.emulator.program import Access

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "f32": 32, "s32": 32, "f64": 64}
INTEGERS = ("s8", "u8", "s4", "u4")
BITS |= {"s8": 8, "u8": 8, "s4": 4, "u4": 4}


def per_register(type_: str) -> int:
    """Elements in a register, which has 32 bits, or 64 bits for f64."""
    return max(1, 32 // BITS[type_])


@dataclass(frozen=True)
class Shape:
    """The shape and element types of an mma: D (m, 8) = A (m, k) · B (k, 8) + C (m, 8)."""

    m: int
    k: int
    d: str
    a: str
    b: str
    c: str

    def registers(self, rows: int, columns: int, type_: str) -> int:
        """Registers per lane of a matrix."""
        return rows * columns // (WARP * per_register(type_))

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Registers per lane of D, A, B and C."""
        m, k = self.m, self.k
        return (
            self.registers(m, 8, self.d),
            self.registers(m, k, self.a),
            self.registers(k, 8, self.b),
            self.registers(m, 8, self.c),
        )


# Shapes (m, k) that Hopper supports, by type of A.
DEPTHS = {
    "f16": {(16, 8), (16, 16)},
    "tf32": {(16, 4), (16, 8)},
    "s8": {(8, 16), (16, 16), (16, 32)},
    "s4": {(8, 32), (16, 32), (16, 64)},
    "f64": {(8, 4), (16, 4), (16, 8), (16, 16)},
}
DEPTHS |= {"bf16": DEPTHS["f16"], "u8": DEPTHS["s8"], "u4": DEPTHS["s4"]}


def mma(
    shape: Shape,
    extent: Extent,
    a: Sequence[Value],
    b: Sequence[Value],
    c: Sequence[Value],
    saturate: bool,
) -> list[np.ndarray]:
    """mma.sync: the registers of D, each of shape (blocks, warps, 32)."""
    left = operand(a, shape.a, shape.m // 8, extent)[:, :, None]  # (k, m, 1, warps)
    right = operand(b, shape.b, 1, extent)[:, None]  # (k, 1, 8, warps)
    start = accumulator(c, shape.c, shape.m // 8, extent)  # (m, 8, warps)
    return scatter(multiply(shape, left, right, start, saturate), extent)


def multiply(
    shape: Shape, left: np.ndarray, right: np.ndarray, start: np.ndarray, saturate: bool
) -> np.ndarray:
    """D = left·right + start, in the register type of D: (m, n, warps).

    left: (k, m, 1, warps), right: (k, 1, n, warps), start: (m, n, warps); float64 or int64.
    saturate: clamp integer results to int32 instead of wrapping.
    """
    if shape.a == "f64":
        for x, y in zip(left, right, strict=True):
            start = fused(x, y, start)
        return start
    if shape.d == "s32":
        for x, y in zip(left, right, strict=True):
            start = start + x * y
        if saturate:
            start = np.clip(start, -(1 << 31), (1 << 31) - 1)
        whole: np.ndarray = start.astype(np.int32)
        return whole
    result = tensor_core.F32 if shape.d == "f32" else tensor_core.F16
    total = tensor_core.dot(left, right, start, FORMATS[shape.a], result)
    if shape.d == "f32":
        nan = np.uint32(0x7FFFFFFF).view(np.float32)
        return np.where(np.isnan(total), nan, total.astype(np.float32))
    return narrow(total, "f16")


def elements(register: Value, type_: str, extent: Extent) -> np.ndarray:
    """The elements of one register: (blocks · warps, 8, 4, e), float64 or int64."""
    bits = np.ascontiguousarray(np.broadcast_to(three_axes(register), extent.shape))
    lanes = bits.reshape(-1, 8, 4, 1)
    match type_:
        case "f32" | "f64":
            return lanes.astype(np.float64)
        case "s8" | "u8" | "s32":
            kind = {"s8": np.int8, "u8": np.uint8, "s32": np.int32}[type_]
            return lanes.view(kind).astype(np.int64)
        case "s4" | "u4":
            nibbles = lanes.view(np.uint32) >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)
            numbers = nibbles.astype(np.int64)
            return numbers if type_ == "u4" else (numbers ^ 8) - 8
    storage = np.dtype(f"u{BITS[type_] // 8}")
    values: np.ndarray = widen(lanes.view(np.uint32).view(storage), type_).astype(np.float64)
    return values


def operand(registers: Sequence[Value], type_: str, halves: int, extent: Extent) -> np.ndarray:
    """Gather A as (k, rows, warps), or B as (k, columns, warps). halves: rows / 8; 1 for B."""
    return arrange_operand(np.stack([elements(r, type_, extent) for r in registers]), halves)


def accumulator(registers: Sequence[Value], type_: str, halves: int, extent: Extent) -> np.ndarray:
    """Gather C as (rows, 8, warps). halves: rows / 8."""
    return arrange_accumulator(np.stack([elements(r, type_, extent) for r in registers]), halves)


# The register layouts of both tiers. The native tier arranges the numbers of the elements, which
# gives the place of each.


def arrange_operand(elements: np.ndarray, halves: int) -> np.ndarray:
    """The elements of a lane's registers, (registers, warps, 8, 4, e), as A (k, rows, warps) or B
    (k, columns, warps)."""
    parts = elements.reshape(-1, halves, *elements.shape[1:])
    ordered = parts.transpose(0, 4, 5, 1, 3, 2)  # (part, t, i, half, g, warp)
    return ordered.reshape(-1, 8 * halves, elements.shape[1])


def arrange_accumulator(elements: np.ndarray, halves: int) -> np.ndarray:
    """The elements of a lane's registers, as above, as C or D (rows, 8, warps)."""
    columns = elements.transpose(0, 4, 1, 2, 3).reshape(halves, 2, *elements.shape[1:4])
    return columns.transpose(0, 3, 4, 1, 2).reshape(8 * halves, 8, -1)


def scatter(matrix: np.ndarray, extent: Extent) -> list[np.ndarray]:
    """The inverse of `arrange_accumulator`: D (rows, 8, warps) to registers, which hold two 16-bit
    elements or one larger one."""
    lanes = matrix.reshape(-1, 8, 4, 2, matrix.shape[2])  # (half, g, t, column, warp)
    ordered = np.ascontiguousarray(lanes.transpose(0, 4, 1, 2, 3))
    if matrix.dtype.itemsize == 2:
        return [x.reshape(extent.shape) for x in ordered.view(np.uint32)[..., 0]]
    return [x[..., column].reshape(extent.shape) for x in ordered for column in range(2)]


# 8×8 matrices of 16-bit elements


def to_lanes(matrices: np.ndarray, transposed: bool) -> np.ndarray:
    """(…, 8, 8) to (…, 32): each lane holds two adjacent elements of a row, or of a column if
    `transposed`."""
    rows = np.ascontiguousarray(np.swapaxes(matrices, -1, -2) if transposed else matrices)
    return rows.view(np.uint32).reshape(*matrices.shape[:-2], WARP)


def to_matrices(lanes: np.ndarray, transposed: bool) -> np.ndarray:
    """The inverse of `to_lanes`."""
    rows = np.ascontiguousarray(lanes).view(np.uint16).reshape(*lanes.shape[:-1], 8, 8)
    return np.swapaxes(rows, -1, -2) if transposed else rows


def move(register: Value, extent: Extent) -> np.ndarray:
    """movmatrix: transpose the 8×8 matrix in a register."""
    lanes = np.broadcast_to(three_axes(register), extent.shape)
    return to_lanes(to_matrices(lanes, False), True)


class MatrixSpace(SharedSpace):
    """Shared memory for ldmatrix and stmatrix. Lane 8·j + i has the address of row i (16 bytes) of
    matrix j."""

    def load_matrices(
        self, access: Access, address: Value, count: int, transposed: bool, mask: Mask | None
    ) -> list[np.ndarray]:
        """ldmatrix. Returns one register per matrix."""
        warps, addressing = self._lanes(count, mask)
        (rows,) = self.load(access, address, addressing)
        rows = rows.reshape(-1, count, 8, 8)
        registers = np.zeros((count, *self.chunk.extent.shape), np.uint32)
        registers[:, warps] = np.moveaxis(to_lanes(rows, transposed), 1, 0)
        return list(registers)

    def store_matrices(
        self,
        access: Access,
        address: Value,
        registers: Sequence[Value],
        transposed: bool,
        mask: Mask | None,
    ) -> None:
        warps, addressing = self._lanes(len(registers), mask)
        held = [self.chunk.spread(three_axes(r))[warps] for r in registers]
        rows = to_matrices(np.stack(held, axis=1), transposed)
        self.store(access, address, (rows.reshape(-1, 8),), addressing)

    @observed
    def load(self, access: Access, address: Value, mask: Mask | None) -> tuple[Value, ...]:
        """The row at the address of each active lane, as one array: (lanes, 8) uint16."""
        return (self.data.view(np.uint16)[self._rows(access, address, mask)],)

    @observed
    def store(
        self, access: Access, address: Value, values: Sequence[Value], mask: Mask | None
    ) -> None:
        """The inverse of `load`. values: one array of rows."""
        (self.data.view(np.uint16)[self._rows(access, address, mask)],) = values

    def _lanes(self, count: int, mask: Mask | None) -> tuple[np.ndarray, Mask]:
        """The active warps, and their lanes that have the address of a row."""
        extent = self.chunk.extent
        on = np.ones(extent.shape, bool) if mask is None else mask.array
        warps = np.asarray(on.any(axis=2))
        return warps, Mask(warps[..., None] & (np.arange(WARP) < 8 * count), extent)

    def _rows(
        self, access: Access, address: Value, mask: Mask | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Check and count an access. Returns block and element indices of the rows. Eight rows form
        one phase, for loads as for stores; phases do not merge."""
        block, first = self._general(access, offsets_of(access, address), mask, is_load=False)
        return block[:, None], first[:, None] + np.arange(8)
