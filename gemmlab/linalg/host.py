"""The same product for arrays in the host's memory, by the BLAS that NumPy calls."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gemmlab.errors import ArrayError, DTypeError
from gemmlab.linalg import shapes
from gemmlab.linalg.frameworks import HOST, Facts


def facts(array: np.ndarray) -> Facts:
    """Of a NumPy array; strides in elements, rounded down where they are no whole numbers."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Facts(array.ctypes.data, array.shape, strides, array.dtype, HOST)


def as_numpy(array: Any, name: str) -> np.ndarray:
    """The array as NumPy sees it, without a copy."""
    if isinstance(array, np.ndarray):
        return array
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArrayError(f"{name} cannot be read through DLPack: {error}") from error


def returned(result: np.ndarray, like: Any) -> Any:
    """The result as an array of the library that `like` belongs to."""
    if isinstance(like, np.ndarray):
        return result[()]  # of two vectors NumPy makes a scalar
    module = sys.modules[type(like).__module__.partition(".")[0]]
    library = like.__array_namespace__() if hasattr(like, "__array_namespace__") else module
    try:
        return library.from_dlpack(result)
    except AttributeError as error:
        raise DTypeError(f"{library.__name__} has no from_dlpack for the result") from error


def multiply(
    sizes: shapes.Sizes,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None,
    out: np.ndarray | None,
    alpha: float,
    beta: float,
) -> np.ndarray:
    """alpha·a·b + beta·c, in float32. `out` overlaps neither a nor b."""
    product = out if out is not None and beta == 0 else None
    if product is None:
        product = np.empty(sizes.result, np.float32)
    np.matmul(a, b, out=product)
    if alpha != 1:
        product *= np.float32(alpha)
    if beta != 0:
        assert c is not None
        product += np.float32(beta) * c
    if out is not None and out is not product:
        out[...] = product
        return out
    return product
