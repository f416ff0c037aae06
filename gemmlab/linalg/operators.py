"""The operators `gemmlab::mm`, `addmm`, `bmm`, `baddbmm` and `linear`.

They take the arguments of PyTorch's operators of the same names, and `precision`, a tier of
`gemmlab.matmul`. They have derivatives of any order in forward and reverse mode, computed on the
same tier, and work under `torch.compile`, `torch.export`, `torch.func` and in CUDA graphs.

CUDA tensors are multiplied by `gemmlab.matmul`, with its errors. CPU tensors of any dtype are
passed to PyTorch's operator of the same name.

Conventions: PyTorch, "The Custom Operators Manual".
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from gemmlab.core.packages import TORCH
from gemmlab.linalg import entry

with TORCH.importing():
    import torch
    from torch import Tensor
    from torch._functorch.autograd_function import enable_single_level_autograd_function
    from torch.autograd import forward_ad

_LIBRARY = torch.library.Library("gemmlab", "DEF")
_PRECISION = "str? precision=None"
_SCALED = f"*, float beta=1, float alpha=1, {_PRECISION}"


def mm(a: Tensor, b: Tensor, *, precision: str | None = None) -> Tensor:
    """Return a·b: (m, k) by (k, n)."""
    return torch.ops.gemmlab.mm(a, b, precision=precision)


def bmm(a: Tensor, b: Tensor, *, precision: str | None = None) -> Tensor:
    """Return a·b for each pair of matrices of two stacks: (s, m, k) by (s, k, n)."""
    return torch.ops.gemmlab.bmm(a, b, precision=precision)


def addmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    precision: str | None = None,
) -> Tensor:
    """Return beta·c + alpha·a·b; c broadcasts to (m, n) and is not read if beta is 0."""
    scalars = {"beta": beta, "alpha": alpha}
    return torch.ops.gemmlab.addmm(c, a, b, **scalars, precision=precision)


def baddbmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    precision: str | None = None,
) -> Tensor:
    """Return beta·c + alpha·a·b for each pair of matrices; c broadcasts to (s, m, n)."""
    scalars = {"beta": beta, "alpha": alpha}
    return torch.ops.gemmlab.baddbmm(c, a, b, **scalars, precision=precision)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, precision: str | None = None
) -> Tensor:
    """Return x·weightᵀ + bias: x (…, k), weight (n, k), bias (n)."""
    return torch.ops.gemmlab.linear(x, weight, bias, precision=precision)


def matmul(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float | None = None,
    beta: float | None = None,
    precision: str | None = None,
) -> Tensor:
    """Compute `gemmlab.matmul` with the operators above."""
    vector_a, vector_b = a.dim() == 1, b.dim() == 1
    if vector_a:
        a = a[None]
    if vector_b:
        b = b[:, None]
    if b.dim() == 2 and a.dim() > 2:
        result = mm(a.flatten(0, -2), b, precision=precision).unflatten(0, a.shape[:-1])
    elif a.dim() == 2 and b.dim() == 2:
        result = mm(a, b, precision=precision)
    else:
        stack = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (x.expand(*stack, *x.shape[-2:]).flatten(0, -3) for x in (a, b))
        result = bmm(a, b, precision=precision).unflatten(0, stack)
    if vector_a:
        result = result.squeeze(-2)
    if vector_b:
        result = result.squeeze(-1)
    if alpha is not None and alpha != 1:
        result = alpha * result
    return result if c is None or not beta else result + beta * c


def _define(
    name: str, arguments: str, run: Callable[..., Tensor], on_cpu: Callable[..., Tensor]
) -> None:
    """Define an operator with its CUDA kernel, its CPU function and a fake implementation."""
    tags = (torch.Tag.pt2_compliant_tag,)
    _LIBRARY.define(f"{name}({arguments}) -> Tensor", tags=tags)
    _LIBRARY.impl(name, run, "CUDA")

    def host(*args: Any, precision: str | None = None, **scalars: float) -> Tensor:
        # Disable autocast, which would convert the arguments of PyTorch's operator.
        with torch.autocast("cpu", enabled=False):
            return on_cpu(*args, **scalars)

    def fake(*args: Any, precision: str | None = None, **scalars: float) -> Tensor:
        shaped = on_cpu(*args, **scalars)
        return shaped.new_empty(shaped.shape)

    _LIBRARY.impl(name, host, "CPU")
    torch.library.register_fake(f"gemmlab::{name}", fake, lib=_LIBRARY)


def _product(a: Tensor, b: Tensor, *, precision: str | None = None) -> Tensor:
    # Autograd has recorded the operator already.
    with torch.no_grad():
        return entry.product(a, b, precision=precision)


def _sum_product(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,  # the dispatcher omits arguments that have their default value
    alpha: float = 1,
    precision: str | None = None,
) -> Tensor:
    with torch.no_grad():
        return entry.product(a, b, c, alpha=alpha, beta=beta, precision=precision)


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, precision: str | None = None
) -> Tensor:
    rows, weight = x.reshape(-1, x.shape[-1]), weight.t()
    if bias is None:
        result = mm(rows, weight, precision=precision)
    else:
        result = addmm(bias, rows, weight, precision=precision)
    return result.reshape(*x.shape[:-1], weight.shape[1])


_define("mm", f"Tensor a, Tensor b, *, {_PRECISION}", _product, torch.mm)
_define("bmm", f"Tensor a, Tensor b, *, {_PRECISION}", _product, torch.bmm)
_define("addmm", f"Tensor c, Tensor a, Tensor b, {_SCALED}", _sum_product, torch.addmm)
_define("baddbmm", f"Tensor c, Tensor a, Tensor b, {_SCALED}", _sum_product, torch.baddbmm)
_LIBRARY.define(f"linear(Tensor x, Tensor weight, Tensor? bias=None, *, {_PRECISION}) -> Tensor")
_LIBRARY.impl("linear", _linear, "CompositeImplicitAutograd")


# -- derivatives


def _differentiate(name: str, multiply: Callable[..., Tensor]) -> None:
    """Register an operator's derivatives, which are products computed by `multiply`.

    For C = beta·c + alpha·A·B and the gradient G of C they are alpha·G·Bᵀ, alpha·Aᵀ·G, and beta·G
    summed to the shape of c. This does not use `torch.library.register_autograd`, which lacks
    forward mode and returns zero tangents there.
    """
    operator = getattr(torch.ops.gemmlab, name).default

    def below(keys: Any, tensors: tuple[Tensor, ...], options: dict[str, Any]) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *tensors, **options)

    # The autograd kernel runs once per level of torch.func and handles only that level.
    class Product(torch.autograd.function._SingleLevelFunction):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, keys: Any, options: dict[str, Any], *tensors: Tensor) -> Tensor:
            ctx.options, ctx.shape_of_c = options, tensors[0].shape
            ctx.save_for_backward(*tensors[-2:])
            ctx.save_for_forward(*tensors[-2:])
            # Gradients are disabled within this function, but the level below may record them.
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                return below(keys, tensors, options)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
            a, b = ctx.saved_tensors
            *of_c, wants_a, wants_b = ctx.needs_input_grad[2:]
            scaled, precision = ctx.options.get("alpha", 1) * gradient, ctx.options["precision"]
            grads: list[Tensor | None] = [None, None]
            if of_c:
                beta = ctx.options["beta"]
                grads.append(beta * gradient.sum_to_size(ctx.shape_of_c) if of_c[0] else None)
            grads.append(multiply(scaled, b.mT, precision=precision) if wants_a else None)
            grads.append(multiply(a.mT, scaled, precision=precision) if wants_b else None)
            return tuple(grads)

        @staticmethod
        def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
            a, b = ctx.saved_tensors
            *of_c, of_a, of_b = tangents[2:]
            precision = ctx.options["precision"]
            terms = []
            if of_a is not None:
                terms.append(multiply(of_a, b, precision=precision))
            if of_b is not None:
                terms.append(multiply(a, of_b, precision=precision))
            total = ctx.options.get("alpha", 1) * sum(terms)
            if of_c and of_c[0] is not None:
                shape = (*a.shape[:-1], b.shape[-1])
                total = total + ctx.options["beta"] * of_c[0].expand(shape)
            return total

    def kernel(keys: Any, *tensors: Tensor, precision: str | None = None, **scalars: Any) -> Tensor:
        if scalars or len(tensors) == 3:
            scalars = {"beta": 1, "alpha": 1, **scalars}
        options = {**scalars, "precision": precision}
        records = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if records or forward_ad._current_level >= 0:
            with enable_single_level_autograd_function():
                return Product.apply(keys, options, *tensors)
        return below(keys, tensors, options)

    _LIBRARY.impl(name, kernel, "Autograd", with_keyset=True)


for _name, _multiply in {"mm": mm, "addmm": mm, "bmm": bmm, "baddbmm": bmm}.items():
    _differentiate(_name, _multiply)


# -- torch.func.vmap: adds a stack axis


def _first(x: Tensor, dim: int | None, size: int) -> Tensor:
    """Return the tensor with the mapped dimension first."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _mm_over(
    info: Any, dims: tuple[Any, ...], a: Tensor, b: Tensor, *, precision: str | None = None
) -> tuple[Tensor, int]:
    if dims[1] is None:  # merge all rows into one product
        a = a.movedim(dims[0], 0)
        return mm(a.flatten(0, 1), b, precision=precision).unflatten(0, a.shape[:2]), 0
    a, b = (_first(x, dim, info.batch_size) for x, dim in zip((a, b), dims[:2], strict=True))
    return bmm(a, b, precision=precision), 0


def _bmm_over(
    info: Any, dims: tuple[Any, ...], a: Tensor, b: Tensor, *, precision: str | None = None
) -> tuple[Tensor, int]:
    a, b = (_first(x, dim, info.batch_size) for x, dim in zip((a, b), dims[:2], strict=True))
    stacks = a.shape[:2]
    return bmm(a.flatten(0, 1), b.flatten(0, 1), precision=precision).unflatten(0, stacks), 0


def _added_over(product: Callable[..., tuple[Tensor, int]]) -> Callable[..., tuple[Tensor, int]]:
    def run(
        info: Any,
        dims: tuple[Any, ...],
        c: Tensor,
        a: Tensor,
        b: Tensor,
        *,
        beta: float = 1,
        alpha: float = 1,
        precision: str | None = None,
    ) -> tuple[Tensor, int]:
        if dims[1] is None and dims[2] is None:
            size = info.batch_size
            a = a.expand(size, *a.shape)
            dims = (dims[0], 0, None)
        result, _ = product(info, dims[1:], a, b, precision=precision)
        if alpha != 1:
            result = alpha * result
        if beta == 0:
            return result, 0
        if dims[0] is not None:
            c = c.movedim(dims[0], 0)
            missing = result.dim() - c.dim()
            c = c.reshape(c.shape[0], *(1,) * missing, *c.shape[1:])
        return result + beta * c, 0

    return run


for _name, _rule in {
    "mm": _mm_over,
    "bmm": _bmm_over,
    "addmm": _added_over(_mm_over),
    "baddbmm": _added_over(_bmm_over),
}.items():
    torch.library.register_vmap(f"gemmlab::{_name}", _rule, lib=_LIBRARY)

# Teach DTensor where the operators may run, if the program uses it. `gemmlab.distributed` is built
# on this module, and does the same.
if "torch.distributed.tensor" in sys.modules:
    importlib.import_module("gemmlab.distributed.sharding")
