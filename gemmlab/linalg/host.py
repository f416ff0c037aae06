"""The same product for arrays in the host's memory, by the BLAS that NumPy calls."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gemmlab.errors import ArrayError, DTypeError
from gemmlab.linalg.frameworks import HOST, Facts, find


def facts(array: np.ndarray) -> Facts:
    """Of a NumPy array; strides in elements, rounded down where they are no whole numbers."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Facts(array.ctypes.data, array.shape, strides, array.dtype, HOST)


def as_numpy(array: Any, name: str) -> np.ndarray:
    """The array as NumPy sees it, without a copy. Raises ArrayError where there is no such view."""
    if isinstance(array, np.ma.MaskedArray):
        rule = "a product knows no masked elements; give its data, as by filled(0)"
        raise ArrayError(f"{name} is a masked array of shape {array.shape}: {rule}")
    if isinstance(array, np.ndarray):
        return array
    if find(array) is not None:
        array = array.detach()  # what requires grad may be read where that is switched off
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArrayError(f"{name} cannot be read through DLPack: {error}") from error


def returned(result: np.ndarray, like: Any) -> Any:
    """The result as an array of the library that `like` belongs to. Raises DTypeError where that
    takes none."""
    if isinstance(like, np.ndarray):
        return result
    array = np.asarray(result)  # of two vectors NumPy makes a scalar
    if (framework := find(like)) is not None:
        return framework.from_dlpack(array)
    module = sys.modules[type(like).__module__.partition(".")[0]]
    library = like.__array_namespace__() if hasattr(like, "__array_namespace__") else module
    try:
        return library.from_dlpack(array)
    except AttributeError as error:
        raise DTypeError(f"{library.__name__} has no from_dlpack for the result") from error


def multiply(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None,
    out: np.ndarray | None,
    alpha: float,
    beta: float,
) -> np.ndarray:
    """alpha·a·b + beta·c, in float32: `out`, which overlaps neither a nor b, or what NumPy makes of
    arrays of these types."""
    product = np.matmul(a, b, out=out if beta == 0 else None)
    if alpha != 1:
        product *= np.float32(alpha)
    if beta != 0:
        assert c is not None
        product += np.float32(beta) * c
    if out is not None and out is not product:
        out[...] = product
    return product if out is None else out
