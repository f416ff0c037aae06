"""Shapes and strides of a product, by the rules of NumPy's matmul. No operand is read.

    a (…, m, k) times b (…, k, n) is (…, m, n)

A 1-D a is a row and a 1-D b a column; the result then lacks that axis. The axes before the last two
are a stack of matrices, and broadcast. Strides are in elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gemmlab.errors import ShapeError

Shape = tuple[int, ...]


@dataclass(slots=True)
class Sizes:
    """The sizes of a product."""

    m: int
    n: int
    k: int
    stack: Shape  # axes before the last two, broadcast
    has_rows: bool  # whether the result has an axis for m: a is not 1-D
    has_columns: bool  # and for n: b is not 1-D
    result: Shape = field(init=False)  # the shape of the result

    def __post_init__(self) -> None:
        rows, columns = (self.m,) * self.has_rows, (self.n,) * self.has_columns
        self.result = (*self.stack, *rows, *columns)

    @property
    def batch(self) -> int:
        """Matrices in the result."""
        return math.prod(self.stack)

    @property
    def matrices(self) -> Shape:
        """The shape of the result with the axes that 1-D operands leave out."""
        return (*self.stack, self.m, self.n)


@dataclass(slots=True)
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


class Stack(NamedTuple):
    """A stack of matrices in memory, `step` elements apart; 0 if there is only one."""

    rows: int
    columns: int
    row_stride: int
    column_stride: int
    batch: int = 1
    step: int = 0

    @property
    def transposed(self) -> Stack:
        return Stack(
            self.columns, self.rows, self.column_stride, self.row_stride, self.batch, self.step
        )

    @property
    def lines(self) -> tuple[bool, int] | None:
        """Whether rows are contiguous (else columns are), and elements from one to the next.

        None if neither are contiguous, or if they overlap.
        """
        rows, columns, row_stride, column_stride, *_ = self
        if columns <= 1 or column_stride == 1:
            if rows == 1:
                return True, columns
            if row_stride >= columns:
                return True, row_stride
        if rows <= 1 or row_stride == 1:
            if columns == 1:
                return False, rows
            if column_stride >= rows:
                return False, column_stride
        return None

    def operand(self) -> Operand | None:
        """The matrices as an operand to pack, by rows; None if they must be copied first."""
        lines = self.lines
        if lines is None or self.step < 0:
            return None
        k_major, ld = lines
        return Operand(self.rows, self.columns, k_major, ld, self.batch, self.step)


def multiply(a: Shape, b: Shape) -> Sizes:
    """Return the sizes of the product of arrays of these shapes. Raises ShapeError."""
    for name, shape in (("a", a), ("b", b)):
        if not shape:
            raise ShapeError(f"{name} is 0-D; matmul needs at least one axis, use * instead")
    (m, k), (rows, n) = _matrix(a, row=True), _matrix(b, row=False)
    if k != rows:
        raise ShapeError(
            f"a has shape {tuple(a)} and b has shape {tuple(b)}: "
            f"the last axis of a ({k}) must match the number of rows of b ({rows})"
        )
    stack = broadcast(a[:-2], b[:-2]) if len(a) > 2 or len(b) > 2 else ()
    if stack is None:
        raise ShapeError(
            f"a has shape {tuple(a)} and b has shape {tuple(b)}: "
            f"the stacks {tuple(a[:-2])} and {tuple(b[:-2])} do not broadcast"
        )
    return Sizes(m, n, k, stack, len(a) > 1, len(b) > 1)


def broadcast(*shapes: Shape) -> Shape | None:
    """Return the shape that these broadcast to by NumPy's rules; None if they do not."""
    rank = max(map(len, shapes))
    result = []
    for lengths in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True):
        others = [length for length in lengths if length != 1]
        if any(length != others[0] for length in others[1:]):
            return None
        result.append(others[0] if others else 1)
    return tuple(result)


def check_out(shape: Shape, product: Sizes) -> None:
    """Raise ShapeError unless an `out` of this shape has the shape of the product."""
    if tuple(shape) != product.result:
        raise ShapeError(f"out has shape {tuple(shape)}, the product has shape {product.result}")


def check_c(shape: Shape, product: Sizes) -> None:
    """Raise ShapeError unless a `c` of this shape broadcasts to the product."""
    if broadcast(shape, product.result) != product.result:
        rule = f"it must broadcast to the product's shape {product.result}"
        raise ShapeError(f"c has shape {tuple(shape)}: {rule}")


def stack_of(shape: Shape, strides: Shape, stack: Shape, row: bool) -> Stack | None:
    """Return an operand as a stack of matrices for a product with the stack axes `stack`.

    A 1-D operand is a row if `row`, else a column. None if the distance between matrices is not
    constant, e.g. if some axes broadcast and others do not.
    """
    if len(shape) == 1:
        vector = Stack(1, shape[0], shape[0], strides[0])
        return vector if row else vector.transposed
    if not stack:
        return Stack(*shape, *strides)
    lead = len(stack) - (len(shape) - 2)
    # A broadcast axis has stride 0.
    axes = [(length, 0) for length in stack[:lead]]
    for i, length in enumerate(stack[lead:]):
        axes.append((length, strides[i] if shape[i] == length else 0))
    axes = [axis for axis in axes if axis[0] != 1]
    matrix = Stack(shape[-2], shape[-1], strides[-2], strides[-1])
    if all(stride == 0 for _, stride in axes):
        return matrix
    for (_, outer), (length, inner_step) in pairwise(axes):
        if outer != length * inner_step:
            return None
    return matrix._replace(batch=math.prod(length for length, _ in axes), step=axes[-1][1])


def fold(
    a: Stack, b: Stack, c: Stack, d: Stack | None = None
) -> tuple[Stack, Stack, Stack, Stack | None]:
    """Merge the products of a stack with a single matrix into one product, if possible.

    c is the result, and d is added to it. The rows of each stack must be equally spaced across
    matrix boundaries.
    """
    if b.batch > 1 or a.batch == 1:
        return a, b, c, d
    given = [x for x in (a, c, d) if x is not None]
    if not all(x.rows == 1 or x.step == x.rows * x.row_stride for x in given):
        return a, b, c, d
    high_a, high_c, *high_d = (
        Stack(c.batch * x.rows, x.columns, x.step // x.rows, x.column_stride) for x in given
    )
    if high_a.operand() is None or high_c.lines is None or not high_c.lines[0]:
        return a, b, c, d
    return high_a, b, high_c, high_d[0] if high_d else None


def contiguous(shape: Shape) -> Shape:
    """Return the strides of a row-major array of that shape without gaps."""
    if len(shape) == 2:  # like most results, for which this takes a fifth of the time
        return shape[1], 1
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def extent(shape: Shape, strides: Shape) -> tuple[int, int]:
    """Return the offsets of the lowest element and one past the highest, from the address."""
    if 0 in shape:
        return 0, 0
    ends = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    return sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends) + 1


def overlaps_itself(shape: Shape, strides: Shape) -> bool:
    """Whether several elements of an array are at the same address."""
    pairs = zip(shape, strides, strict=True)
    axes = sorted((abs(stride), length) for length, stride in pairs if length != 1)
    if 0 in shape or not axes:
        return False
    # An axis that steps over all that the axes before it reach adds no element at their addresses.
    reached, clear = 0, True
    for stride, length in axes:
        clear &= stride > reached
        reached += stride * (length - 1)
    if clear:
        return False
    if axes[0][0] == 0 or math.prod(shape) > reached + 1:
        return True
    offsets = np.zeros(1, np.int64)
    for stride, length in axes:
        offsets = np.add.outer(stride * np.arange(length), offsets).ravel()
    return len(np.unique(offsets)) < len(offsets)


def _matrix(shape: Shape, row: bool) -> tuple[int, int]:
    if len(shape) == 1:
        return (1, shape[0]) if row else (shape[0], 1)
    return shape[-2], shape[-1]
