"""cuBLAS SGEMM: the `ieee` tier on a GPU, float32 multiply-adds (CUBLAS_DEFAULT_MATH).

It is called through its C interface, because its Python bindings cost more time than the small
products it is used for. cuBLAS is column-major: a row-major C is its Cᵀ, and Cᵀ = Bᵀ·Aᵀ.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from gemmlab.errors import DeviceError, MissingDependencyError
from gemmlab.linalg.shapes import Operand, Stack

WORKSPACE = 32 << 20  # bytes: the size that NVIDIA recommends for Hopper GPUs
_PLAIN, _TRANSPOSED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T


@cache
def library() -> Any:
    """Load the cuBLAS library. Raises MissingDependencyError."""
    from cuda import bindings
    from cuda.pathfinder import load_nvidia_dynamic_lib

    try:
        return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    except (OSError, RuntimeError) as error:
        cuda = f"cu{bindings.__version__.partition('.')[0]}"
        raise MissingDependencyError(
            f"precision 'ieee' on a GPU needs cuBLAS ({error}); run: pip install 'gemmlab[{cuda}]'"
        ) from error


class Handle:
    """A cuBLAS handle for the current GPU; it uses one stream at a time."""

    def __init__(self) -> None:
        self._library = library()
        self._handle = ctypes.c_void_p()
        self.call("cublasCreate_v2", ctypes.byref(self._handle), handle=False)
        self._in_use = (-1, -1)  # stream and address of the workspace

    def use(self, stream: int, workspace: int) -> None:
        """Set the stream and the address of a workspace of `WORKSPACE` bytes."""
        if self._in_use != (stream, workspace):
            self.call("cublasSetStream_v2", ctypes.c_void_p(stream))
            sizes = ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE)
            self.call("cublasSetWorkspace_v2", *sizes)
            self._in_use = (stream, workspace)

    def call(self, function: str, *args: Any, handle: bool = True) -> None:
        """Call a cuBLAS function with this handle. Raises DeviceError with name and status."""
        status = getattr(self._library, function)(*([self._handle] if handle else []), *args)
        if status:
            raise DeviceError(f"{function}: cuBLAS status {status}")


class Sgemm:
    """C = alpha·A·B + beta·C.

    `a` describes the rows of A, `b` the columns of B; C has contiguous rows.
    """

    def __init__(self, a: Operand, b: Operand, c: Stack, alpha: float, beta: float) -> None:
        self._alpha, self._beta = ctypes.c_float(alpha), ctypes.c_float(beta)
        self._operations = (
            ctypes.c_int(_TRANSPOSED if b.k_major else _PLAIN),
            ctypes.c_int(_PLAIN if a.k_major else _TRANSPOSED),
        )
        self._sizes = [ctypes.c_int64(size) for size in (c.columns, c.rows, a.depth)]
        self._lds = [ctypes.c_int64(ld) for ld in (b.ld, a.ld, c.row_stride)]
        self._steps = [ctypes.c_int64(step) for step in (b.batch_stride, a.batch_stride, c.step)]
        self._batch = c.batch

    def launch(self, handle: Handle, addresses: tuple[int, int, int]) -> None:
        """Enqueue the product of a, b and c at these addresses."""
        a, b, c = (ctypes.c_void_p(address) for address in addresses)
        matrices: list[Any] = []
        for array, ld, step in zip((b, a, c), self._lds, self._steps, strict=True):
            matrices.append((array, ld) if self._batch == 1 else (array, ld, step))
        left, right, result = matrices
        alpha, beta = ctypes.byref(self._alpha), ctypes.byref(self._beta)
        args = (*self._operations, *self._sizes, alpha, *left, *right, beta, *result)
        if self._batch == 1:
            handle.call("cublasSgemm_v2_64", *args)
        else:
            batch = ctypes.c_int64(self._batch)
            handle.call("cublasSgemmStridedBatched_64", *args, batch)
