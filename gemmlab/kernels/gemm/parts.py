"""What every GEMM kernel needs: matrices from pointers, guarded and 128-bit accesses, limits."""

from collections.abc import Callable, Mapping
from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.errors import InputError
from gemmlab.kernels.rung import Geometry

LAYOUTS = ("row", "course")
MAX_THREADS = 1024  # per block
MAX_GRID_Y = 65535  # blocks; x goes to 2^31 - 1
MAX_STATIC_SMEM = 48 * 1024  # bytes per block


def require(rule: bool, text: str) -> None:
    """Raise InputError unless a configuration keeps the rule that `text` states with its values."""
    if not rule:
        raise InputError(text)


def check_layout(layout: str) -> None:
    require(layout in LAYOUTS, f"layout is {layout!r}, must be one of {', '.join(LAYOUTS)}")


def check_tiles(config: Any) -> None:
    """The rules of every kernel that stages tiles and owns a rectangle of C per thread."""
    sizes = (config.block_m, config.block_n, config.block_k, config.thread_m, config.thread_n)
    require(min(sizes) > 0, f"block and thread sizes are {sizes}, must be positive")
    for axis, block, thread in zip("mn", sizes[:2], sizes[3:], strict=True):
        rule = f"block_{axis} = {block} is no multiple of thread_{axis} = {thread}"
        require(block % thread == 0, rule)
    rule = f"{config.threads} threads per block, at most {MAX_THREADS} are allowed"
    require(config.threads <= MAX_THREADS, rule)
    smem = 4 * config.block_k * (config.block_m + config.block_n)
    rule = f"tiles take {smem} bytes of static shared memory, at most {MAX_STATIC_SMEM} are allowed"
    require(smem <= MAX_STATIC_SMEM, rule)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def fits_grid(
    geometry: Callable[[Any, Mapping[str, int]], Geometry],
) -> Callable[[Any, Mapping[str, int]], str | None]:
    """The rule every rung shares: blocks of rows lie along grid y, the short side of a grid."""

    def requires(config: Any, shape: Mapping[str, int]) -> str | None:
        rows = geometry(config, shape).grid[1]
        if rows <= MAX_GRID_Y:
            return None
        return f"m = {shape['m']} needs {rows} blocks in grid y, at most {MAX_GRID_Y} are allowed"

    return requires


@cute.jit
def matrices(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    sizes: Any,
    lds: Any,
    layout: cutlass.Constexpr,
) -> Any:
    """Tensors A (m,k), B (k,n), C (m,n). One stride of each is 1; `layout` says which."""
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
    """Element (i,j), or 0 outside the matrix, which adds nothing to a sum."""
    value = Float32(0)
    if i < tensor.shape[0] and j < tensor.shape[1]:
        value = tensor[i, j]
    return value


@cute.jit
def store_inside(tensor: cute.Tensor, i: Int32, j: Int32, value: Float32) -> None:
    """Element (i,j) = value, unless that is outside the matrix."""
    if i < tensor.shape[0] and j < tensor.shape[1]:
        tensor[i, j] = value


@cute.jit
def quad(tensor: cute.Tensor, i: Int32, j: Int32) -> cute.Tensor:
    """Four consecutive elements from (i,j) on, one 128-bit access; the address must allow it."""
    pointer = tensor.iterator + cute.crd2idx((i, j), tensor.layout)
    aligned = cute.make_ptr(Float32, pointer.toint(), tensor.memspace, assumed_align=16)
    return cute.make_tensor(aligned, cute.make_layout(4))


@cute.jit
def allows_quads(pointer: cute.Pointer, ld: Int64) -> cutlass.Boolean:
    """Whether every fourth element of a matrix, from its first on, is 16-byte aligned."""
    return pointer.toint() % 16 == 0 and ld % 4 == 0


@cute.jit
def shared_tile(rows: cutlass.Constexpr, cols: cutlass.Constexpr) -> cute.Tensor:
    """A row-major tile (rows, cols) in static shared memory."""
    pointer = cute.arch.alloc_smem(Float32, rows * cols, 16)
    return cute.make_tensor(pointer, cute.make_layout((rows, cols), stride=(cols, 1)))
