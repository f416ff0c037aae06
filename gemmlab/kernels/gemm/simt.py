"""Shared by the GEMM kernels: matrices from pointers, guarded and 128-bit accesses, tile rules."""

from collections.abc import Mapping
from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import vectors
from gemmlab.kernels.common import MAX_STATIC_SMEM, MAX_THREADS, ceil_div, require
from gemmlab.kernels.rung import Dim3

LAYOUTS = ("row", "course")
# What `gemmlab tune` tries in kernels with warp tiles of 4×8 lanes.
WARP_TILES: Mapping[str, tuple[int, ...]] = {
    "block_m": (64, 128, 256),
    "block_n": (64, 128, 256),
    "warp_m": (16, 32, 64),
    "warp_n": (32, 64),
    "thread_m": (4, 8, 16),
    "thread_n": (4, 8),
}
PADDING = 4  # words after each row, so that eight elements of a column lie in different banks


def check_layout(layout: str) -> None:
    require(layout in LAYOUTS, f"layout is {layout!r}, must be one of {', '.join(LAYOUTS)}")


def check_tiles(config: Any) -> None:
    """Rules of kernels that stage tiles and compute a rectangle of C per thread."""
    sizes = (config.block_m, config.block_n, config.block_k, config.thread_m, config.thread_n)
    require(min(sizes) > 0, f"block and thread sizes are {sizes}, must be positive")
    for axis, block, thread in zip("mn", sizes[:2], sizes[3:], strict=True):
        rule = f"block_{axis} = {block} is not a multiple of thread_{axis} = {thread}"
        require(block % thread == 0, rule)
    rule = f"{config.threads} threads per block, at most {MAX_THREADS} are allowed"
    require(config.threads <= MAX_THREADS, rule)
    smem = 4 * config.block_k * (config.block_m + config.block_n)
    rule = f"tiles take {smem} bytes of static shared memory, at most {MAX_STATIC_SMEM} are allowed"
    require(smem <= MAX_STATIC_SMEM, rule)


def check_fours(config: Any) -> None:
    """Rules of kernels whose threads stage four elements of each tile, 128 bits."""
    for name in ("block_n", "block_k", "thread_m", "thread_n"):
        size = getattr(config, name)
        require(size % 4 == 0, f"{name} = {size}, must be a multiple of 4: 128 bits")
    for name, extent in (("block_m", config.block_m), ("block_n", config.block_n)):
        rule = f"{config.threads} threads must load four elements each"
        text = f"tile {name} × block_k is {extent} × {config.block_k}, {rule}"
        require(extent * config.block_k == 4 * config.threads, text)


def check_warps(config: Any) -> None:
    """Rules of kernels that divide the block into warp tiles of 4×8 lanes."""
    for axis in "mn":
        block, warp = getattr(config, f"block_{axis}"), getattr(config, f"warp_{axis}")
        require(
            block % warp == 0, f"block_{axis} = {block} is not a multiple of warp_{axis} = {warp}"
        )
    for axis, lanes in (("m", 4), ("n", 8)):
        warp, thread = getattr(config, f"warp_{axis}"), getattr(config, f"thread_{axis}")
        rule = f"warp_{axis} = {warp} must be {lanes} lanes of thread_{axis} = {thread}"
        require(warp == lanes * thread, rule)
        require(thread % 4 == 0, f"thread_{axis} = {thread}, must be a multiple of 4: 128 bits")


def check_ring(config: Any) -> None:
    """Rules of kernels that copy tiles asynchronously into a ring."""
    require(config.group > 0, f"group = {config.group}, must be positive")
    require(config.stages > 1, f"stages = {config.stages}, at least 2 are needed")
    threads, depth = config.threads, config.block_k
    require(depth > 0 and depth % 8 == 0, f"block_k = {depth}, must be a multiple of 8: one sector")
    for name, size in (("block_m", config.block_m), ("block_n", config.block_n)):
        text = f"{name} = {size} must divide {threads} threads, with at most 8 to a column"
        require(threads % size == 0 and 8 * size % threads == 0, text)
        text = f"tile {name} × block_k is {size} × {depth}, must be a multiple of four per thread"
        require(size * depth % (4 * threads) == 0, text)
    rule = f"{threads} threads per block, at most {MAX_THREADS} are allowed"
    require(threads <= MAX_THREADS, rule)


def grid(config: Any, shape: Mapping[str, int]) -> Dim3:
    """The grid: blocks along n in x, which may have 2^31 - 1 of them; blocks along m in y."""
    return ceil_div(shape["n"], config.block_n), ceil_div(shape["m"], config.block_m), 1


@cute.jit
def matrices(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    sizes: Any,
    lds: Any,
    layout: cutlass.Constexpr,
) -> Any:
    """Tensors A (m,k), B (k,n), C (m,n). `layout` determines which stride of each is 1."""
    m, n, k = sizes
    lda, ldb, ldc = lds
    column_major = cutlass.const_expr(layout == "course")
    b_stride = (1, ldb) if column_major else (ldb, 1)
    c_stride = (1, ldc) if column_major else (ldc, 1)
    return (
        cute.make_tensor(a, cute.make_layout((m, k), stride=(lda, 1))),
        cute.make_tensor(b, cute.make_layout((k, n), stride=b_stride)),
        cute.make_tensor(c, cute.make_layout((m, n), stride=c_stride)),
    )


@cute.jit
def load_or_zero(tensor: cute.Tensor, i: Int32, j: Int32) -> Float32:
    """Element (i,j), or 0 outside the matrix."""
    value = Float32(0)
    if i < tensor.shape[0] and j < tensor.shape[1]:
        value = tensor[i, j]
    return value


@cute.jit
def store_inside(tensor: cute.Tensor, i: Int32, j: Int32, value: Float32) -> None:
    """Element (i,j) = value, if inside the matrix."""
    if i < tensor.shape[0] and j < tensor.shape[1]:
        tensor[i, j] = value


@cute.jit
def quad(tensor: cute.Tensor, at: Any) -> cute.Tensor:
    """Four consecutive elements at `at`, for one 128-bit access. The address must be aligned."""
    pointer = tensor.iterator + cute.crd2idx(at, tensor.layout)
    return cute.make_tensor(vectors.aligned(pointer, 4), cute.make_layout(4))


@cute.jit
def one(tensor: cute.Tensor, at: Any) -> cute.Tensor:
    """The element at `at`, as a tensor of one."""
    pointer = tensor.iterator + cute.crd2idx(at, tensor.layout)
    return cute.make_tensor(pointer, cute.make_layout(1))


@cute.jit
def element(pointer: cute.Pointer, i: Int64) -> cute.Tensor:
    """The element at `pointer + i`, as a tensor of one."""
    return cute.make_tensor(pointer + i, cute.make_layout(1))


def pairwise(values: list[Any], combine: Any) -> Any:
    """Reduce numbers by a tree of pairs, so that few instructions depend on one another."""
    while len(values) > 1:
        rest = values[len(values) // 2 * 2 :]
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [combine(a, b) for a, b in pairs] + rest
    return values[0]


def copy_async(source: cute.Tensor, target: cute.Tensor, inside: Any = None) -> None:
    """One cp.async of a tensor of 4 or 16 bytes; if not `inside`, it writes zeros."""
    size = cute.size(source) * source.element_type.width // 8
    vectors.copy_bytes(source.iterator.toint(), target.iterator, size, inside)


def read_four(tile: cute.Tensor, at: Any) -> list:
    """Four consecutive elements of a tile at `at`, by one 128-bit load."""
    return vectors.read(tile.iterator + cute.crd2idx(at, tile.layout), 4)


def write_four(tile: cute.Tensor, at: Any, four: cute.TensorSSA) -> None:
    """Store four consecutive elements by one 128-bit store. The address must be aligned."""
    values = vectors.elements_of(four, tile.element_type, 4)
    vectors.write(tile.iterator + cute.crd2idx(at, tile.layout), values)


@cute.jit
def load_four(
    tensor: cute.Tensor, i: Int32, j: Int32, axis: cutlass.Constexpr, wide: cutlass.Boolean
) -> cute.TensorSSA:
    """Four elements at (i,j) along `axis`: one 128-bit load if `wide`, else four guarded ones."""
    four = cute.make_rmem_tensor(4, Float32)
    if wide:
        values = read_four(tensor, (i, j))
        for e in cutlass.range_constexpr(4):
            four[e] = values[e]
    else:
        for e in cutlass.range_constexpr(4):
            di, dj = (e, 0) if axis == 0 else (0, e)
            four[e] = load_or_zero(tensor, i + di, j + dj)
    return four.load()


@cute.jit
def store_four(
    tensor: cute.Tensor,
    i: Int32,
    j: Int32,
    four: cute.Tensor,
    axis: cutlass.Constexpr,
    wide: cutlass.Boolean,
) -> None:
    """Four elements at (i,j) along `axis`: one 128-bit store if `wide`, else four guarded ones."""
    if wide:
        write_four(tensor, (i, j), four.load())
    else:
        for e in cutlass.range_constexpr(4):
            di, dj = (e, 0) if axis == 0 else (0, e)
            store_inside(tensor, i + di, j + dj, four[e])


@cute.jit
def store_block(
    tensor: cute.Tensor,
    row: Int32,
    col: Int32,
    values: cute.Tensor,
    spans: cutlass.Constexpr,
    axis: cutlass.Constexpr,
    wide: cutlass.Boolean,
) -> None:
    """Store a thread's elements of C in fours along `axis`; groups of four are `spans` apart."""
    rows, cols = values.shape
    four = cute.make_rmem_tensor(4, Float32)
    for i in cutlass.range_constexpr(0, rows, 1 if axis else 4):
        for j in cutlass.range_constexpr(0, cols, 4 if axis else 1):
            for e in cutlass.range_constexpr(4):
                four[e] = values[i, j + e] if axis else values[i + e, j]
            i0, j0 = i // 4 * spans[0] + i % 4, j // 4 * spans[1] + j % 4
            store_four(tensor, row + i0, col + j0, four, axis, wide)


@cute.jit
def allows_quads(pointer: cute.Pointer, ld: Int64) -> cutlass.Boolean:
    """Whether elements 0, 4, 8, … of every line of a matrix are 16-byte aligned."""
    return pointer.toint() % 16 == 0 and ld % 4 == 0


@cute.jit
def shared_tile(
    rows: cutlass.Constexpr, cols: cutlass.Constexpr, padding: cutlass.Constexpr = 0
) -> cute.Tensor:
    """A row-major tile (rows, cols) in static shared memory, `padding` words after each row."""
    pitch = cols + padding
    pointer = cute.arch.alloc_smem(Float32, rows * pitch, 16)
    return cute.make_tensor(pointer, cute.make_layout((rows, cols), stride=(pitch, 1)))


@cute.jit
def rings(rows: cutlass.Constexpr, *cols: cutlass.Constexpr) -> Any:
    """One row-major array (rows, width) per width in `cols`, in dynamic shared memory, padded."""
    pointer = cute.arch.get_dyn_smem(Float32, alignment=16)
    found = []
    for width in cols:
        layout = cute.make_layout((rows, width), stride=(width + PADDING, 1))
        found.append(cute.make_tensor(pointer, layout))
        pointer = pointer + rows * (width + PADDING)
    return found


@cute.jit
def shared_array(size: cutlass.Constexpr) -> cute.Tensor:
    """`size` elements in static shared memory."""
    return cute.make_tensor(cute.arch.alloc_smem(Float32, size, 16), cute.make_layout(size))


def one_of(
    thread: Int32, turn: int, threads: int, depth: int, width: int, axis: int
) -> tuple[Int32, Int32]:
    """k and x of the element that the thread stages, in this turn, of a tile (depth, width).

    Along k (axis 0) eight lanes take the eight elements of a sector.
    """
    if axis == 0:
        sectors, columns = depth // 8, threads // 8
        return thread % 8 + turn % sectors * 8, thread // 8 + turn // sectors * columns
    return thread // width + turn * (threads // width), thread % width


def four_of(thread: Int32, depth: int, width: int, axis: int) -> tuple[Int32, Int32]:
    """k and x of the four elements along `axis` that the thread stages of a tile (depth, width)."""
    if axis == 0:
        return thread % (depth // 4) * 4, thread // (depth // 4)
    return thread // (width // 4), thread % (width // 4) * 4


@cute.jit
def stage(
    tile: cute.Tensor, k: Int32, x: Int32, four: cute.TensorSSA, axis: cutlass.Constexpr
) -> None:
    """Store four elements to a tile at (k,x): along k (axis 0) four stores, along x one."""
    if cutlass.const_expr(axis == 1):
        write_four(tile, (k, x), four)
    else:
        for e in cutlass.range_constexpr(4):
            tile[k + e, x] = four[e]


def unit_axis(config: Any) -> int:
    """The axis along which B (k,n) and C (m,n) are contiguous."""
    return 0 if config.layout == "course" else 1


def warp_place(thread: Int32, config: Any) -> tuple[Int32, Int32]:
    """Row and column, in the block of C, at which the thread's elements begin.

    The lanes of a warp form 4 rows of 8. LDS.128 merges groups of eight lanes if the lanes of each
    pair (l, l^1) or (l, l^2) read the same four: hence the order of the lanes.
    """
    WM, WN = config.warp_m, config.warp_n
    warp, lane = thread // 32, thread % 32
    t_m = warp // (config.block_n // WN) * WM + (lane % 2 + lane // 16 * 2) * 4
    t_n = warp % (config.block_n // WN) * WN + lane // 2 % 8 * 4
    return t_m, t_n


@cute.jit
def store_warp_tiles(
    tensor: cute.Tensor,
    row: Int32,
    col: Int32,
    values: cute.Tensor,
    wide: cutlass.Boolean,
    config: cutlass.Constexpr,
) -> None:
    """Store the thread's elements, placed by `warp_place`, to the block of C at (row,col)."""
    thread, _, _ = cute.arch.thread_idx()
    t_m, t_n = warp_place(thread, config)
    spans = config.warp_m // config.thread_m * 4, config.warp_n // config.thread_n * 4
    store_block(tensor, row + t_m, col + t_n, values, spans, unit_axis(config), wide)


@cute.jit
def multiply(
    sA: cute.Tensor,
    sB: cute.Tensor,
    rC: cute.Tensor,
    first: Int32,
    t_m: Int32,
    t_n: Int32,
    config: cutlass.Constexpr,
) -> None:
    """rC (TM, TN) += the thread's elements of the product of the tiles at row `first`."""
    TM, TN = config.thread_m, config.thread_n
    sums = [[rC[i, j] for j in range(TN)] for i in range(TM)]  # traced faster than a tensor
    for kk in cutlass.range_constexpr(config.block_k):
        rows = [t_m + i * (config.warp_m // TM) for i in range(0, TM, 4)]
        columns = [t_n + j * (config.warp_n // TN) for j in range(0, TN, 4)]
        rA = [x for row in rows for x in read_four(sA, (first + kk, row))]
        rB = [x for column in columns for x in read_four(sB, (first + kk, column))]
        for i in cutlass.range_constexpr(TM):
            for j in cutlass.range_constexpr(TN):
                sums[i][j] += rA[i] * rB[j]
    for i in cutlass.range_constexpr(TM):
        for j in cutlass.range_constexpr(TN):
            rC[i, j] = sums[i][j]


@cute.jit
def walk(group: cutlass.Constexpr) -> Any:
    """The block's column and row in C, in bands of `group` rows walked column by column."""
    bx, by, _ = cute.arch.block_idx()
    if cutlass.const_expr(group > 1):
        columns, rows, _ = cute.arch.grid_dim()
        turn = by * columns + bx
        top = turn // (group * columns) * group
        band = cutlass.min(group, rows - top)
        bx, by = (turn - top * columns) // band, top + (turn - top * columns) % band
    return bx, by
