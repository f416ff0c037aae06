"""Lanes of one store instruction that write different values to one place: which one stays nobody
says (PTX ISA, "Memory Consistency Model"; CUDA: one of them is written, it is undefined which)."""

from __future__ import annotations

import numpy as np


def overwritten(
    groups: np.ndarray, cells: np.ndarray, written: np.ndarray, left: np.ndarray
) -> np.ndarray:
    """Which granules of a store another thread of the same group writes another value to.

    groups: (n,), of the threads, such as their warps; cells: (n, granules of each); written, left:
    (n, granules, words), what they wrote and what was there afterwards.
    """
    found = np.zeros(cells.shape, bool)
    lost = (left != written).any(axis=2)
    if not lost.any():
        return found
    some = np.isin(cells, cells[lost])
    places = np.stack([np.broadcast_to(groups[:, None], cells.shape)[some], cells[some]])
    _, first, group = np.unique(places, axis=1, return_index=True, return_inverse=True)
    values = written[some]
    found[some] = (values != values[first[group]]).any(axis=1)
    return found
