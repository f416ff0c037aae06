"""The predicted time of cuBLAS SGEMM, with which every other way to multiply is compared.

cuBLAS has kernels with many tiles, and chooses one by the shape. The times of five tiles, and of a
division of k, describe what it chooses: the fastest is taken. Whether lines are aligned makes no
difference. Vectors have kernels of their own.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from gemmlab.kernels.common import ceil_div
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.arch.architecture import SgemmTile
from gemmlab.linalg.planning.formulas import least, most


def seconds(
    m: Any, n: Any, k: Any, batch: Any, k_major: tuple[bool, bool], arch: Architecture, sms: int
) -> Any:
    """Predicted seconds, at least the time to move the matrices."""
    size = bytes_of(m, n, k, batch)
    if is_vector(m, n):
        far = missed(size, arch.l2_bytes, arch.l2_overflow)
        reading = (1 - far) / arch.sgemm_vector_near + far / arch.sgemm_vector_bytes
        return arch.sgemm_vector_start + size * reading
    far = missed(size, arch.l2_bytes, arch.l2_overflow) * arch.sgemm_far
    longer, tiles = _longer(k_major, arch), _tiles(k_major, arch)
    times = [_computing(tile, tiles_of(m, n, tile) * batch, k, far, longer, sms) for tile in tiles]
    if not batch > 1:  # k of a product in a stack is never divided
        for tile in (x for x in tiles if x.most_splits > 1):
            blocks = tiles_of(m, n, tile)
            splits = most(least(sms * tile.at_once // blocks, tile.most_splits), 1)
            rest = ceil_div(k, splits), far, longer, sms
            times.append(_computing(tile, blocks * splits, *rest) + arch.sgemm_join)
    return arch.sgemm_start + most(reduce(least, times), size / arch.sgemm_bytes)


def bound(
    m: Any, n: Any, k: Any, batch: Any, k_major: tuple[bool, bool], arch: Architecture, sms: int
) -> Any:
    """Seconds that `seconds` never falls below: the busiest time of the best tile, if C has whole
    tiles and multiprocessors share them evenly."""
    if is_vector(m, n):
        return 0.0
    each = min(tile.busy / (tile.rows * tile.columns) for tile in _tiles(k_major, arch))
    return arch.sgemm_start + m * n * k * batch * (each * _longer(k_major, arch) / sms)


def _tiles(k_major: tuple[bool, bool], arch: Architecture) -> list[SgemmTile]:
    """The tiles that may be chosen."""
    return [x for x in arch.sgemm if not (x.only_mn_major_b and k_major[1])]


def _longer(k_major: tuple[bool, bool], arch: Architecture) -> float:
    """By how much K-major operands lengthen the computation."""
    return 1 + arch.sgemm_k_major * sum(k_major)


def bytes_of(m: Any, n: Any, k: Any, batch: Any) -> Any:
    """Of the three matrices."""
    return 4 * batch * (k * (m + n) + m * n)


def missed(size: Any, kept: float, overflow: float) -> Any:
    """The share of matrices of that size that L2 does not keep from one product to the next.

    It keeps all of up to `kept` bytes, and nothing of `overflow` more.
    """
    return least(most(size - kept, 0) / overflow, 1)


def is_vector(m: Any, n: Any) -> bool:
    """Whether a product has a vector among its factors. Sizes may be symbols."""
    return not (m > 1 and n > 1)


def tiles_of(m: Any, n: Any, tile: SgemmTile) -> Any:
    return ceil_div(m, tile.rows) * ceil_div(n, tile.columns)


def _computing(tile: SgemmTile, blocks: Any, k: Any, far: Any, longer: float, sms: int) -> Any:
    """Seconds of blocks of depth k.

    Either multiprocessors are busy all the time, or blocks wait for their operands.
    """
    busy = ceil_div(blocks, sms) * (k * (tile.busy * longer) + tile.between)
    waits = ceil_div(blocks, sms * tile.at_once) * (k * (far + tile.latency) + tile.ends)
    return most(busy, waits)
