"""gemmlab.torch.enable() with the kernels of the CPU replaced in place of a GPU's."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import gemmlab  # noqa: E402
import gemmlab.torch as gt  # noqa: E402
from gemmlab.linalg import entry  # noqa: E402
from gemmlab.linalg.host import HostPlan  # noqa: E402
from gemmlab.linalg.planning.tiers import NotFaster  # noqa: E402
from gemmlab.torch import override  # noqa: E402


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every product that gemmlab can take is predicted to be faster by a second."""
    monkeypatch.setattr(HostPlan, "saving", lambda _: 1.0)
    override._enable("CPU")
    yield
    gt.disable()
    assert override._state.library is None


attention = torch.nn.MultiheadAttention(6, 2, batch_first=True)


def scaled_dot_product() -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(X, X, X)


A, B, X = torch.randn(6, 6), torch.randn(6, 6), torch.randn(2, 5, 6)
CALLS: dict[str, tuple[Any, int]] = {
    "@": (lambda: A @ B, 1),
    "mm": (lambda: torch.mm(A, B), 1),
    "mm out": (lambda: torch.mm(A, B, out=torch.empty(6, 6)), 1),
    "addmm": (lambda: torch.addmm(A, A, B, beta=0.5, alpha=2), 1),
    "addmm out": (lambda: torch.addmm(A[0], A, B, out=torch.empty(6, 6)), 1),
    "addmm_": (lambda: A.clone().addmm_(A, B, beta=-1), 1),
    "bmm": (lambda: torch.bmm(X, X.mT), 1),
    "bmm out": (lambda: torch.bmm(X, X.mT, out=torch.empty(2, 5, 5)), 1),
    "baddbmm": (lambda: torch.baddbmm(X[0, :, :5], X, X.mT, alpha=-1), 1),
    "baddbmm_": (lambda: X.new_ones(2, 5, 5).baddbmm_(X, X.mT, beta=2), 1),
    "einsum": (lambda: torch.einsum("bij,jk->bik", X, A), 1),
    "linear": (lambda: torch.nn.functional.linear(A, B, A[0]), 1),
    "matmul of a stack": (lambda: X @ A, 1),
    "multi_dot": (lambda: torch.linalg.multi_dot([A, B, A]), 2),
    "attention": (lambda: attention(X, X, X, need_weights=True)[0], 4),
    "attention without weights": (lambda: attention(X, X, X, need_weights=False)[0], 2),
    "attention's math path": (lambda: scaled_dot_product(), 2),
    "cdist": (lambda: torch.cdist(A, B, compute_mode="use_mm_for_euclid_dist"), 1),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("on")
def test_what_multiplies_matrices_runs_on_gemmlab(name: str) -> None:
    call, products = CALLS[name]
    found = call()
    report = gt.report()
    assert (report.taken, report.saved_s, report.left) == (products, products * 1.0, {})
    gt.disable()
    torch.testing.assert_close(found, call())
    assert gt.report().taken == products  # PyTorch's own kernel is back


@pytest.mark.usefixtures("on")
def test_products_known_to_be_no_faster_are_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def faster(a: Any, *_: Any, **options: Any) -> Any:
        assert options == {"out": None}
        asked.append(a.stride())
        raise NotFaster("slow: 2 µs")

    monkeypatch.setattr(entry, "faster", faster)
    for x in (A, A, A.T, A.T):
        torch.testing.assert_close(x @ B, (x.double() @ B.double()).float())
    assert asked == [(6, 1), (1, 6)]
    assert gt.report().left == {"slow": 4, "not float32": 4}


@pytest.mark.usefixtures("on")
def test_backward_passes_do_too() -> None:
    model = torch.nn.Linear(6, 6)
    model(A).sum().backward()
    assert gt.report().taken == 2  # forward, and the gradient of the weight
    assert model.weight.grad.shape == (6, 6)


@pytest.mark.slow
@pytest.mark.usefixtures("on")
def test_a_product_into_its_own_factor_is_left_to_pytorch() -> None:
    x = A.clone()
    x.addmm_(x, B)
    ((reason, count),) = gt.report().left.items()
    assert (gt.report().taken, count) == (0, 1) and "share memory" in reason


@pytest.mark.slow
@pytest.mark.usefixtures("on")
def test_compiled_programs_do_too() -> None:
    torch._dynamo.reset()
    model = torch.compile(torch.nn.Linear(6, 6), backend="aot_eager", fullgraph=True)
    model(A).sum().backward()
    assert gt.report().taken == 2


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: A.double() @ B.double(), "not float32"),
        (lambda: A.bfloat16() @ B.bfloat16(), "not float32"),
        (lambda: torch.mm(A, B, out=torch.empty(36)[:0]), "out has another shape"),
    ],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.usefixtures("on")
def test_what_is_left_alone_runs_as_before_and_says_why(call: Any, reason: str) -> None:
    found = call()
    assert (gt.report().taken, gt.report().left) == (0, {reason: 1})
    assert f"1 ran as before: {reason}" in str(gt.report())
    gt.disable()
    assert torch.equal(found, call())


@pytest.mark.usefixtures("on")
def test_a_program_that_allows_tf32_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(override, "_allows_tf32", lambda: True)
    assert torch.equal(A @ B, torch.mm(A, B))
    assert gt.report().left == {"the program allows TF32": 2}


@pytest.mark.parametrize("setting", ["highest", "high"])
def test_the_programs_own_setting_is_read_not_changed(setting: str) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        assert override._allows_tf32() == (setting == "high")
        assert torch.get_float32_matmul_precision() == setting
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("on")
def test_errors_are_those_of_pytorch() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.mm(A, X[0])
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.mm(A, B.double())
    with pytest.raises(RuntimeError, match="batch2"):
        torch.bmm(X[:1], X.mT)  # gemmlab.matmul broadcasts
    with pytest.raises(RuntimeError):
        torch.mm(A[0], B[0])


def test_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    gt.disable()  # of nothing
    with gt.enabled():
        library = override._state.library
        with gt.enabled():
            assert override._state.library is library is not None
        gt.enable()
        assert override._state.library is library
    assert override._state.library is None


@pytest.mark.slow
def test_without_cuda_a_program_runs_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with gt.enabled():
        torch.testing.assert_close(A @ B, torch.from_numpy(A.numpy() @ B.numpy()))
        assert gt.report() == gt.Report(0, {}, 0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.usefixtures("on")
def test_autocast_and_vmap_work_as_before() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert (A @ B).dtype == torch.bfloat16
    mapped = torch.func.vmap(torch.mm)(torch.stack([A, B]), torch.stack([B, A]))
    torch.testing.assert_close(mapped, torch.stack([A @ B, B @ A]))
    torch.func.jvp(torch.mm, (A, B), (A, B))


def test_the_example_of_enable_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = doctest.DocTestFinder().find(gt.enable, globs={"gemmlab": gemmlab, "torch": torch})
    assert not doctest.DocTestRunner().run(example).failed, capsys.readouterr().out
