"""A tiled Triton kernel; imported only if Triton is installed."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, m, n, k,
    a_row, a_col, b_row, b_col, c_row, c_col,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):  # fmt: skip
    """C = A·B for strided float32 matrices; strides in elements.

    PRECISION is that of `tl.dot`: "ieee", "tf32", "tf32x3", "bf16x3" or "bf16x6".
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    depth = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        down, along = start + depth[:, None], start + depth[None, :]
        tile_a = tl.load(a + rows * a_row + along * a_col, (rows < m) & (along < k), 0.0)
        tile_b = tl.load(b + down * b_row + cols * b_col, (down < k) & (cols < n), 0.0)
        acc = tl.dot(tile_a, tile_b, acc, input_precision=PRECISION)
    tl.store(c + rows * c_row + cols * c_col, acc, (rows < m) & (cols < n))
