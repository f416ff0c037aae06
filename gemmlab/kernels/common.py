"""What every kernel file needs besides the DSL: rules with values, and launch limits."""

from collections.abc import Callable, Mapping
from typing import Any

from gemmlab.errors import InputError
from gemmlab.kernels.rung import Geometry

MAX_THREADS = 1024  # per block
MAX_GRID_Y = 65535  # blocks; x goes to 2^31 - 1
MAX_STATIC_SMEM = 48 * 1024  # bytes per block
MAX_SMEM = 226 * 1024  # bytes per block of Hopper that a kernel may opt in to, but for barriers


def require(rule: bool, text: str) -> None:
    """Raise InputError unless a configuration keeps the rule that `text` states with its values."""
    if not rule:
        raise InputError(text)


def check_threads(threads: int) -> None:
    """The rule of one-dimensional blocks that are cut in halves down to one thread."""
    power = threads > 0 and threads & (threads - 1) == 0
    text = f"{threads} threads per block, must be a power of two from 32 to {MAX_THREADS}"
    require(power and 32 <= threads <= MAX_THREADS, text)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def fits_grid(
    geometry: Callable[[Any, Mapping[str, int]], Geometry],
) -> Callable[[Any, Mapping[str, int]], str | None]:
    """The rule every matrix kernel shares: rows lie along grid y, the short side of a grid."""

    def requires(config: Any, shape: Mapping[str, int]) -> str | None:
        rows = geometry(config, shape).grid[1]
        if rows <= MAX_GRID_Y:
            return None
        return f"m = {shape['m']} needs {rows} blocks in grid y, at most {MAX_GRID_Y} are allowed"

    return requires
