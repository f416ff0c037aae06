"""Finds lanes of one store instruction that write different values to one location. Which value
remains is undefined (PTX ISA, "Memory Consistency Model"; CUDA C++ Programming Guide)."""

from __future__ import annotations

import numpy as np


def overwritten(
    groups: np.ndarray, cells: np.ndarray, written: np.ndarray, left: np.ndarray
) -> np.ndarray:
    """Which granules of a store receive different values from threads of the same group.

    groups: (n,), a number per thread, such as its warp. cells: (n, granules per access). written,
    left: (n, granules, words), the written values and the values in memory afterwards.
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
