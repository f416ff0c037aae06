"""wmma: matrix products on fragments with an opaque register layout (PTX ISA, "Warp-level Matrix
Instructions: wmma").

PTX does not define which lane holds which element, so programs cannot depend on it. The emulator
has the layout of the machine code of sm_80 and later, which is that of mma.sync (`matrices.py`): a
lane holds runs of elements along k, or along a row of C and D. Two differences make more runs
contiguous: for 16-bit elements of A and B, runs follow the order in memory, because the machine
code transposes them after the load; for m8n32, it computes the transposed product. A run that is
not contiguous takes an access per element. From shared memory, hardware may load several runs in
one request. If a fragment has more register positions than elements, the elements repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import WARP, Extent, Mask, Value, three_axes
from gemmlab.emulator.memory import addresses
from gemmlab.emulator.memory.chunk import Chunk, offsets_of
from gemmlab.emulator.program import Access
from gemmlab.emulator.tensor_cores.matrices import BITS, Shape, elements, multiply, per_register
from gemmlab.errors import EmulationError, MisalignedAddressError


@dataclass(frozen=True)
class Fragment:
    """A matrix operand distributed over the registers of a warp. matrix: "a", "b", "c" or "d"."""

    matrix: str
    rows: int
    columns: int
    type_: str
    registers: int  # per lane
    is_row_major: bool = True  # in memory

    @property
    def run(self) -> int:
        """Consecutive elements of a lane."""
        return self.per_register if self.matrix in "ab" else 2

    @property
    def runs_down(self) -> bool:
        """Whether runs are parts of columns."""
        if self.matrix in "cd":
            return self.columns > self.rows
        return not self.is_row_major if BITS[self.type_] == 16 else self.matrix == "b"

    @property
    def together(self) -> int:
        """Elements of an access: a run if it is contiguous in memory."""
        return self.run if self.is_row_major != self.runs_down else 1

    @property
    def count(self) -> int:
        """Distinct elements per lane."""
        return self.rows * self.columns // WARP

    @property
    def per_register(self) -> int:
        """Elements per register."""
        return per_register(self.type_)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of an element in memory."""
        return np.dtype({"f32": "f4", "s32": "i4", "f64": "f8"}.get(self.type_, self._bits))

    @property
    def register_dtype(self) -> np.dtype:
        return self.dtype if self.dtype.itemsize >= 4 else np.dtype("u4")

    @property
    def _bits(self) -> str:
        return f"u{BITS[self.type_] // 8}"

    @property
    def alignment(self) -> int:
        """Required alignment in bytes of each row (each column if column-major): 16 bytes, or the
        length of the row if it is shorter."""
        row = self.columns if self.is_row_major else self.rows
        return min(CHUNK, row * self.dtype.itemsize)

    def excess_bits(self, nbytes: Value) -> Value:
        """The low bits that make an address or a stride misaligned."""
        return addresses.excess_bits(nbytes, self.alignment)

    @property
    def places(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each access of a lane: the row and the place in the row of its first element, per
        lane. If the matrix is column-major in memory: its column, and its place in the column."""
        lanes = np.arange(WARP * self.count).reshape(1, WARP, -1)
        numbers = arrange(lanes, self)[..., 0]
        order = np.argsort(numbers, axis=None).reshape(WARP, self.count)[:, :: self.together]
        found = [np.divmod(x, self.columns) for x in order.T]
        return found if self.is_row_major else [(column, row) for row, column in found]

    def offsets(self, stride: Value) -> list[np.ndarray]:
        """Byte offsets of each lane's accesses from the start of the matrix, one array per access.

        stride: in elements, between rows (between columns if column-major).
        """
        wide = three_axes(stride).astype(np.int64)
        return [(far * wide + near) * self.dtype.itemsize for far, near in self.places]


def load(
    f: Fragment, space: Any, access: Access, address: Value, stride: Value, mask: Mask | None
) -> list[Value]:
    """wmma.load: the registers of a fragment. address, stride: of the matrix, stride in elements.

    Raises EmulationError.
    """
    _check_alignment(f, space.chunk, access, address, stride, mask)
    found = [
        element
        for x in f.offsets(stride)
        for element in space.load(access, address + x.astype(address.dtype), mask)
    ]
    places = [found[k % f.count] for k in range(f.registers * f.per_register)]
    if f.per_register == 1:
        return places
    groups = [places[k : k + f.per_register] for k in range(0, len(places), f.per_register)]
    words = [np.stack(np.broadcast_arrays(*map(three_axes, g)), axis=-1) for g in groups]
    return [np.ascontiguousarray(w).view(np.uint32)[..., 0] for w in words]


def store(
    f: Fragment,
    space: Any,
    access: Access,
    address: Value,
    registers: Sequence[Value],
    stride: Value,
    mask: Mask | None,
    extent: Extent,
) -> None:
    """wmma.store: write a fragment to memory. address, stride: as in `load`.

    Raises EmulationError.
    """
    _check_alignment(f, space.chunk, access, address, stride, mask)
    whole = [np.ascontiguousarray(np.broadcast_to(three_axes(r), extent.shape)) for r in registers]
    parts = [r.view(f.dtype).reshape(*extent.shape, -1) for r in whole]
    values = [part[..., k] for part in parts for k in range(part.shape[-1])]
    runs = [tuple(values[k : k + f.together]) for k in range(0, f.count, f.together)]
    for run, offset in zip(runs, f.offsets(stride), strict=True):
        space.store(access, address + offset.astype(address.dtype), run, mask)


def _check_alignment(
    f: Fragment, chunk: Chunk, access: Access, address: Value, stride: Value, mask: Mask | None
) -> None:
    step, on = f.alignment, np.True_ if mask is None else mask.array
    start, far = offsets_of(access, address), three_axes(stride).astype(np.int64)
    bad = f.excess_bits(start) != 0
    if (bad & on).any():
        message = f"address of a matrix is not a multiple of {step} bytes"
        chunk.report(MisalignedAddressError, message, access, bad, start, mask)
    bad = f.excess_bits(far * f.dtype.itemsize) != 0
    if (bad & on).any():
        first = int(chunk.spread(far)[chunk.spread(bad & on)][0])
        message = (
            f"illegal stride of {first} elements: for {f.type_} it must be a multiple of "
            f"{step // f.dtype.itemsize} ({step} bytes)"
        )
        chunk.report(EmulationError, message, access, bad, start, mask)


def mma(
    shape: Shape,
    fragments: tuple[Fragment, Fragment, Fragment, Fragment],
    extent: Extent,
    a: Sequence[Value],
    b: Sequence[Value],
    c: Sequence[Value],
    saturate: bool,
) -> list[np.ndarray]:
    """wmma.mma: the registers of D = A·B + C. fragments: those of D, A, B and C."""
    of_d, of_a, of_b, of_c = fragments
    left = _matrix(of_a, a, extent).transpose(1, 0, 2)[:, :, None]  # (k, m, 1, warps)
    right = _matrix(of_b, b, extent)[:, None]  # (k, 1, n, warps)
    result = multiply(shape, left, right, _matrix(of_c, c, extent), saturate)
    words = np.ascontiguousarray(scatter(result, of_d)).view(of_d.register_dtype)
    return [words[..., k].reshape(extent.shape) for k in range(of_d.registers)]


def _matrix(f: Fragment, registers: Sequence[Value], extent: Extent) -> np.ndarray:
    """The matrix in a fragment: (rows, columns, warps), float64 or int64."""
    parts = [elements(r, f.type_, extent).reshape(-1, WARP, f.per_register) for r in registers]
    return arrange(np.concatenate(parts, axis=2)[..., : f.count], f)


def arrange(elements: np.ndarray, f: Fragment) -> np.ndarray:
    """The elements of each lane, (warps, 32, count), as a matrix (rows, columns, warps).

    A rule of both tiers; see matrices.arrange_operand.
    """
    long = f.columns if f.runs_down else f.rows  # the axis across runs
    parts = elements.reshape(-1, 8, 4, f.count * 8 // (long * f.run), long // 8, f.run)
    cells = parts.transpose(4, 1, 3, 2, 5, 0).reshape(long, -1, len(elements))
    return cells.swapaxes(0, 1) if f.runs_down else cells


def scatter(matrix: np.ndarray, f: Fragment) -> np.ndarray:
    """The elements of each lane, (warps, 32, count), of an accumulator (rows, columns, warps)."""
    cells = matrix.swapaxes(0, 1) if f.runs_down else matrix
    parts = cells.reshape(len(cells) // 8, 8, -1, 4, f.run, matrix.shape[2])
    return parts.transpose(5, 1, 3, 2, 0, 4).reshape(-1, WARP, f.count)
