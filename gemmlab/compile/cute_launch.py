"""The host side of every kernel: the CuTe DSL compiles no kernel without one. Devices need none."""

from typing import Any

import cutlass
from cutlass import cute


@cute.jit
def launch(
    kernel: cutlass.Constexpr, arguments: Any, config: cutlass.Constexpr, block: cutlass.Constexpr
) -> None:
    """The grid is left at 1: it is no part of what is compiled, the block is (`.reqntid`).

    A configuration, which a kernel need not have, may ask for registers few enough for `min_blocks`
    blocks per multiprocessor.
    """
    given = arguments if config is None else (*arguments, config)
    kernel(*given).launch(
        grid=(1, 1, 1),
        block=block,
        min_blocks_per_mp=getattr(config, "min_blocks", 0),
        preferred_smem_carveout=100,  # of the launch that is not made: else the DSL asks a driver
    )
