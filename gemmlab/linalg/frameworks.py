"""The libraries of arrays, PyTorch and CuPy: what is asked of them, and which made an array.

An array of another library that supports DLPack is imported without a copy into whichever of the
two is installed, and results are exported the same way. DLPack orders the streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol

from gemmlab.errors import ArrayError, DTypeError, MissingDependencyError

HOST = -1  # device number of host memory
CPU = 1  # kDLCPU in dlpack.h
DEFAULT_STREAMS = (0, 1)  # NULL and cudaStreamLegacy: two handles of the same stream


class ArrayDescriptor(NamedTuple):
    """The properties of an array that a product depends on. Strides are in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    device: int  # GPU number, or HOST

    @property
    def form(self) -> tuple[Any, ...]:
        """All properties except the address; hashable."""
        return self[1:]


Describer = Callable[[Any, Any], tuple[ArrayDescriptor, ArrayDescriptor] | None]


@lru_cache(64)
def is_float32(dtype: Any) -> bool:
    return str(dtype).removeprefix("torch.") == "float32"


class Framework(Protocol):
    """A library of arrays on GPUs."""

    name: str
    from_dlpack: Callable[[Any], Any]

    def describe(self, array: Any) -> ArrayDescriptor:
        """Describe an array. Every call of `matmul` off the short path does this, so it is fast.

        Raises ArrayError for an array that cannot be multiplied.
        """

    def address(self, array: Any) -> int: ...

    def matcher(self, array: Any, shaped: bool = True) -> Callable[[Any], bool]:
        """Return a fast test whether another array has the type and form of this one.

        The test keeps no reference to `array`. Unless `shaped`, it does not compare shapes.
        """

    def describer(self, a: Any, b: Any) -> Describer | None:
        """Return a fast function that describes two arrays like these, or None.

        They may differ from a and b in sizes, strides and addresses alone; else it returns None.
        """

    def is_on_host(self, array: Any) -> bool: ...

    def has_gpu(self) -> bool:
        """Whether the library was built for GPUs and finds one."""

    def check_kind(self, kind: type) -> None:
        """Raise ArrayError for a type whose arrays have no memory of their own."""

    def stream(self, device: int) -> int:
        """Return the handle of the device's current stream."""

    def entered(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        """Make the GPU current in a context, and the stream if one is given."""

    def maker(
        self, shape: tuple[int, ...], device: int, stream: int | None = None
    ) -> Callable[[], Any]:
        """Return a function that allocates uninitialized float32 arrays on the current GPU.

        `device` is the current GPU. Allocation is on `stream`, or else on the current stream.
        """

    def kept(self, make: Callable[[], Any]) -> Any:
        """Call `make`, a maker without a stream; the array may outlive the caller's results."""

    def copied(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Return a contiguous copy of the array, broadcast to `shape`."""

    def assign(self, target: Any, source: Any) -> None: ...

    def scale(self, target: Any, factor: float) -> None:
        """Compute target *= factor; factor 0 sets zeros regardless of the old values."""


def match_by_form(describe: Callable[[Any], ArrayDescriptor], array: Any) -> Callable[[Any], bool]:
    """A `Framework.matcher` that describes the other array and compares forms."""
    kind, form = type(array), describe(array).form

    def matches(other: Any) -> bool:
        try:
            return type(other) is kind and describe(other).form == form
        except ArrayError:
            return False

    return matches


def _torch() -> Framework:
    from gemmlab.linalg.torch_arrays import Torch

    return Torch()


def _cupy() -> Framework:
    from gemmlab.linalg.cupy_arrays import CuPy

    return CuPy()


_FRAMEWORKS: dict[str, Callable[[], Framework]] = {"torch": _torch, "cupy": _cupy}
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


def within(context: Callable[[], Any], make: Callable[[], Any]) -> Callable[[], Any]:
    """Return `make` within a new context per call, so that threads may share the function."""

    def make_within() -> Any:
        with context():
            return make()

    return make_within


def as_context(manager: Any) -> AbstractContextManager[Any]:
    return manager  # type: ignore[no-any-return]
