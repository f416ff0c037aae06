"""`gemmlab.matmul`, `pack` and `last_plan`: products of float32 matrices already in memory.

Products that autograd, Dynamo or JAX must record become operators; `entry` computes all others.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gemmlab.errors import ArrayError, InputError, StateError
from gemmlab.linalg import dynamo, entry, frameworks, operands, recent
from gemmlab.linalg.planned import ProductPlan

# The part that multiplies DTensors is built on this one, so it is not imported above.
_DISTRIBUTED = "gemmlab.distributed"


@dynamo.hide
def matmul(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    out: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    precision: str | None = None,
    stream: Any = None,
) -> Any:
    """Compute alpha·a·b + beta·c with float32 accuracy, on tensor cores where that is faster.

    Shapes follow NumPy's matmul: 1-D operands, and stacks of matrices that broadcast. The call
    enqueues the work and does not wait for the GPU. NumPy arrays are multiplied on the host, by
    BLAS. `last_plan` reports the chosen precision and the reason; see `gemmlab docs matmul`.
    DTensors are multiplied on their mesh, and the result is one: `gemmlab.distributed.matmul`.

    Args:
        a: (…, m, k), a float32 array of PyTorch, CuPy, NumPy or any library with DLPack, or a
            left operand of `gemmlab.pack`.
        b: (…, k, n), likewise.
        c: float32, broadcasts to the result (…, m, n), and requires `beta`. If `beta` is 0, it is
            not read, as in BLAS, and may be omitted.
        out: receives the result, float32 (…, m, n). It may be `c` and must overlap neither `a`
            nor `b`.
        alpha: factor of a·b, 1 by default.
        beta: factor of c, required with `c`.
        precision: "fp16x3", "fp16x3s", "bf16x6", "tf32x3", "fma" or "ieee". None selects the
            fastest with float32 accuracy; if no kernels are built and none can be compiled, that
            is "ieee", with one RuntimeWarning.
        stream: the CUDA stream for the work, a handle or an object with `__cuda_stream__`. None is
            the current stream of the library of `a`.

    Returns:
        `out`, or a new array (…, m, n) of the library of `a`.

    Raises:
        ShapeError: shapes do not match.
        DTypeError: an operand is not a float32 array.
        ArrayError: an array is on the wrong device or in unusable memory, or overlaps `out`.
        InputError: `c` without `beta`, `beta` without `c`, or an invalid `alpha` or `beta`.
        UnknownNameError: no precision has that name.
        TierError: this device cannot run the requested precision.
        MissingDependencyError: a package that the arrays require is missing or broken.
        DeviceError: there is no usable GPU, or the driver reported an error.

    If it raises, nothing has been written.

    Examples:
        >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
        >>> b = np.ones((3, 2), np.float32)
        >>> gemmlab.matmul(a, b)
        array([[ 3.,  3.],
               [12., 12.]], dtype=float32)
        >>> gemmlab.matmul(a, b, np.float32([1, 2]), beta=10)
        array([[13., 23.],
               [22., 32.]], dtype=float32)
    """
    if not dynamo.ready:
        dynamo.prepare()
    is_traced = dynamo.is_traced()
    if is_traced and out is None and stream is None and dynamo.are_tensors(a, b, c):
        from gemmlab.linalg import operators  # imports PyTorch

        return operators.matmul(a, b, c, alpha=alpha, beta=beta, precision=precision)
    if is_traced or dynamo.callback():
        options = {"alpha": alpha, "beta": beta, "precision": precision, "stream": stream}
        return dynamo.untraced("matmul")(a, b, c, out=out, **options)
    result = recent.again(a, b, c, out, alpha, beta, precision, stream)
    if result is None:
        result = entry.similar(a, b, c, out, alpha, beta, precision, stream)
    if result is not None:
        return result
    if _are_distributed(a, b, c, out):
        if stream is not None:
            raise InputError("products of DTensors run on PyTorch's current stream: omit stream")
        multiply = importlib.import_module(_DISTRIBUTED).matmul
        return multiply(a, b, c, out=out, alpha=alpha, beta=beta, precision=precision)
    if out is None and stream is None and frameworks.are_transformed(a, b, c):
        from gemmlab.linalg import operators  # imports PyTorch

        operands.check_scalars(b, c, alpha, beta)
        return operators.matmul(a, b, c, alpha=alpha, beta=beta, precision=precision)
    if frameworks.are_tracers(a, b, c):
        from gemmlab.linalg import jax_operators  # imports JAX

        operands.check_scalars(b, c, alpha, beta)
        if out is not None or stream is not None:
            raise InputError("under JAX's transformations, matmul takes neither out nor stream")
        return jax_operators.matmul(a, b, c, alpha=alpha, beta=beta, precision=precision)
    return entry.compute((a, b, c, out), alpha, beta, precision, stream)


@dynamo.opaque
def pack(a: Any, /, *, side: str = "left", precision: str | None = None, stream: Any = None) -> Any:
    """Pack an operand on a GPU once, to multiply it many times.

    The packed operand keeps a reference to the array, which must not change while it is in use:
    rows and columns that are not finite, or out of float16's range, are computed from it. Products
    on streams other than `stream` must wait for `stream` first, and must have completed before the
    operand is deleted. A CUDA graph needs the operand for as long as it is replayed.

    Args:
        a: float32 (…, rows, columns), on a GPU.
        side: "left" to use it as `a` of `matmul`, "right" as `b`.
        precision: "fp16x3" or "bf16x6"; None is "fp16x3".
        stream: as for `matmul`.

    Returns:
        A `PackedMatrix`, which `matmul` and `Matmul` take in place of the array.

    Raises:
        ArrayError: the array is on the host, or is already packed.
        UnknownNameError: no side or precision has that name.
        ShapeError: the array is empty.
        TierError: the precision is "fp16x3s", "tf32x3", "fma" or "ieee", which take no packed
            operand, or this device cannot run it.
        GemmlabError: otherwise as `matmul`.

    Examples:
        >>> w = gemmlab.pack(weights, side="right")  # doctest: +SKIP
        >>> y = gemmlab.matmul(x, w)  # doctest: +SKIP
    """
    framework, on_host = frameworks.locate(a, "a")
    if on_host:
        raise ArrayError(
            f"{operands.named('a', a)} is on the host; operands can be packed only on a GPU"
        )
    from gemmlab.linalg import gpu_operands, packed
    from gemmlab.linalg.runtime import gpus

    if isinstance(a, packed.PackedMatrix):
        raise ArrayError(f"a is already packed, for the {a.side} side; pack the array itself")
    given = None if stream is None else frameworks.stream_handle(stream)
    framework, array, descriptor = gpu_operands.describe_one(framework, a, given)
    device = operands.check_arrays({"a": descriptor})
    choice = packed.check(side, precision, descriptor, gpus.gpu(device).capability)
    handle = framework.stream(device) if given is None else given
    with framework.entered(device, given), gpus.current(device):
        return packed.PackedMatrix(array, descriptor, framework, side, choice, handle)


@dynamo.opaque
def free_workspaces() -> None:
    """Return the memory that products on GPUs keep for later products.

    Later products allocate new memory. CUDA graphs that CuPy recorded with products in them must
    not be replayed afterwards; those of PyTorch own their memory.

    Examples:
        >>> gemmlab.free_workspaces()
    """
    # Unless this module was imported, there are no workspaces.
    workspaces = sys.modules.get("gemmlab.linalg.runtime.workspaces")
    if workspaces is not None:
        workspaces.free_workspaces()


@dynamo.opaque
def last_plan() -> ProductPlan:
    """Return the plan of this thread's last product: the precision, and why it was chosen.

    Raises:
        StateError: no product has been computed in this thread.

    Examples:
        >>> _ = gemmlab.matmul(np.eye(2, dtype=np.float32), np.ones((2, 2), np.float32))
        >>> plan = gemmlab.last_plan()
        >>> plan.tier, plan.m, plan.n, plan.k
        ('ieee', 2, 2, 2)
    """
    plan = recent.last_plan()
    if plan is None:
        raise StateError("no product has been computed in this thread yet")
    return plan


def _are_distributed(*operands: Any) -> bool:
    """Whether an operand is a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(isinstance(x, module.DTensor) for x in operands)
