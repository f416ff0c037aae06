"""Products of arrays in host memory, by the BLAS that NumPy calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gemmlab.errors import ArrayError, DTypeError
from gemmlab.linalg import frameworks, operands
from gemmlab.linalg.arrays import HOST, ArrayDescriptor, Framework
from gemmlab.linalg.operands import NAMES, Arrays, Operands, Scalars
from gemmlab.linalg.planned import ProductPlan, Saving, no_saving
from gemmlab.linalg.planning import tiers, times


class HostPlan(NamedTuple):
    """The plan of a product on the host, without its arrays."""

    plan: ProductPlan
    saving: Saving = no_saving


class HostProduct:
    """A planned product of arrays on the host."""

    def __init__(self, described: Operands) -> None:
        named = described.named
        out = described.arrays[3]
        if out is not None and not out.flags.writeable:
            raise ArrayError(f"out has shape {out.shape} and is read-only")
        operands.check_arrays(named)
        sizes = operands.check_sizes(named)
        if out is not None:
            operands.check_overlap(named)
        m, n, k, batch = sizes.m, sizes.n, sizes.k, sizes.batch
        choice = tiers.choose(described.precision, times.Case(m, n, k, batch))
        plan = ProductPlan(m, n, k, batch, "the host", choice.tier, choice.reason)
        self.plan, self.planned = plan, HostPlan(plan)
        self._operands = described

    def is_current(self) -> bool:
        """Whether the product runs where a new one would: always, on the host."""
        return True

    def run(self) -> Any:
        """Compute the product; return `out`, or a new array of the library of a."""
        result = multiply(*self._operands.arrays, *self._operands.scalars)
        out, restore = self._operands.given[3], self._operands.restore
        if out is not None:
            return out
        # The product of two vectors is a NumPy scalar.
        return result if restore is None else restore(np.asarray(result))


def describe(
    framework: Framework | None, given: Arrays, scalars: Scalars, precision: str | None
) -> Operands:
    """Describe a, b, c and out, of which a is on the host, as NumPy arrays without copying.

    `framework` is that of a, or None. Raises DTypeError and ArrayError.
    """
    arrays: list[Any] = []
    descriptors: list[ArrayDescriptor | None] = []
    for name, x in zip(NAMES, given, strict=True):
        array = descriptor = None
        if x is not None:
            owner, on_host = (framework, True) if name == "a" else frameworks.locate(x, name)
            if owner is not None:
                descriptor = frameworks.describe(owner, x, name)
                operands.check_float32(name, descriptor)
            if not on_host:
                place = "on the host"
                raise operands.device_mismatch("a", given[0], place, name, x, "on a GPU")
            array = _as_numpy(owner, x, name)
            descriptor = descriptor or _described(array)
        arrays.append(array)
        descriptors.append(descriptor)
    a, b, c, out = arrays
    restore = _restorer(framework, given[0]) if out is None else None
    return Operands(given, (a, b, c, out), descriptors, scalars, precision, restore=restore)


def _described(array: np.ndarray) -> ArrayDescriptor:
    """Describe a NumPy array; strides that are not whole elements are rounded down."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return ArrayDescriptor(array.ctypes.data, array.shape, strides, array.dtype, HOST)


def _as_numpy(framework: Framework | None, array: Any, name: str) -> np.ndarray:
    """Return a NumPy view of operand `name`. Raises ArrayError if there is none."""
    if isinstance(array, np.ma.MaskedArray):
        rule = "products do not support masked elements; pass its data, e.g. with filled(0)"
        raise ArrayError(f"{name} is a masked array of shape {array.shape}: {rule}")
    if isinstance(array, np.ndarray):
        return array
    if framework is not None:
        array = array.detach()  # DLPack rejects tensors that require grad, even under no_grad
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArrayError(f"{name} cannot be read through DLPack: {error}") from error


def _restorer(framework: Framework | None, a: Any) -> Callable[[Any], Any] | None:
    """Return the function that converts a result to an array of a's library; None for NumPy.

    Raises DTypeError if that library cannot import arrays.
    """
    if isinstance(a, np.ndarray):
        return None
    if framework is not None:
        return framework.from_dlpack
    module = sys.modules[type(a).__module__.partition(".")[0]]
    library = a.__array_namespace__() if hasattr(a, "__array_namespace__") else module
    if not hasattr(library, "from_dlpack"):
        raise DTypeError(f"{library.__name__} has no from_dlpack for the result")
    restore: Callable[[Any], Any] = library.from_dlpack
    return restore


def multiply(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None,
    out: np.ndarray | None,
    alpha: float,
    beta: float,
) -> np.ndarray:
    """Return alpha·a·b + beta·c in float32.

    The result is `out`, which overlaps neither a nor b, or a new array.
    """
    product = np.matmul(a, b, out=out if beta == 0 else None)
    if alpha != 1:
        product *= np.float32(alpha)
    if beta != 0:
        assert c is not None
        product += np.float32(beta) * c
    if out is not None and out is not product:
        out[...] = product
    return product if out is None else out
