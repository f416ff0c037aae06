"""The host function that the CuTe DSL requires to compile a kernel. Devices never call it."""

from typing import Any

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup

from gemmlab.kernels.gemm.sm90.config import LINE, CopyBox
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS


@cute.jit
def launch(
    kernel: cutlass.Constexpr, arguments: Any, config: cutlass.Constexpr, block: cutlass.Constexpr
) -> None:
    """Launch `kernel` with one block. The block size is compiled in (`.reqntid`), the grid is not.

    `config` is None or has two optional attributes: `min_blocks`, the number of blocks per
    multiprocessor that the register count must allow, and `copies`, the TMA copies whose tensor
    maps become the kernel's first parameters, 128 bytes each.
    """
    maps = [tensor_map(copy) for copy in getattr(config, "copies", ())]
    given = arguments if config is None else (*arguments, config)
    kernel(*maps, *given).launch(
        grid=(1, 1, 1),
        block=block,
        min_blocks_per_mp=getattr(config, "min_blocks", 0),
        preferred_smem_carveout=100,  # any value will do; without one the DSL queries the driver
    )


def tensor_map(copy: CopyBox) -> cute.CopyAtom:
    """Return a tensor map for compilation: instruction and box. The tensor is bound at launch."""
    box, element = (LINE, copy.lines, 1), ELEMENTS[copy.dtype]
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, element)
    pointer = cute.make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=128)
    tensor = cute.make_tensor(pointer, cute.make_layout(box))
    load, multicast = cpasync.CopyBulkTensorTileG2SOp, cpasync.CopyBulkTensorTileG2SMulticastOp
    op = multicast() if copy.multicast else load()
    layout = cute.tile_to_shape(atom, box, order=(0, 1, 2))
    return cpasync.make_tiled_tma_atom(op, tensor, layout, box).atom
