"""Tiles in shared memory, as TMA writes them and wgmma reads them: 128-byte lines, swizzled.

A tile is (rows of A or columns of B, `LINE` of k). It is K-major where k runs along its lines.
"""

import cutlass
from cutlass import Int16, Int32, cute
from cutlass.cute.nvgpu import cpasync, warpgroup

from gemmlab.kernels.gemm.sm90.config import LINE

ELEMENTS = {"float16": cutlass.Float16, "bfloat16": cutlass.BFloat16}


@cute.jit
def swizzled(pointer: cute.Pointer, layout: cute.ComposedLayout) -> cute.Tensor:
    """A tensor in shared memory whose 16-byte pieces are permuted as TMA and wgmma agree."""
    pointer = cute.recast_ptr(pointer, layout.inner, pointer.value_type)
    return cute.make_tensor(pointer, layout.outer)


@cute.jit
def tiles_of(
    pointer: cute.Pointer,
    rows: cutlass.Constexpr,
    major: cutlass.Constexpr,
    slots: cutlass.Constexpr,
) -> cute.Tensor:
    """The tiles (rows, LINE, slots) of A or of B as wgmma reads them."""
    kinds = warpgroup.SmemLayoutAtomKind
    kind, order = (kinds.K_SW128, (0, 1, 2)) if major == "k" else (kinds.MN_SW128, (1, 0, 2))
    atom = warpgroup.make_smem_layout_atom(kind, pointer.value_type)
    return swizzled(pointer, cute.tile_to_shape(atom, (rows, LINE, slots), order))


@cute.jit
def boxes_of(
    copy: cute.CopyAtom,
    pointer: cute.Pointer,
    lines: cutlass.Constexpr,
    box: cutlass.Constexpr,
    extents: cute.Shape,
) -> tuple:
    """What a TMA copy writes, (values, box), and where it reads, (values, in line, line, part).

    To TMA shared memory is a list of 128-byte lines, and a box is `box` of them.
    """
    kind = warpgroup.SmemLayoutAtomKind.MN_SW128
    atom = warpgroup.make_smem_layout_atom(kind, pointer.value_type)
    smem = swizzled(pointer, cute.tile_to_shape(atom, (LINE, lines), order=(0, 1)))
    smem = cute.local_tile(smem, (LINE, box), (0, None))
    gmem = cute.local_tile(cute.make_identity_tensor(extents), (LINE, box, 1), (None, None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 3)
    return cpasync.tma_partition(copy, 0, cute.make_layout(1), smem, gmem)


@cute.jit
def fetch(
    copy: cute.CopyAtom,
    views: tuple,
    form: cutlass.Constexpr,
    tile: Int32,
    step: Int32,
    part: Int32,
    slot: Int32,
    share: Int32,
    bar: cute.Pointer,
) -> None:
    """Ask TMA for a tile, or for a share of it; `bar` counts the bytes that arrive.

    A K-major tile is one box, whose lines are its rows. Any other tile is a box for every 64 of
    its rows, whose lines are the steps of k.
    """
    to, source = views
    major, boxes, shares = form
    everyone = Int16((1 << shares) - 1)
    for i in cutlass.range_constexpr(boxes):
        across, down = step, tile * shares + share
        if cutlass.const_expr(major != "k"):
            across, down = tile * boxes + i, step * shares + share
        box = to[None, (slot * boxes + i) * shares + share]
        cute.copy(copy, source[None, across, down, part], box, tma_bar_ptr=bar, mcast_mask=everyone)
