"""The peak that bounds a kernel's FLOPs in float32: of CUDA cores, or of tensor cores.

Tensor cores multiply in float32 precision by several 16-bit products for each product. The bound is
then that fraction of their 16-bit peak.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from gemmlab.errors import InputError, MissingDependencyError
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Rung

FP32_PEAK = "FP32 peak"
_OF, _PRODUCTS = "16-bit peak of ", " products"


class Peak(NamedTuple):
    """A rate with its name."""

    name: str
    tflops: float

    @property
    def label(self) -> str:
        """The name without what a chart's caption can say: "tensor cores ÷ 3"."""
        return self.name.removeprefix(_OF).removesuffix(_PRODUCTS)


def of_tensor_cores(tensor_tflops: float, products: int = 1) -> Peak:
    """Return the peak of kernels with so many 16-bit products per product; `tensor_tflops` is the
    data sheet's 16-bit peak."""
    name = f"{_OF}tensor cores"
    return Peak(
        name if products == 1 else f"{name} ÷ {products}{_PRODUCTS}", tensor_tflops / products
    )


def products(rung: Rung) -> int | None:
    """Return a rung's 16-bit products per product; None if its configuration states none."""
    scheme = getattr(rung.config, "scheme", None)
    return None if scheme is None else len(scheme.products)


@cache
def recorded_products(problem: str, name: str) -> int | None:
    """Return `products` of the rung that a record names; settings after its name are ignored.

    Also None if there is no such rung, or if kernels cannot be imported.
    """
    try:
        return products(ladder.find(name.partition(" ")[0], problem=problem))
    except (InputError, MissingDependencyError):
        return None
