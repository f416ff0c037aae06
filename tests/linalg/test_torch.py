"""PyTorch tensors on the host, and those that are rejected; skipped without PyTorch."""

from __future__ import annotations

import threading
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmlab
from gemmlab.errors import ArrayError, DTypeError
from gemmlab.linalg import dynamo
from gemmlab.linalg.torch_arrays import Torch

torch = pytest.importorskip("torch", reason="torch is not installed")
Tensor: Any = torch.Tensor
Module: Any = torch.nn.Module
A, B = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
EXACT = A.numpy() @ B.numpy()


class Wrapped(Tensor):
    """A tensor that wraps another, like DTensor: it has no memory of its own."""

    @staticmethod
    def __new__(cls, held: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any) -> Any:
        raise RuntimeError("of no use here")


class Named(Tensor):
    """A subclass with ordinary storage."""


@pytest.mark.parametrize("a", [A, torch.nn.Parameter(A), A.as_subclass(Named)])
def test_tensors_on_the_host_are_multiplied_there(a: Any) -> None:
    out = torch.zeros(2, 4)
    with torch.no_grad():
        result = gemmlab.matmul(a, B)
        assert gemmlab.matmul(a, B, out=out) is out
    assert type(result) is torch.Tensor
    assert np.array_equal(result.numpy(), EXACT) and np.array_equal(out.numpy(), EXACT)


@pytest.mark.parametrize(
    ("b", "error", "words"),
    [
        (B.bfloat16(), DTypeError, r"b has dtype torch.bfloat16 and shape \(3, 4\)"),
        (B._neg_view(), ArrayError, "b is a tensor .* that is a lazily negated view"),
        (B.to_sparse(), ArrayError, "b is a tensor .* layout torch.sparse_coo"),
        (B.to("meta"), ArrayError, "b is a tensor .* on device meta"),
        (torch._efficientzerotensor((3, 4)), ArrayError, "b is a tensor .* without memory"),
        (Wrapped(B), ArrayError, "b is a Wrapped, which has its own __torch_dispatch__"),
        (torch.nn.Linear(3, 4), DTypeError, "b is a Linear; operands are"),
    ],
)
def test_a_mistake_is_named(b: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        gemmlab.matmul(A, b)


KINDS = {
    "plain": A,
    "other numbers": A + 1,
    "another shape": torch.ones(3, 2),
    "one axis more": A[None],
    "other strides": torch.ones(3, 2).T,
    "another type": A.double(),
    "a parameter": torch.nn.Parameter(A, requires_grad=False),
    "with gradient": A.clone().requires_grad_(),
    "negative": A._neg_view(),
    "sparse": A.to_sparse(),
    "elsewhere": A.to("meta"),
    "an array": A.numpy(),
    "nothing": None,
}
ALIKE = [{"plain", "other numbers"}]


def other_guards(*_: Any, dynamic_shapes: bool) -> Any:
    """As versions of PyTorch have them that take other arguments."""


@pytest.mark.parametrize("guards", ["own", None, other_guards], ids=["guards", "forms", "others"])
@pytest.mark.parametrize("kind", ["plain", "other strides", "another type", "a parameter"])
def test_only_tensors_alike_are_taken_for_alike(kind: str, guards: Any) -> None:
    framework = Torch()
    if guards != "own":
        framework._guards = guards
    alike = framework.matcher(KINDS[kind])
    for name, other in KINDS.items():
        assert alike(other) == (name == kind or {name, kind} in ALIKE), name


def test_a_gradient_counts_where_one_is_taken() -> None:
    framework, weights = Torch(), torch.nn.Parameter(A)
    with torch.no_grad():
        alike = framework.matcher(weights)
        assert alike(weights)
    assert not alike(weights)


@pytest.mark.parametrize("guards", [True, False], ids=["guards", "forms"])
def test_what_tells_tensors_alike_keeps_none(guards: bool) -> None:
    framework, tensor = Torch(), torch.ones(3)
    if not guards:
        framework._guards = None
    kept, alike = weakref.ref(tensor), framework.matcher(tensor)
    del tensor
    assert kept() is None and alike(torch.ones(3))


def test_tensors_like_others_are_described_as_before() -> None:
    framework = Torch()
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    kept = weakref.ref(a)
    describe = framework.describer(a, b)
    assert describe is not None
    del a
    assert kept() is None
    for x, y in (
        (torch.ones(7, 9).T, torch.ones(9, 2)),
        (torch.ones(1, 2), torch.ones(2, 8)[:, ::3]),
    ):
        numbers = *x.shape, *x.stride(), *y.shape, *y.stride()
        assert describe(x, y) == (x.data_ptr(), y.data_ptr(), numbers)
    gradient = torch.ones(4, 5, requires_grad=True)
    others = b.double(), b[0], b[:0], gradient, torch.nn.Parameter(b), b.to_sparse(), b.to("meta")
    for other in (*others, torch._neg_view(b), None, b.numpy()):
        assert describe(b, other) is None
        assert describe(other, b) is None
    assert framework.describer(b, gradient) is None
    with torch.inference_mode():
        assert describe(torch.ones(4, 4), b) is None
    assert torch.func.vmap(lambda x: torch.ones(()) if describe(x, b) is None else x)(b[None]) == 1


def test_a_given_stream_is_left_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    framework: Any = Torch()
    entered = [(1, 0, 1)]  # number, GPU and kind of device
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    framework._object_of = lambda handle, device: SimpleNamespace(
        stream_id=handle, device_index=device, device_type=1
    )
    framework._get_stream = lambda device: entered[-1]
    framework._set_stream = lambda stream_id, device_index, device_type: entered.append(
        (stream_id, device_index, device_type)
    )
    with pytest.raises(ZeroDivisionError), framework.entered(0, 99):
        raise ZeroDivisionError
    assert entered == [(1, 0, 1), (99, 0, 1), (1, 0, 1)]
    framework._empty_strided = lambda *_: 1 // 0
    with pytest.raises(ZeroDivisionError):
        framework.maker((2, 3), 0, 98)()
    assert entered[3:] == [(98, 0, 1), (1, 0, 1)]


def test_memory_that_is_kept_is_allocated_by_another_thread() -> None:
    """torch.compile's CUDA graphs claim what the thread that runs a step allocates."""
    framework: Any = Torch()
    threads: list[Any] = []

    def entered(stream: Any) -> Any:
        threads.append(stream)
        return nullcontext()

    framework._cuda = SimpleNamespace(current_stream=lambda: "own", stream=entered)
    framework.kept(lambda: threads.append(threading.get_ident()))
    assert threads[0] == "own" and threads[1] != threading.get_ident()


@pytest.mark.slow
def test_transforms_and_gradients_go_through_the_operators() -> None:
    stack = torch.stack([A, -A])
    mapped = torch.func.vmap(lambda x: gemmlab.matmul(x, B))(stack)
    torch.testing.assert_close(mapped, stack @ B)
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    result = gemmlab.matmul(a, b, torch.ones(4), alpha=2, beta=3)
    torch.testing.assert_close(result, 2 * A @ B + 3)
    result.sum().backward()
    torch.testing.assert_close(a.grad, 2 * torch.ones(2, 4) @ B.T)
    torch.testing.assert_close(b.grad, 2 * A.T @ torch.ones(2, 4))
    with pytest.raises(ArrayError, match=r"b is a tensor of shape \(3, 4\) that requires grad"):
        gemmlab.matmul(A, b, out=torch.empty(2, 4))


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        *[((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4))],
        *[((6, 1, 2, 3), (5, 3, 4)), ((5, 2, 3), (3,)), ((0, 3), (3, 4)), ((2, 0), (0, 4))],
    ],
)
def test_operators_have_the_shapes_of_matmul(of_a: Any, of_b: Any) -> None:
    a, b = torch.randn(of_a, requires_grad=True), torch.randn(of_b)
    torch.testing.assert_close(gemmlab.matmul(a, b), a @ b)


class Layer(Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(B)

    def forward(self, x: Any) -> Any:
        return gemmlab.matmul(x + 0, self.weight) + 0


def planned(x: Any) -> Any:
    with gemmlab.Matmul(x, B) as product:
        product.plan()
        result = product.execute()
        assert product.ran().tier == gemmlab.last_plan().report().tier
    return result + 0


TRACED: dict[str, Any] = {
    "the function itself": lambda x: gemmlab.matmul(x, B),
    "between operations": lambda x: gemmlab.matmul(x + 0, B) + 0,
    "in a module": Layer(),
}
UNTRACED: dict[str, Any] = {
    "out": lambda x: gemmlab.matmul(x, B, out=torch.empty(len(x), 4)) + 0,
    "arrays of NumPy": lambda x: torch.from_numpy(gemmlab.matmul(x.numpy(), B.numpy())),
    "planned": planned,
}


def forget_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before the first call after `import torch`."""
    monkeypatch.setattr(dynamo, "ready", False)
    monkeypatch.setattr(dynamo, "is_traced", lambda: False)
    monkeypatch.setattr(dynamo, "callback", lambda: None)
    monkeypatch.setattr(dynamo, "_untraced", {})


@pytest.mark.parametrize(
    ("program", "is_new"),
    [(program, False) for program in TRACED | UNTRACED] + [("in a module", True), ("out", True)],
)
@pytest.mark.slow
def test_torch_compile_sees_operators_alone(
    program: str, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """is_new: nothing was called after PyTorch was imported."""
    if is_new:
        forget_torch(monkeypatch)
    else:
        dynamo.prepare()
    nodes = []

    def keep(graph: Any, _: Any) -> Any:
        nodes.extend(graph.graph.nodes)
        return graph

    torch._dynamo.reset()
    is_traced = program in TRACED
    compiled = torch.compile((TRACED | UNTRACED)[program], backend=keep, fullgraph=is_traced)
    with torch.no_grad():
        for rows in (2, 2, 3, 5):  # the second shape is compiled anew, the third for any number
            x = torch.arange(3.0 * rows).reshape(rows, 3)
            assert np.array_equal(compiled(x).numpy(), x.numpy() @ B.numpy())
    inside = [
        node.target
        for node in nodes
        if node.op.startswith("call")
        and "gemmlab/linalg" in str(node.meta.get("stack_trace")).replace("tests/linalg", "")
    ]
    assert set(inside) == ({torch.ops.gemmlab.mm} if is_traced else set())


@pytest.mark.slow
def test_a_graph_without_breaks_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_torch(monkeypatch)
    for _ in "first", "again":
        torch._dynamo.reset()
        compiled = torch.compile(UNTRACED["out"], backend="eager", fullgraph=True)
        with pytest.raises(torch._dynamo.exc.Unsupported, match=dynamo.REASON):
            compiled(A)
        compiled = torch.compile(UNTRACED["out"], backend="eager")
        assert np.array_equal(compiled(A).numpy(), A.numpy() @ B.numpy())
