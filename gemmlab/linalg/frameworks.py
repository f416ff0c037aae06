"""Which library made an array: PyTorch or CuPy.

An array of another library that supports DLPack is imported without a copy into whichever of the
two is installed, and results are exported the same way. DLPack orders the streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from gemmlab.errors import ArrayError, DTypeError, MissingDependencyError
from gemmlab.linalg.arrays import CPU, ArrayDescriptor, Framework
from gemmlab.linalg.cupy_arrays import CuPy
from gemmlab.linalg.torch_arrays import Torch

_FRAMEWORKS: dict[str, Callable[[], Framework]] = {"torch": Torch, "cupy": CuPy}
_ARRAYS = {"torch": "Tensor", "cupy": "ndarray"}  # the base type of each library's arrays
_found: dict[type, Framework | None] = {}


def find(array: Any, name: str) -> Framework | None:
    """Return the framework of operand `name`, or None if neither library made the array.

    Raises ArrayError for an array of a framework that has no memory of its own.
    """
    kind = type(array)
    if kind not in _found:
        owner = _owner(kind)
        found = None if owner is None else framework(owner)
        if found is not None:
            try:
                found.check_kind(kind)
            except ArrayError as error:
                raise ArrayError(f"{name} is {error}") from None
        _found[kind] = found
    return _found[kind]


def _owner(kind: type) -> str | None:
    """Return the name of the framework whose array type `kind` is or derives from."""
    names = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    return next((name for name, array in names if _ARRAYS.get(name) == array), None)


@cache
def framework(name: str) -> Framework:
    return _FRAMEWORKS[name]()


@cache
def carrier() -> Framework:
    """Return the framework that imports arrays of other libraries."""
    for name in _FRAMEWORKS:
        try:
            found = framework(name)
        except ImportError:
            continue
        if found.has_gpu():
            return found
    raise MissingDependencyError(
        "arrays of other libraries on a GPU need PyTorch or CuPy, and neither is installed with "
        "support for GPUs; run: pip install cupy-cuda13x"
    )


def locate(array: Any, name: str) -> tuple[Framework | None, bool]:
    """Return the framework of operand `name`, and whether the array is in host memory.

    Raises DTypeError if it is not an array, and ArrayError if its location is unknown.
    """
    found = find(array, name)
    if found is not None:
        return found, found.is_on_host(array)
    get_device = getattr(array, "__dlpack_device__", None)
    if get_device is None:
        rule = "operands are arrays of PyTorch, CuPy, NumPy or a library with __dlpack_device__"
        raise DTypeError(f"{name} is a {type(array).__name__}; {rule}")
    try:
        device, _ = get_device()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArrayError(f"DLPack does not report the device of {name}: {error}") from error
    return None, bool(device == CPU)


def are_transformed(*operands: Any) -> bool:
    """Whether autograd or torch.func must record a product of these operands."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    records, is_wrapped = torch.is_grad_enabled(), torch._C._functorch.is_functorch_wrapped_tensor
    kind, found = torch.Tensor, False
    for x in operands:
        if x is not None:
            if not isinstance(x, kind):
                return False
            found = found or (records and x.requires_grad) or is_wrapped(x)
    return found


def are_tracers(*operands: Any) -> bool:
    """Whether JAX traces a function that multiplies these operands."""
    jax = sys.modules.get("jax")
    return jax is not None and any(isinstance(x, jax.core.Tracer) for x in operands)


def describe(framework: Framework, array: Any, name: str) -> ArrayDescriptor:
    """Describe operand `name`, an array of this framework. Errors name the operand."""
    try:
        return framework.describe(array)
    except ArrayError as error:
        raise ArrayError(f"{name} is {error}") from None


def stream_handle(stream: Any) -> int:
    """Return the handle of a stream: an int, or an object of PyTorch, CuPy or __cuda_stream__."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise DTypeError(
        f"stream is {stream!r}; it must be a handle (int) or an object with __cuda_stream__"
    )
