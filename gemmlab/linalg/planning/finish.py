"""The launch after each one of `multiply_packed` of a deep product.

It computes the doubtful sums that blocks have left in a list.
"""

from __future__ import annotations

from gemmlab.kernels.gemm.sm90.config import FINISH_WARPS, TileConfig
from gemmlab.linalg.planning.launch import Address, PlannedLaunch, Value

_SAME = "x_a", "x_b", "c", "report", "m", "n", "k", "begin", "batch_a", "batch_b", "ldc", "batch_c"
_BLOCK = (32 * FINISH_WARPS, 1, 1)
_BLOCKS = 2  # per multiprocessor


def finish(launch: PlannedLaunch, doubts: Address, sms: int) -> PlannedLaunch:
    """Return the launch that follows one of `multiply_packed`. doubts: address of the list."""
    tile, given = launch.config, launch.args
    assert isinstance(tile, TileConfig)
    args: dict[str, Value] = {name: given[name] for name in (*_SAME, "alpha")}
    args |= {
        "doubts": doubts,
        "row_a": given["lda"] if tile.a_major == "k" else 1,
        "col_a": 1 if tile.a_major == "k" else given["lda"],
        "row_b": 1 if tile.b_major == "k" else given["ldb"],
        "col_b": given["ldb"] if tile.b_major == "k" else 1,
        "room": given["room"],
    }
    grid = (_BLOCKS * sms, 1, 1)
    return PlannedLaunch("finish", None, grid, _BLOCK, args, arch=launch.arch)
