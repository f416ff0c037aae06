"""The host function that the CuTe DSL requires to compile a kernel. Devices never call it."""

from typing import Any

import cutlass
from cutlass import cute


@cute.jit
def launch(
    kernel: cutlass.Constexpr, arguments: Any, config: cutlass.Constexpr, block: cutlass.Constexpr
) -> None:
    """Launch `kernel` with one block. The block size is compiled in (`.reqntid`), the grid is not.

    `config` is None or has two optional attributes: `min_blocks`, the number of blocks per
    multiprocessor that the register count must allow, and `tensor_maps`, which become the kernel's
    first parameters, 128 bytes each.
    """
    maps = getattr(config, "tensor_maps", ())
    given = arguments if config is None else (*arguments, config)
    kernel(*maps, *given).launch(
        grid=(1, 1, 1),
        block=block,
        min_blocks_per_mp=getattr(config, "min_blocks", 0),
        preferred_smem_carveout=100,  # any value will do; without one the DSL queries the driver
    )
