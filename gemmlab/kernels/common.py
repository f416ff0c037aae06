"""Shared by all kernels: launch limits, and rules for configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gemmlab.errors import InputError

if TYPE_CHECKING:  # it imports all problems, which products do not need
    from gemmlab.kernels.rung import Geometry

MAX_THREADS = 1024  # per block
MAX_GRID_Y = 65535  # blocks; grid x may have 2^31 - 1
MAX_STATIC_SMEM = 48 * 1024  # bytes per block
MAX_SMEM = (
    226 * 1024
)  # bytes of dynamic shared memory per Hopper block: 227 KiB, less 1 for barriers


def require(rule: bool, text: str) -> None:
    """Raise InputError(text) unless `rule` holds. `text` states the rule and the values."""
    if not rule:
        raise InputError(text)


def check_threads(threads: int) -> None:
    """Rule of kernels that halve the number of active threads down to one."""
    power = threads > 0 and threads & (threads - 1) == 0
    text = f"{threads} threads per block, must be a power of two from 32 to {MAX_THREADS}"
    require(power and 32 <= threads <= MAX_THREADS, text)


def check_registers(taken: int, threads: int, min_blocks: int) -> None:
    """Rule of kernels with setmaxnreg, which waits forever for registers that a block lacks.

    taken: by all threads. min_blocks: per multiprocessor.
    """
    owned = 65536 // (min_blocks * threads) // 8 * 8 * threads
    require(taken <= owned, f"the threads take {taken} registers, of {owned} that they start with")


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def fits_grid(
    geometry: Callable[[Any, Mapping[str, int]], Geometry],
) -> Callable[[Any, Mapping[str, int]], str | None]:
    """Rule of matrix kernels, whose rows of blocks run along y, the short side of a grid."""

    def requires(config: Any, shape: Mapping[str, int]) -> str | None:
        rows = geometry(config, shape).grid[1]
        if rows <= MAX_GRID_Y:
            return None
        return f"m = {shape['m']} needs {rows} blocks in grid y, at most {MAX_GRID_Y} are allowed"

    return requires
