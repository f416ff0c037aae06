"""What a library of arrays on GPUs must provide: descriptions of arrays, and memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple, Protocol

from gemmlab.errors import ArrayError

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


# Returns the addresses of two arrays, and the shape and strides of each in one tuple.
Describer = Callable[[Any, Any], tuple[int, int, tuple[int, ...]] | None]


@cache
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

        The two may differ from a and b in sizes, strides and addresses alone; else it returns None,
        as for an array that is empty.
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


def within(context: Callable[[], Any], make: Callable[[], Any]) -> Callable[[], Any]:
    """Return `make` within a new context per call, so that threads may share the function."""

    def make_within() -> Any:
        with context():
            return make()

    return make_within


def as_context(manager: Any) -> AbstractContextManager[Any]:
    return manager  # type: ignore[no-any-return]
