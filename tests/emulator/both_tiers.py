"""Runs a kernel on both tiers and compares memory and counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.emulator import Run, run


def both(
    text: str,
    args: Sequence[Any],
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    dynamic_smem: int = 0,
    entry: str | None = None,
) -> Run:
    """Run on both tiers and compare. The arrays in `args` receive the native tier's results."""
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    wanted = run(text, entry, grid, block, copies, dynamic_smem, tier="numpy")
    found = run(text, entry, grid, block, args, dynamic_smem, tier="native")
    assert (wanted.tier, found.tier) == ("numpy", "native")
    for ours, theirs in zip(args, copies, strict=True):
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(bits(ours), bits(theirs))
    assert found.counters == wanted.counters
    return found


def bits(array: np.ndarray) -> np.ndarray:
    """Return an array's bytes."""
    return array.reshape(-1).view(np.uint8)
