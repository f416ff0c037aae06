"""Memory traffic of softmax, layernorm, scan, conv2d and attention, as `traffic` counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gemmlab.hardware.formula import Quantity, ceil_div
from gemmlab.hardware.traffic import Model, Traffic, axes, sizes

TAPS = 5  # rows and columns of a filter
WEIGHTS = TAPS * TAPS
HALO = TAPS // 2
OUTSIDE = HALO * (HALO + 1)  # taps outside the image, of all results along an axis
DEPTH = 64  # elements of a query, a key and a value
_EXP = "an exp is several operations"


def passes(loads: int, operations: int, why: str) -> Model:
    """Rows are read in several passes: `loads` elements of all operands for each result.

    why: the reason for more operations than the problem's.
    """

    def model(_config: Any, shape: Mapping[str, int]) -> Traffic:
        m, n = axes(shape)
        return Traffic(
            operations * m * n,
            global_loads=loads * m * n,
            global_stores=m * n,
            results=m * n,
            more={"flops": why},
        )

    return model


softmax = passes(3, 4, f"{_EXP}, and lanes combine what they found")
online_softmax = passes(2, 4, f"{_EXP}, and a larger maximum scales the sum down")
layernorm = passes(5, 8, "each row needs a square root, and lanes add up what they found")


# Sums along the rows of a matrix


def row_scan(_config: Any, shape: Mapping[str, int]) -> Traffic:
    """Every element is loaded once and stored once."""
    m, n = axes(shape)
    why = "every lane adds in every step, and then the sum of what came before"
    return Traffic(
        m * n, global_loads=m * n, global_stores=m * n, results=m * n, more={"flops": why}
    )


def stepwise_scan(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Blocks scan T elements in L = log2(T) steps in shared memory. In step d, the threads but the
    first 2^d load an element, and all store one. All load the sum that is carried on."""
    m, n = axes(shape)
    (t,) = sizes(config, T="threads")
    steps = Quantity.named("L", t.value.bit_length() - 1)
    tiles = m * ceil_div(n, t)
    return replace(
        row_scan(config, shape),
        shared_loads=tiles * (t * steps + 1),
        shared_stores=tiles * t * (steps + 1),
    )


# Products with a filter of 5×5


def direct_filter(_config: Any, shape: Mapping[str, int]) -> Traffic:
    """Every thread reads 25 elements and as many weights, except outside the image."""
    h, w = axes(shape)
    inside = _taps(h) * _taps(w)
    return Traffic(
        2 * WEIGHTS * h * w,
        global_loads=2 * inside,
        global_stores=h * w,
        results=h * w,
        more={"flops": "nothing is multiplied outside the image"},
    )


def _taps(extent: Quantity) -> Quantity:
    """The taps inside the image, of all results along an axis."""
    return TAPS * extent - OUTSIDE if extent.value >= HALO else Quantity.of(1)


def staged_filter(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Blocks stage BH×BW elements with a halo, and the weights. A thread reads 25 of each there."""
    h, w = axes(shape)
    bh, bw = sizes(config, BH="rows", BW="columns")
    blocks = ceil_div(h, bh) * ceil_div(w, bw)
    loaded = _with_halo(h, bh.value) * _with_halo(w, bw.value)
    return Traffic(
        2 * WEIGHTS * h * w,
        global_loads=loaded + blocks * WEIGHTS,
        global_stores=h * w,
        results=h * w,
        shared_loads=2 * WEIGHTS * h * w,
        shared_stores=blocks * ((bh + 2 * HALO) * (bw + 2 * HALO) + WEIGHTS),
    )


def _with_halo(extent: Quantity, block: int) -> Quantity:
    """Rows or columns that all blocks along an axis load together: their own and two each side."""
    firsts = range(0, extent.value, block)
    last = extent.value
    loaded = sum(min(last, f + block + HALO) - max(0, f - HALO) for f in firsts)
    return Quantity.named(f"{extent.symbols}′", loaded)


# Attention with one head


def direct_attention(_config: Any, shape: Mapping[str, int]) -> Traffic:
    """Every thread reads its query, all keys twice, and all values."""
    (t,) = axes(shape)
    d = Quantity.named("D", DEPTH)
    return Traffic(
        4 * t * t * d,
        global_loads=t * d + 3 * t * t * d,
        global_stores=t * d,
        results=t * d,
        more={"flops": f"every score is computed twice, and {_EXP}"},
    )


def staged_attention(config: Any, shape: Mapping[str, int]) -> Traffic:
    """Blocks of BT threads stage all keys and values, tile by tile; each thread reads all there."""
    (t,) = axes(shape)
    (bt,) = sizes(config, BT="threads")
    d = Quantity.named("D", DEPTH)
    blocks = ceil_div(t, bt)
    staged = 2 * blocks * t * d
    return Traffic(
        4 * t * t * d,
        global_loads=t * d + staged,
        global_stores=t * d,
        results=t * d,
        shared_loads=staged * bt,
        shared_stores=staged,
        more={"flops": f"{_EXP}, and a larger maximum scales the results down"},
    )
