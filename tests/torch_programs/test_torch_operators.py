"""The operators of gemmlab.torch on the CPU: derivatives, vmap, torch.compile, export.

They run on CUDA tensors by the same registrations, which test_torch_on_gpu.py exercises.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import gemmlab  # noqa: E402
import gemmlab.torch as gt  # noqa: E402

pytestmark = pytest.mark.slow
F64 = torch.float64
Module: Any = torch.nn.Module


def draw(*shape: int, **options: Any) -> Any:
    return torch.randn(*shape, **options)


def transposed(*shape: int, **options: Any) -> Any:
    """A matrix, or a stack of matrices, that is stored column by column."""
    *stack, rows, columns = shape
    return (
        draw(*stack, columns, rows, **options)
        .mT.detach()
        .requires_grad_(options.get("requires_grad", False))
    )


def arguments(
    name: str, make: Any = draw, **options: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Small operands of an operator and its scalars."""
    stack = (2,) if name in ("bmm", "baddbmm") else ()
    a, b = make(*stack, 3, 4, **options), make(*stack, 4, 5, **options)
    if name in ("addmm", "baddbmm"):
        return (draw(5, **options), a, b), {"beta": 0.5, "alpha": -2.0}
    if name == "linear":
        return (draw(2, 3, 4, **options), make(5, 4, **options), draw(5, **options)), {}
    return (a, b), {}


NAMES = ["mm", "bmm", "addmm", "baddbmm", "linear"]


def own(name: str) -> Any:
    return torch.nn.functional.linear if name == "linear" else getattr(torch, name)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("make", [draw, transposed])
@pytest.mark.parametrize("name", NAMES)
def test_operators_meet_the_rules_of_pytorch(name: str, make: Any) -> None:
    args, scalars = arguments(name, make, requires_grad=True)
    operator = getattr(torch.ops.gemmlab, name).default
    torch.library.opcheck(operator, args, {**scalars, "precision": None})


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name: str) -> None:
    args, scalars = arguments(name, dtype=F64, requires_grad=True)

    def run(*tensors: Any) -> Any:
        return getattr(gt, name)(*tensors, **scalars)

    torch.testing.assert_close(run(*args), own(name)(*args, **scalars))
    assert torch.autograd.gradcheck(run, args)
    assert torch.autograd.gradgradcheck(run, args)


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize(
    ("name", "dims"),
    [
        *[("mm", dims) for dims in [(0, None), (2, None), (None, 1), (0, 2)]],
        *[("bmm", dims) for dims in [(0, None), (None, 3), (1, 0)]],
        *[("addmm", dims) for dims in [(0, None, None), (None, 1, None), (1, 0, 2), (0, None, 0)]],
        *[("baddbmm", dims) for dims in [(0, None, None), (None, 1, None), (1, 0, 2)]],
        *[("linear", dims) for dims in [(0, None, None), (None, 0, 0), (1, 0, None)]],
    ],
)
def test_vmap(name: str, dims: tuple[int | None, ...], beta: float) -> None:
    args, scalars = arguments(name, dtype=F64)
    if scalars:
        scalars["beta"] = beta
    mapped = [
        x if dim is None else torch.stack([x, -x, 2 * x], dim)
        for x, dim in zip(args, dims, strict=True)
    ]
    found = torch.func.vmap(lambda *t: getattr(gt, name)(*t, **scalars), dims)(*mapped)
    wanted = torch.func.vmap(lambda *t: own(name)(*t, **scalars), dims)(*mapped)
    torch.testing.assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_tangents(name: str) -> None:
    args, scalars = arguments(name, dtype=F64)
    tangents = arguments(name, dtype=F64)[0]

    def found(*tensors: Any) -> Any:
        return getattr(gt, name)(*tensors, **scalars)

    def wanted(*tensors: Any) -> Any:
        return own(name)(*tensors, **scalars)

    torch.testing.assert_close(
        torch.func.jvp(found, args, tangents), torch.func.jvp(wanted, args, tangents)
    )
    for i in range(len(args)):  # of one argument alone, and a Hessian's row

        def of(f: Any, i: int = i) -> Any:
            return lambda x: f(*args[:i], x, *args[i + 1 :]).square().sum()

        pair = [
            torch.func.jvp(of(f), args[i : i + 1], tangents[i : i + 1]) for f in (found, wanted)
        ]
        torch.testing.assert_close(*pair)
        rows = [
            torch.func.jvp(torch.func.grad(of(f)), args[i : i + 1], tangents[i : i + 1])
            for f in (found, wanted)
        ]
        torch.testing.assert_close(*rows)


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_functions(name: str) -> None:
    """torch.func: gradients of each sample, Hessians, Jacobians."""
    args, scalars = arguments(name, dtype=F64)
    transforms = {
        "grad": lambda f: torch.func.grad(lambda *t: f(*t).square().sum()),
        "grad of each": lambda f: torch.func.vmap(
            torch.func.grad(lambda *t: f(*t).square().sum()), (None, *(None,) * (len(args) - 2), 0)
        ),
        "jacrev": torch.func.jacrev,
        "hessian": lambda f: torch.func.hessian(lambda *t: f(*t).square().sum()),
    }
    for transform, apply in transforms.items():
        given = args
        if transform == "grad of each":
            given = (*args[:-1], torch.stack([args[-1], 2 * args[-1]]))
        found = apply(lambda *t: getattr(gt, name)(*t, **scalars))(*given)
        wanted = apply(lambda *t: own(name)(*t, **scalars))(*given)
        torch.testing.assert_close(found, wanted, msg=lambda m, name=transform: f"{name}: {m}")


class Model(Module):
    """Two layers by the operators, and one of each kind of product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        hidden = gt.linear(x, self.first.weight, self.first.bias).relu()
        result = gt.linear(hidden, self.second.weight, self.second.bias)
        return gt.bmm(result, result.mT) + gt.mm(x[0], x[0].mT)


@pytest.mark.parametrize("dynamic", [False, True])
def test_one_graph_and_its_gradients(dynamic: bool) -> None:
    torch._dynamo.reset()
    model = Model()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (3, 5):
        x = draw(2, rows, 6)
        found, wanted = compiled(x), model(x)
        torch.testing.assert_close(found, wanted)
        gradients = [
            torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (found, wanted)
        ]
        torch.testing.assert_close(*gradients)


def test_export_keeps_the_operators() -> None:
    model, rows = Model(), torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(model, (draw(2, 3, 6),), dynamic_shapes=({1: rows},))
    called = {str(node.target) for node in program.graph.nodes}
    assert {"gemmlab.mm.default", "gemmlab.bmm.default"} <= called
    x = draw(2, 9, 6)
    torch.testing.assert_close(program.module()(x), model(x))


@pytest.fixture
def process_group() -> Iterator[None]:
    from torch import distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("wrapper", ["DDP", "FSDP"])
@pytest.mark.usefixtures("process_group")
def test_wrapped_modules_train(wrapper: str) -> None:
    """A group of one process, so that the wrappers' hooks and views are there."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    model, x = Model(), draw(2, 3, 6)
    wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    if wrapper == "DDP":
        wrapped: Any = DistributedDataParallel(model)
    else:
        wrapped = fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    wrapped(x).square().sum().backward()
    for parameter, gradient in zip(wrapped.parameters(), wanted, strict=True):
        found = parameter.grad if wrapper == "DDP" else parameter.grad.full_tensor()
        torch.testing.assert_close(found, gradient)


def test_checkpoints_recompute_them() -> None:
    from torch.utils.checkpoint import checkpoint

    model, x = Model(), draw(2, 3, 6, requires_grad=True)
    (wanted,) = torch.autograd.grad(model(x).sum(), x)
    (found,) = torch.autograd.grad(checkpoint(model, x, use_reentrant=False).sum(), x)
    torch.testing.assert_close(found, wanted)


def test_autocast_leaves_them_alone() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert gt.mm(draw(3, 4), draw(4, 5)).dtype == torch.float32


@pytest.mark.parametrize("out", [False, True])
def test_other_threads_may_import_while_a_product_is_compiled(out: bool) -> None:
    """Dynamo iterates over each dictionary that traced code looks into."""
    a, b, c = draw(3, 4), draw(4, 5), draw(3, 5)
    names, done = [f"imported_by_another_thread_{i}" for i in range(200)], threading.Event()

    def others() -> None:
        while not done.is_set():
            for name in names:
                sys.modules[name] = threading  # any module
            for name in names:
                del sys.modules[name]

    def product(x: Any, y: Any) -> Any:
        return gemmlab.matmul(x, y, out=c) if out else gemmlab.matmul(x, y)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(3):
            torch._dynamo.reset()
            found = torch.compile(product, backend="eager")(a, b)
            torch.testing.assert_close(found, a @ b)
    finally:
        done.set()
        thread.join()
