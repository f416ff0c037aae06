"""The host side of every kernel: the CuTe DSL compiles no kernel without one. Devices need none."""

from typing import Any

import cutlass
from cutlass import cute


@cute.jit
def launch(
    kernel: cutlass.Constexpr, arguments: Any, config: cutlass.Constexpr, block: cutlass.Constexpr
) -> None:
    """The grid is left at 1: it is no part of what is compiled, the block is (`.reqntid`)."""
    kernel(*arguments, config).launch(grid=(1, 1, 1), block=block)
