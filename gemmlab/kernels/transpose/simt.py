"""Shared by the transpose kernels: the two matrices, and a square tile in shared memory."""

from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels.common import MAX_STATIC_SMEM, MAX_THREADS, require


@cute.jit
def matrices(a: cute.Pointer, b: cute.Pointer, m: Int32, n: Int32, lda: Int64, ldb: Int64) -> Any:
    """Tensors A (m,n) and B (n,m), both row-major."""
    return (
        cute.make_tensor(a, cute.make_layout((m, n), stride=(lda, 1))),
        cute.make_tensor(b, cute.make_layout((n, m), stride=(ldb, 1))),
    )


@cute.jit
def shared_tile(size: cutlass.Constexpr, stride: cutlass.Constexpr) -> cute.Tensor:
    """A tile (size, size) in static shared memory, rows `stride` words apart."""
    pointer = cute.arch.alloc_smem(Float32, size * stride, 16)
    return cute.make_tensor(pointer, cute.make_layout((size, size), stride=(stride, 1)))


def check_tile(config: Any) -> None:
    """Rules of kernels that move a square tile through shared memory."""
    tile, stride, rows = config.tile, config.stride, config.rows
    require(tile > 0 and rows > 0, f"tile and rows are {tile} and {rows}, must be positive")
    require(tile % rows == 0, f"tile = {tile} is not a multiple of rows = {rows}")
    require(stride >= tile, f"stride = {stride} is less than tile = {tile}")
    threads = tile * rows
    rule = f"{threads} threads per block, at most {MAX_THREADS} are allowed"
    require(threads <= MAX_THREADS, rule)
    smem = 4 * tile * stride
    rule = f"tile takes {smem} bytes of static shared memory, at most {MAX_STATIC_SMEM} are allowed"
    require(smem <= MAX_STATIC_SMEM, rule)
