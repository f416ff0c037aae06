"""gemmlab.torch on a GPU: operators and the replaced kernels, in eager and compiled programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import gemmlab  # noqa: E402
import gemmlab.torch as gt  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),  # Inductor's advice
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),  # PyTorch's own first one
]
U = 2.0**-24
N = 2048  # large enough for tensor cores to be taken


@pytest.fixture(autouse=True)
def own_state() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    gt.disable()


def error(found: Any, *factors: Any) -> float:
    """The largest error of a product in units of u·|A||B|."""
    a, b = (x.detach().double() for x in factors)
    wanted, size = a @ b, a.abs() @ b.abs()
    return float(((found.double() - wanted).abs() / size).max() / U)


def model() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(N, N), torch.nn.GELU(), torch.nn.Linear(N, N)).cuda()


@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "baddbmm", "linear"])
def test_operators_meet_the_rules_of_pytorch(name: str) -> None:
    stack = (2,) if name in ("bmm", "baddbmm") else ()
    a, b = torch.randn(*stack, 32, 48).cuda(), torch.randn(*stack, 48, 64).cuda()
    given: tuple[Any, ...] = (a, b)
    if name in ("addmm", "baddbmm"):
        given = (torch.randn(64).cuda(), a, b)
    elif name == "linear":
        given = (a, b.mT.contiguous(), torch.randn(64).cuda())
    operator = getattr(torch.ops.gemmlab, name).default
    for precision in (None, "fp16x3"):
        torch.library.opcheck(operator, given, {"precision": precision})


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead"])
def test_matmul_differentiates(mode: str | None) -> None:
    def run(x: Any, y: Any) -> Any:
        return gemmlab.matmul(x, y) * 1.0

    step = run if mode is None else torch.compile(run, mode=mode, fullgraph=True)
    for n in (N, N, N, N, N + 256, N + 256):  # a graph is warmed up, recorded, and replayed
        torch.compiler.cudagraph_mark_step_begin()
        a = torch.randn(n, N, device="cuda", requires_grad=True)
        b = torch.randn(N, n, device="cuda", requires_grad=True)
        c = step(a, b)
        assert error(c.detach(), a, b) < 8
        gradient = torch.randn_like(c)
        c.backward(gradient)
        assert error(a.grad, gradient, b.mT) < 8 and error(b.grad, a.mT, gradient) < 8


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead"])
def test_a_program_trains_on_replaced_kernels(mode: str | None) -> None:
    program, x = model(), torch.randn(N, N, device="cuda")
    wanted = program(x)
    wanted.square().mean().backward()
    gradients = [p.grad.clone() for p in program.parameters()]
    program.zero_grad()
    gt.enable()
    step = program if mode is None else torch.compile(program, mode=mode)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        program.zero_grad()
        found = step(x)
        found.square().mean().backward()
    assert gt.report().taken >= 5, gt.report()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for parameter, gradient in zip(program.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a @ b,
        lambda a, b: torch.addmm(a, a, b, beta=0.5),
        lambda a, b: torch.einsum("ij,jk->ik", a, b),
        lambda a, b: torch.nn.functional.linear(a, b),
        lambda a, b: torch.bmm(a[None].expand(2, -1, -1), b[None].expand(2, -1, -1)),
        lambda a, b: torch.cdist(a, b),
        lambda a, b: torch.linalg.matrix_exp(a / 64),
        lambda a, b: torch.mm(a, b, out=torch.empty_like(a)),
    ],
)
def test_what_multiplies_matrices_is_taken(call: Any) -> None:
    a, b = (torch.randn(N, N, device="cuda") for _ in "ab")
    wanted = call(a, b)
    with gt.enabled():
        found = call(a, b)
    assert gt.report().taken >= 1, gt.report()
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_tf32_is_left_alone() -> None:
    large = torch.randn(N, N, device="cuda")
    before = torch.get_float32_matmul_precision()
    with gt.enabled():
        torch.set_float32_matmul_precision("high")
        try:
            _ = large @ large
        finally:
            torch.set_float32_matmul_precision(before)
        assert gt.report().left == {"the program allows TF32": 1}


def test_products_with_a_vector_are_taken() -> None:
    large = torch.randn(N, N, device="cuda")
    with gt.enabled():
        for vector in (large[:, :1].clone(), large[:, :1]):
            found, exact = large @ vector, large.double() @ vector.double()
            torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-3)
        assert gt.report().taken == 2


def test_a_graph_of_cuda_replays_replaced_kernels() -> None:
    a, b = (torch.randn(N, N, device="cuda") for _ in "ab")
    with gt.enabled():
        _ = a @ b
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            c = a @ b
    a.copy_(torch.randn_like(a))
    graph.replay()
    assert error(c, a, b) < 8
