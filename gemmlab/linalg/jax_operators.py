"""`matmul` of JAX's traced arrays: under `jax.jit`, `jax.grad` and `jax.vmap`.

A product becomes a callback in the compiled program. When the program reaches it, XLA calls it with
the buffers and the stream, and it enqueues the same kernels as `matmul` of arrays. Its derivative
in reverse mode consists of two products on the same tier, themselves differentiable. Scalars, c and
1-D operands become operations of JAX, which XLA fuses.

Source: JAX's documentation of `jax.experimental.buffer_callback`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gemmlab.errors import DTypeError, MissingDependencyError, ShapeError
from gemmlab.linalg import entry, frameworks
from gemmlab.linalg.arrays import CPU
from gemmlab.linalg.planning import tiers, times

try:
    from jax.experimental.buffer_callback import buffer_callback
except ImportError as error:
    raise MissingDependencyError(
        f"JAX {jax.__version__} lacks jax.experimental.buffer_callback, which products under "
        "jax.jit need; run: pip install 'jax>=0.7'. Outside jax.jit, matmul takes JAX's arrays"
    ) from error


def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float | None = None,
    beta: float | None = None,
    precision: str | None = None,
) -> Any:
    """Compute `gemmlab.matmul` of traced arrays.

    Raises:
        DTypeError: an operand is not a float32 array.
        ShapeError: shapes do not match.
        MissingDependencyError: the arrays are on GPUs, and neither PyTorch nor CuPy is installed.
    """
    tiers.check_precision(precision)
    for name, x in {"a": a, "b": b, "c": c}.items():
        if x is not None and getattr(x, "dtype", None) != jnp.float32:
            kind = getattr(x, "dtype", type(x).__name__)
            raise DTypeError(f"{name} is {kind}; a product under JAX takes float32 arrays")
    if 0 in (a.ndim, b.ndim):
        raise ShapeError(f"a has shape {a.shape} and b {b.shape}; neither may be a scalar")
    is_row, is_column = a.ndim == 1, b.ndim == 1
    a, b = a[None] if is_row else a, b[:, None] if is_column else b
    (m, k), (rows, n) = a.shape[-2:], b.shape[-2:]
    if k != rows:
        raise ShapeError(f"a is {m}×{k} and b {rows}×{n}: {k} columns and {rows} rows differ")
    try:
        jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError as error:
        raise ShapeError(f"stacks {a.shape[:-2]} and {b.shape[:-2]} do not broadcast") from error
    # Raise now what would otherwise be raised inside the compiled program.
    if jax.default_backend() == "cpu":
        tiers.choose(precision, times.Case(m, n, k))
    else:
        frameworks.carrier()
    result = _product(precision, a, b)
    if is_row:
        result = result.squeeze(-2)
    if is_column:
        result = result.squeeze(-1)
    if alpha is not None and alpha != 1:
        result = alpha * result
    return result if c is None or not beta else result + beta * jnp.broadcast_to(c, result.shape)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(precision: str | None, a: Any, b: Any) -> Any:
    """(…, m, k) by (…, k, n); stacks broadcast."""
    stack = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    result = jax.ShapeDtypeStruct((*stack, a.shape[-2], b.shape[-1]), jnp.float32)
    run = partial(_run, precision)
    return buffer_callback(run, result, vmap_method="expand_dims")(a, b)


def _run(precision: str | None, context: Any, out: Any, a: Any, b: Any) -> None:
    """Enqueue the product. XLA calls this with its buffers and, on a GPU, its stream."""
    kind, device = out.__dlpack_device__()
    if kind == CPU:
        entry.product(np.asarray(a), np.asarray(b), out=np.asarray(out), precision=precision)
        return
    framework, stream = frameworks.carrier(), context.stream
    with framework.entered(device, stream):
        a, b, out = (framework.from_dlpack(x) for x in (a, b, out))
    entry.product(a, b, out=out, precision=precision, stream=stream)


def _forward(precision: str | None, a: Any, b: Any) -> tuple[Any, tuple[Any, Any]]:
    return _product(precision, a, b), (a, b)


def _backward(precision: str | None, saved: tuple[Any, Any], gradient: Any) -> tuple[Any, Any]:
    a, b = saved
    of_a = _product(precision, gradient, jnp.matrix_transpose(b))
    of_b = _product(precision, jnp.matrix_transpose(a), gradient)
    return _summed(of_a, a.shape), _summed(of_b, b.shape)


def _summed(x: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the axes that broadcasting added to an operand of this shape."""
    added = x.ndim - len(shape)
    stretched = [i + added for i, size in enumerate(shape) if size != x.shape[i + added]]
    return x.sum((*range(added), *stretched)).reshape(shape)


_product.defvjp(_forward, _backward)
