"""The path of a product. Its operands are described here; later steps take the description.

    entry → gpu_operands or host → calls → operands → planning → runtime

A call like a recent one skips all of this (recent.py). The first call with operands of their form
skips what only later calls need (first_calls.py).
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gemmlab.linalg import frameworks, host, operands, recent
from gemmlab.linalg.operands import Arrays, Operands, Scalars
from gemmlab.linalg.planning import tiers

if TYPE_CHECKING:
    from gemmlab.linalg.calls import BoundProduct
    from gemmlab.linalg.planned import Saving


def product(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    out: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    precision: str | None = None,
    stream: Any = None,
) -> Any:
    """`matmul` of operands that are neither traced nor differentiated."""
    result = recent.again(a, b, c, out, alpha, beta, precision, stream)
    if result is None:
        result = similar(a, b, c, out, alpha, beta, precision, stream)
    if result is None:
        result = compute((a, b, c, out), alpha, beta, precision, stream)
    return result


def faster(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    out: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
) -> tuple[Any, Saving]:
    """Compute a GPU product predicted to be faster than in `ieee`; return it and what it saves.

    Raises NotFaster otherwise, and then nothing has been written.
    """
    result = recent.again(a, b, c, out, alpha, beta, None, None, only_faster=True)
    if result is None:
        result = similar(a, b, c, out, alpha, beta, only_faster=True)
    if result is None:
        result = compute((a, b, c, out), alpha, beta, None, None, only_faster=True)
    return result, recent.saving()


def similar(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    alpha: Any,
    beta: Any,
    precision: str | None = None,
    stream: Any = None,
    only_faster: bool = False,
) -> Any:
    """Compute a product that differs from a recent one in sizes alone; None if there is none."""
    if not (c is out is alpha is beta is precision is stream is None):
        return None
    like = recent.similar()
    found = None if like is None else like.describe(a, b)
    if found is None:
        return None
    calls, _ = _on_gpus()
    return calls.compute_similar(a, b, like, found, only_faster)


def compute(
    given: Arrays,
    alpha: Any,
    beta: Any,
    precision: str | None,
    stream: Any,
    only_faster: bool = False,
) -> Any:
    """Compute a product of a, b, c and out that is not like a recent one. Raises as `matmul`."""
    scalars = operands.check_scalars(given[1], given[2], alpha, beta)
    described, on_host = describe(given, scalars, precision, stream)
    described.only_faster = only_faster
    if on_host:
        bound = host.HostProduct(described)
        result = bound.run()
        recent.remember(bound.planned)
        return result
    calls, _ = _on_gpus()
    return calls.compute(described, alpha, beta)


def describe(
    given: Arrays, scalars: Scalars, precision: str | None, stream: Any
) -> tuple[Operands, bool]:
    """Describe the operands a, b, c and out; tell whether they are on the host.

    Raises as `matmul` does.
    """
    if precision is not None:
        tiers.check_precision(precision)
    framework, on_host = frameworks.locate(given[0], "a")
    if on_host:
        return host.describe(framework, given, scalars, precision), True
    _, gpu_operands = _on_gpus()
    handle = None if stream is None else frameworks.stream_handle(stream)
    return gpu_operands.describe(framework, given, scalars, precision, handle), False


def bind(
    given: Arrays, scalars: Scalars, precision: str | None, stream: Any
) -> host.HostProduct | BoundProduct:
    """Describe the operands a, b, c and out, and plan their product. Raises as `matmul` does."""
    described, on_host = describe(given, scalars, precision, stream)
    if on_host:
        return host.HostProduct(described)
    calls, _ = _on_gpus()
    bound: BoundProduct = calls.BoundProduct(described, calls.form_of(described))
    return bound


@cache
def _on_gpus() -> tuple[ModuleType, ModuleType]:
    """Import modules that import the driver's bindings; an `import` per call would cost 1 µs."""
    from gemmlab.linalg import calls, gpu_operands

    return calls, gpu_operands
