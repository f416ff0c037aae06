"""The arguments of a kernel, read off its own definition."""

import inspect
from collections.abc import Callable, Iterator, Mapping

import cutlass
from cutlass import cute

from gemmlab.problems.problem import Kind, Parameter


def signatures(
    pointers: Mapping[str, tuple[str, Kind]], *kernels: Callable[..., None]
) -> dict[str, tuple[Parameter, ...]]:
    """The arguments of each kernel's C ABI in order, by the kernel's name.

    A scalar has the type of its annotation. `pointers` gives, by the pointer's name, the type of
    what it points to and the kind of that memory (`Parameter.kind`). Tensor maps, a kernel's first
    parameters, and the configuration, its last, are not among them. Raises KeyError for a pointer
    that `pointers` lacks.
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
