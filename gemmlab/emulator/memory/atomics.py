"""Atomic memory updates by many lanes at once. Lanes with equal addresses update in lane order.

Hardware does not define the order. It affects the old values that lanes receive, and the rounding
of floating-point sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gemmlab.emulator.arithmetic import halves
from gemmlab.emulator.arithmetic import numerics as n
from gemmlab.emulator.arithmetic.lanes import Extent, Mask, Value, expand, three_axes

Operation = Callable[..., Value]  # (old value, *operands) -> new value


def increment(old: Value, limit: Value) -> Value:
    """inc: count up to `limit`, then wrap to 0."""
    return np.where(old >= limit, limit & limit.dtype.type(0), old + old.dtype.type(1))


def decrement(old: Value, limit: Value) -> Value:
    """dec: count down to 0, then wrap to `limit`."""
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def add_flushed(old: Value, value: Value) -> Value:
    """Float32 addition as L2 performs it: subnormal inputs and results are flushed to zero."""
    return n.flush(n.add32(n.flush(old), n.flush(value)))


def exchange(_old: Value, value: Value) -> Value:
    return value


def compare_and_swap(old: Value, expected: Value, value: Value) -> Value:
    return np.where(old == expected, value, old)


# 16-bit floating-point types, scalar and packed; their operations are add, min and max.
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
# operation -> [(PTX types, function)]
OPERATIONS: dict[str, list[tuple[tuple[str, ...], Operation]]] = {
    "add": [(("u32", "s32", "u64", "f64"), np.add), (("f32",), n.add32)],
    "min": [(("u32", "s32", "u64", "s64"), np.minimum)],
    "max": [(("u32", "s32", "u64", "s64"), np.maximum)],
    "and": [(("b32", "b64"), np.bitwise_and)],
    "or": [(("b32", "b64"), np.bitwise_or)],
    "xor": [(("b32", "b64"), np.bitwise_xor)],
    "inc": [(("u32",), increment)],
    "dec": [(("u32",), decrement)],
    "exch": [(("b32", "b64"), exchange)],
    "cas": [(("b16", "b32", "b64"), compare_and_swap)],
}


def find_operation(name: str, type_: str, space: str) -> Operation | None:
    """The function of an atom or red instruction; None if PTX or the emulator lacks it."""
    if (name, type_, space) == ("add", "f32", "global"):
        return add_flushed
    if type_ in HALVES and name in ("add", "min", "max"):
        return partial(halves.compute, name, type_, ())
    return next((f for types, f in OPERATIONS.get(name, ()) if type_ in types), None)


def update(
    cells: np.ndarray,
    index: np.ndarray,
    operation: Operation,
    operands: Sequence[Value],
    mask: Mask | None,
    extent: Extent,
    num_elements: int = 1,
) -> tuple[np.ndarray, ...]:
    """Update cells[index] for each active lane and return the old values.

    cells: flat. index: one per active lane, in lane order. A vector update applies to
    `num_elements` consecutive cells, one after another; `operands` has one value per element.
    """
    spread = [np.broadcast_to(three_axes(x), extent.shape) for x in operands]
    values = [x.reshape(-1) if mask is None else x[mask.array] for x in spread]
    found = (
        _in_order(cells, index + i, operation, values[i::num_elements]) for i in range(num_elements)
    )
    return tuple(x.reshape(extent.shape) if mask is None else expand(x, mask) for x in found)


def _in_order(
    cells: np.ndarray, index: np.ndarray, operation: Operation, values: list[np.ndarray]
) -> np.ndarray:
    order = np.argsort(index, kind="stable")
    grouped = index[order]
    starts = np.flatnonzero(np.concatenate([[True], grouped[1:] != grouped[:-1]]))
    sizes = np.diff(np.append(starts, len(order)))
    old = np.empty(len(index), cells.dtype)
    if operation is np.add and cells.dtype.kind != "f":
        # Integer sums wrap, so each lane's old value is a difference of prefix sums.
        before = np.cumsum(values[0][order], dtype=cells.dtype) - values[0][order]
        old[order] = cells[grouped] + before - np.repeat(before[starts], sizes)
        last = order[starts + sizes - 1]
        cells[index[last]] = old[last] + values[0][last]
        return old
    # Process the first lane of every address, then the second of every address, …
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    turns = np.split(order[np.argsort(rank, kind="stable")], np.cumsum(np.bincount(rank))[:-1])
    for lanes in turns:
        at = index[lanes]
        old[lanes] = cells[at]
        cells[at] = operation(old[lanes], *(x[lanes] for x in values))
    return old
