"""The arguments of a kernel, taken from its definition."""

import inspect
from collections.abc import Callable, Iterator, Mapping

import cutlass
from cutlass import cute

from gemmlab.problems.problem import Kind, Parameter


def signatures(
    pointers: Mapping[str, tuple[str, Kind]], *kernels: Callable[..., None]
) -> dict[str, tuple[Parameter, ...]]:
    """Map each kernel's name to the arguments of its C ABI, in order.

    pointers: element type and `Parameter.kind` of each pointer, by name. A scalar's type is its
    annotation. Tensor maps, the first parameters of a kernel, and the configuration, its last, are
    left out. Raises KeyError for a pointer missing from `pointers`.
    """
    return {kernel.__name__: tuple(_parameters(kernel, pointers)) for kernel in kernels}


def _parameters(
    kernel: Callable[..., None], pointers: Mapping[str, tuple[str, Kind]]
) -> Iterator[Parameter]:
    for name, found in inspect.signature(inspect.unwrap(kernel)).parameters.items():
        if found.annotation is cute.Pointer:
            yield Parameter(name, *pointers[name])
        elif found.annotation not in (cute.CopyAtom, cutlass.Constexpr):
            yield Parameter(name, found.annotation.__name__.lower(), "scalar")
