"""`gemmlab.matmul` and what belongs to it: products of float32 matrices that are already there."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.errors import ArrayError, StateError
from gemmlab.linalg import dynamo, frameworks, host, operands, recent
from gemmlab.linalg.frameworks import Facts
from gemmlab.linalg.operands import Scalars
from gemmlab.linalg.planned import Plan
from gemmlab.linalg.planning import tiers


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
    """alpha·a·b + beta·c, as accurate as float32 arithmetic, on tensor cores where that is faster.

    a (…, m, k), b (…, k, n): float32 arrays of PyTorch, CuPy, NumPy or any library with DLPack, or
    operands of `gemmlab.pack`. Shapes follow NumPy's matmul: 1-D operands, and stacks of matrices
    that broadcast. c: broadcasts to the result (…, m, n) and needs beta; where beta is 0 it is not
    read, as in BLAS, and may be left out. out: where the result is written; it may be c, and
    overlaps neither a nor b. The result is `out`, or a new array of the library of `a`.

    precision: "fp16x3", "bf16x6" or "ieee"; None promises float32 accuracy and takes the fastest.
    `last_plan` tells which and why; `gemmlab docs matmul` tells more. Where CuTe DSL is missing or
    broken, None takes "ieee" and says so in one RuntimeWarning.

    stream: where a GPU's work is enqueued, a handle or an object with __cuda_stream__; by default
    the library's current stream. Nothing waits for the GPU. NumPy arrays are multiplied on the
    host, by BLAS.

    Raises ShapeError, DTypeError, ArrayError (devices, memory), UnknownNameError, TierError (a
    precision that cannot run here), InputError (c without beta), MissingDependencyError and
    DeviceError; nothing has been written then.
    """
    if not dynamo.ready:
        dynamo.prepare()
    is_traced = dynamo.is_traced()
    if is_traced and out is None and stream is None and frameworks.are_tensors(a, b, c):
        from gemmlab.linalg import operators  # which needs PyTorch

        return operators.matmul(a, b, c, alpha=alpha, beta=beta, precision=precision)
    if is_traced or dynamo.callback():
        options = {"alpha": alpha, "beta": beta, "precision": precision, "stream": stream}
        return dynamo.untraced("matmul")(a, b, c, out=out, **options)
    return product(a, b, c, out=out, alpha=alpha, beta=beta, precision=precision, stream=stream)


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
    """`matmul`, where Dynamo is known not to trace."""
    result = recent.again(a, b, c, out, alpha, beta, precision, stream)
    if result is not None:
        return result
    scalars = operands.check_given(b, c, alpha, beta)
    if out is None and stream is None and frameworks.are_transformed(a, b, c):
        from gemmlab.linalg import operators  # which needs PyTorch

        return operators.matmul(a, b, c, alpha=alpha, beta=beta, precision=precision)
    if frameworks.is_on_host(a, "a"):
        given = {"a": a, "b": b, "c": c, "out": out}
        product = HostProduct({n: x for n, x in given.items() if x is not None}, precision)
        computed = product.run(scalars)
        recent.remember(product.plan)
        return host.returned(computed, a) if out is None else out
    from gemmlab.linalg import calls  # which needs a driver

    bound = calls.Bound(a, b, c, out, scalars, precision, stream)
    result = bound.run()
    recent.remember(bound.call.plan)
    if repeat := bound.repeat((a, b, c, out), alpha, beta, precision):
        recent.keep(repeat, a, b)
    return result


@dynamo.opaque
def pack(a: Any, /, *, side: str = "left", precision: str | None = None, stream: Any = None) -> Any:
    """Split an operand once, for many products: `a` for side "left", `b` for side "right".

    a: a float32 array (…, rows, columns) on a GPU. precision: "fp16x3" (None) or "bf16x6". The
    packed operand keeps the array, which must not change as long as it is used: rows and columns
    that are not finite, or out of float16's range, are computed from it. Products on another stream
    than `stream` must wait for this one first, and must have ended when the operand is dropped; a
    CUDA graph needs it as long as it is replayed.

    Raises the errors of `matmul`; ArrayError for an array on the host, where nothing is packed.
    """
    if frameworks.is_on_host(a, "a"):
        raise ArrayError(f"{operands.named('a', a)} is on the host; operands are packed on GPUs")
    from gemmlab.linalg import calls, execution, packed

    framework = calls.framework_of(a)
    given = None if stream is None else frameworks.stream_handle(stream)
    array = calls.imported(framework, "a", a, given) if calls.is_foreign(a) else a
    frameworks.check_form(framework, array, "a")
    facts = framework.facts(array)
    device = operands.check_arrays({"a": facts})
    scheme = packed.check(side, precision, facts, execution.gpu(device).capability)
    handle = framework.stream(device) if given is None else given
    with framework.entered(device, given), execution.current(device):
        return packed.PackedMatrix(array, facts, framework, side, scheme, handle)


@dynamo.opaque
def last_plan() -> Plan:
    """How this thread's last product was planned, and why; its `report()` tells what ran.

    Raises StateError before the first product.
    """
    plan = recent.last_plan()
    if plan is None:
        raise StateError("no product has been computed in this thread yet")
    return plan


class HostProduct:
    """A product of arrays on the host, checked and planned."""

    def __init__(self, given: dict[str, Any], precision: str | None) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        for name, array in given.items():
            on_host = frameworks.is_on_host(array, name)
            if (framework := frameworks.find(array)) is not None:
                frameworks.check_form(framework, array, name)
                operands.check_arrays({name: framework.facts(array)})
            if not on_host:
                raise operands.apart("a", given["a"], "on the host", name, array, "on a GPU")
            self.arrays[name] = host.as_numpy(array, name)
        out = self.arrays.get("out")
        if out is not None and not out.flags.writeable:
            raise ArrayError(f"out has shape {out.shape} and is read-only")
        facts: dict[str, Facts] = {name: host.facts(array) for name, array in self.arrays.items()}
        operands.check_arrays(facts)
        self._sizes = sizes = operands.check_sizes(facts)
        operands.check_overlap(facts)
        case = tiers.Case(sizes.m, sizes.n, sizes.k, sizes.batch)
        choice = tiers.choose(precision, case)
        at = (sizes.m, sizes.n, sizes.k, sizes.batch, "the host")
        self.plan = Plan(*at, choice.tier, choice.reason)

    def run(self, scalars: Scalars) -> np.ndarray:
        a, b, c, out = (self.arrays.get(name) for name in ("a", "b", "c", "out"))
        assert a is not None and b is not None
        return host.multiply(a, b, c, out, scalars.alpha, scalars.beta)
