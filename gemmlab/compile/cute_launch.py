"""The host side of every kernel: the CuTe DSL compiles no kernel without one. Devices need none."""

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
    """The grid is left at 1: it is no part of what is compiled, the block is (`.reqntid`).

    A configuration, which a kernel need not have, may ask for registers few enough for `min_blocks`
    blocks per multiprocessor, and name the `copies` by TMA whose tensor maps become the kernel's
    first parameters, 128 bytes each.
    """
    maps = [tensor_map(copy) for copy in getattr(config, "copies", ())]
    given = arguments if config is None else (*arguments, config)
    kernel(*maps, *given).launch(
        grid=(1, 1, 1),
        block=block,
        min_blocks_per_mp=getattr(config, "min_blocks", 0),
        preferred_smem_carveout=100,  # of the launch that is not made: else the DSL asks a driver
    )


def tensor_map(copy: CopyBox) -> cute.CopyAtom:
    """A tensor map as the compiler sees it: instruction and box. The tensor comes at run time."""
    box, element = (LINE, copy.lines, 1), ELEMENTS[copy.dtype]
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, element)
    pointer = cute.make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=128)
    tensor = cute.make_tensor(pointer, cute.make_layout(box))
    load, multicast = cpasync.CopyBulkTensorTileG2SOp, cpasync.CopyBulkTensorTileG2SMulticastOp
    op = multicast() if copy.multicast else load()
    layout = cute.tile_to_shape(atom, box, order=(0, 1, 2))
    return cpasync.make_tiled_tma_atom(op, tensor, layout, box).atom
