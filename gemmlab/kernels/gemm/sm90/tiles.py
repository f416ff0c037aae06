"""Tiles in shared memory: TMA writes them and wgmma reads them in 128-byte lines, swizzled.

A tile is (rows of A or columns of B, `LINE` of k). In a K-major tile, k runs along the lines; in an
MN-major tile, rows of A or columns of B do. Lines of float32 elements, which wgmma does not read,
are half as many elements.
"""

from typing import NamedTuple

import cutlass
from cutlass import Int16, Int32, cute
from cutlass.cute.nvgpu import cpasync, warpgroup

from gemmlab.kernels.gemm.sm90.config import LINE, CopyBox

ELEMENTS = {
    "float16": cutlass.Float16,
    "bfloat16": cutlass.BFloat16,
    "float32": cutlass.Float32,
}


def tensor_map(copy: CopyBox) -> cute.CopyAtom:
    """Return a tensor map for compilation: instruction and box. The tensor is bound at launch."""
    box, element = (copy.line, copy.lines, 1), ELEMENTS[copy.dtype]
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, element)
    pointer = cute.make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=128)
    tensor = cute.make_tensor(pointer, cute.make_layout(box))
    load, multicast = cpasync.CopyBulkTensorTileG2SOp, cpasync.CopyBulkTensorTileG2SMulticastOp
    op = multicast() if copy.multicast else load()
    layout = cute.tile_to_shape(atom, box, order=(0, 1, 2))
    return cpasync.make_tiled_tma_atom(op, tensor, layout, box).atom


@cute.jit
def swizzled(pointer: cute.Pointer, layout: cute.ComposedLayout) -> cute.Tensor:
    """A tensor in shared memory with the permutation of 16-byte chunks that TMA and wgmma share."""
    pointer = cute.recast_ptr(pointer, layout.inner, pointer.value_type)
    return cute.make_tensor(pointer, layout.outer)


@cute.jit
def tiles_of(
    pointer: cute.Pointer,
    rows: cutlass.Constexpr,
    major: cutlass.Constexpr,
    stages: cutlass.Constexpr,
) -> cute.Tensor:
    """The tiles (rows, LINE, stages) of A or B as wgmma reads them."""
    kinds = warpgroup.SmemLayoutAtomKind
    kind, order = (kinds.K_SW128, (0, 1, 2)) if major == "k" else (kinds.MN_SW128, (1, 0, 2))
    atom = warpgroup.make_smem_layout_atom(kind, pointer.value_type)
    return swizzled(pointer, cute.tile_to_shape(atom, (rows, LINE, stages), order))


class TmaOperand(NamedTuple):
    """One operand as TMA copies it. A box is the part of a tensor that one TMA copy moves."""

    copy: cute.CopyAtom  # with the tensor map
    gmem: cute.Tensor  # (values, box along the line, box of lines, part)
    smem: cute.Tensor  # (values, box)
    major: str  # "k" or "mn"
    boxes: int  # per tile, side by side
    shares: int  # blocks of the cluster that copy a share of each tile, for all of them
    share: Int32  # of this block
    item_stride: Int32  # 1; 0 if all items of the batch share the operand


@cute.jit
def tma_operand(
    copy: cute.CopyAtom,
    pointer: cute.Pointer,
    rows: cutlass.Constexpr,
    major: cutlass.Constexpr,
    shares: cutlass.Constexpr,
    extents: tuple,
    item_stride: Int32,
    stages: cutlass.Constexpr,
) -> TmaOperand:
    """The operand of extents (vectors, k, parts of all items), copied to stages at `pointer`.

    TMA sees shared memory as a list of 128-byte lines; a box is a number of consecutive lines. A
    K-major tile has a box for every `line` of k, whose lines are its rows. An MN-major tile has a
    box for every `line` of its rows, whose lines are the steps of k.
    """
    vectors, k, parts = extents
    line = 1024 // pointer.value_type.width  # elements
    along, across, shape = (LINE, rows, (k, vectors, parts))
    if cutlass.const_expr(major != "k"):
        along, across, shape = (rows, LINE, (vectors, k, parts))
    boxes, lines = along // line, across // shares  # of a tile, of a box
    kind = warpgroup.SmemLayoutAtomKind.MN_SW128
    atom = warpgroup.make_smem_layout_atom(kind, pointer.value_type)
    every = stages * rows * LINE // line
    smem = swizzled(pointer, cute.tile_to_shape(atom, (line, every), order=(0, 1)))
    smem = cute.local_tile(smem, (line, lines), (0, None))
    gmem = cute.local_tile(cute.make_identity_tensor(shape), (line, lines, 1), (None, None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 3)
    smem, gmem = cpasync.tma_partition(copy, 0, cute.make_layout(1), smem, gmem)
    bx, _, _ = cute.arch.block_idx()
    return TmaOperand(copy, gmem, smem, major, boxes, shares, bx % shares, item_stride)


@cute.jit
def fetch(
    operand: TmaOperand,
    tile: Int32,
    k_tile: Int32,
    part: Int32,
    stage: Int32,
    bar: cute.Pointer,
) -> None:
    """Start the TMA copies of this block's share of a tile. `bar` counts the bytes that arrive."""
    boxes, shares, share = operand.boxes, operand.shares, operand.share
    all_blocks = Int16((1 << shares) - 1)
    for i in cutlass.range_constexpr(boxes):
        x, y = k_tile * boxes + i, tile * shares + share
        if cutlass.const_expr(operand.major != "k"):
            x, y = tile * boxes + i, k_tile * shares + share
        target = operand.smem[None, (stage * boxes + i) * shares + share]
        box = operand.gmem[None, x, y, part]
        cute.copy(operand.copy, box, target, tma_bar_ptr=bar, mcast_mask=all_blocks)


@cute.jit
def fetch_line(
    source: cute.Pointer, target: cute.Pointer, count: cutlass.Constexpr, bar: cute.Pointer
) -> None:
    """Start to copy that many elements to shared memory. Run by one thread."""
    bits = count * source.value_type.width
    copy = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), source.value_type, num_bits_per_copy=bits)
    layout = cute.make_layout(count)
    cute.copy(
        copy, cute.make_tensor(source, layout), cute.make_tensor(target, layout), mbar_ptr=bar
    )
