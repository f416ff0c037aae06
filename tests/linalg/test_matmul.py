"""gemmlab.matmul on the host, and on a GPU up to the launches: shapes, strides, errors."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import fake_driver
import numpy as np
import pytest
from drawn import OUT, A, B, close, factors, numbers, quick, strided
from hypothesis import given
from hypothesis import strategies as st

import gemmlab
from gemmlab.errors import (
    ArrayError,
    DTypeError,
    InputError,
    ShapeError,
    StateError,
    TierError,
)
from gemmlab.linalg.operands import check_scalars
from gemmlab.linalg.packed import PackedMatrix
from gemmlab.linalg.planned import Counts


@quick
@given(factors())
def test_on_the_host_it_is_numpys_product(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    result = gemmlab.matmul(a, b)
    assert result.dtype == np.float32 and type(result) is type(np.matmul(a, b))
    assert close(result, a, b)


@pytest.mark.parametrize("precision", ["fp16x3", "ieee", None])
@quick
@given(pair=factors())
@pytest.mark.usefixtures("gpu")
def test_on_a_gpu_every_layout_is_read_where_it_lies(
    pair: tuple[np.ndarray, np.ndarray], precision: str | None
) -> None:
    a, b = pair
    result = gemmlab.matmul(fake_driver.Array(a), fake_driver.Array(b), precision=precision)
    assert isinstance(result, fake_driver.Array) and close(result.values, a, b)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16x6", "ieee"])
@quick
@given(pair=factors(), data=st.data())
@pytest.mark.usefixtures("gpu")
def test_on_a_gpu_out_may_have_any_strides_and_c_may_broadcast(
    pair: tuple[np.ndarray, np.ndarray], data: Any, precision: str
) -> None:
    a, b = pair
    exact = 2 * np.matmul(a.astype(float), b.astype(float))
    out = data.draw(strided(exact.shape))
    c = numbers(exact.shape[1:] if exact.ndim else (), 5)
    given_c = out if data.draw(st.booleans()) else c
    exact = exact - 0.5 * given_c
    arrays = [fake_driver.Array(x) for x in (a, b, given_c, out)]
    arrays[2] = arrays[3] if given_c is out else arrays[2]
    left, right, start, to = arrays
    assert gemmlab.matmul(left, right, start, out=to, alpha=2, beta=-0.5, precision=precision) is to
    assert np.allclose(out, exact, rtol=1e-5, atol=1e-5)


def test_a_factor_of_minus_zero_is_zero() -> None:
    assert str(check_scalars(B, OUT, -0.0, -0.0)) == "Scalars(alpha=0.0, beta=0.0)"


def test_a_stack_times_one_matrix_is_one_product(gpu: fake_driver.Framework) -> None:
    a, b = fake_driver.Array(numbers((8, 32, 16))), fake_driver.Array(numbers((16, 24)))
    gemmlab.matmul(a, b)
    assert (gemmlab.last_plan().m, gemmlab.last_plan().batch) == (256, 1)
    assert gpu.made == [(8, 32, 24)]


@pytest.mark.parametrize(
    ("a", "b", "copied"),
    [
        (numbers((70, 50)), numbers((50, 30)), ()),
        (numbers((50, 70)).T, numbers((30, 50)).T, ()),
        (numbers((70, 60))[:, :50], numbers((50, 30)), ()),
        (numbers((70, 100))[:, ::2], numbers((50, 30)), ("a",)),
        (numbers((70, 50)), numbers((50, 30))[::-1], ("b",)),
        (numbers((3, 1, 7, 5)), numbers((1, 4, 5, 3)), ("a", "b")),
        (numbers((3, 4, 7, 5)), numbers((4, 5, 3)), ("b",)),
        (numbers((6, 7, 5)), numbers((6, 5, 3)), ()),
        (np.broadcast_to(numbers((7, 10))[:, ::2], (2, 7, 5)), numbers((5, 3)), ("a",)),
        (np.broadcast_to(numbers((7, 10))[:, ::2], (2, 7, 5)), numbers((4, 1, 5, 3)), ("a", "b")),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_only_what_cannot_be_read_in_place_is_copied(
    a: np.ndarray, b: np.ndarray, copied: tuple[str, ...]
) -> None:
    result = gemmlab.matmul(fake_driver.Array(a), fake_driver.Array(b), precision="fp16x3")
    assert close(result.values, a, b)
    assert gemmlab.last_plan().copies == copied


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(
    ("a", "b"), [((3, 0), (0, 4)), ((0, 5), (5, 4)), ((2, 0, 3), (3, 4)), ((0,), (0,))]
)
@pytest.mark.usefixtures("gpu")
def test_empty_axes_give_zeros_or_nothing(
    a: tuple[int, ...], b: tuple[int, ...], on_gpu: bool
) -> None:
    kind = fake_driver.Array if on_gpu else np.asarray
    exact = np.matmul(np.ones(a), np.ones(b))
    result = gemmlab.matmul(kind(numbers(a)), kind(numbers(b)))
    assert np.array_equal(getattr(result, "values", result), exact)
    c = kind(np.ones(exact.shape, np.float32))
    result = gemmlab.matmul(kind(numbers(a)), kind(numbers(b)), c, beta=3)
    assert np.array_equal(getattr(result, "values", result), exact + 3)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.usefixtures("gpu")
def test_an_empty_out_may_have_any_strides(on_gpu: bool) -> None:
    kind = fake_driver.Array if on_gpu else np.asarray
    out = kind(np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (0, 6), (0, 0)))
    assert gemmlab.matmul(kind(numbers((0, 5))), kind(B), out=out) is out


def test_alpha_beta_and_out_on_the_host() -> None:
    a, b, c = numbers((4, 5)), numbers((5, 6)), numbers((6,))
    out = np.zeros((4, 12), np.float32)[:, ::2]
    assert gemmlab.matmul(a, b, c, out=out, alpha=2, beta=3) is out
    assert np.allclose(out, 2 * (a @ b) + 3 * c, rtol=1e-5, atol=1e-5)
    copy = out.copy()
    gemmlab.matmul(a, b, out, out=out, beta=-1)
    assert np.allclose(out, a @ b - copy, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("made", "precision"),
    [
        *((np.asarray, precision) for precision in (None, "ieee")),
        *((fake_driver.Array, precision) for precision in (None, "ieee", "fp16x3")),
    ],
)
@pytest.mark.parametrize("beta", [0, 0.0, -0.0, np.float32(0)])
@pytest.mark.usefixtures("gpu")
def test_where_beta_is_0_c_is_not_read_and_may_be_left_out(
    made: Any, beta: float, precision: str | None
) -> None:
    a, b = numbers((4, 5)), numbers((5, 6))
    how: dict[str, Any] = {"beta": beta, "precision": precision}
    for c in (None, made(np.full((4, 6), np.nan, np.float32))):
        for _ in range(2):  # the second product takes the short path
            found = gemmlab.matmul(made(a), made(b), c, **how)
            assert close(getattr(found, "values", found), a, b)
    out = made(np.full((4, 6), np.nan, np.float32))
    gemmlab.matmul(made(a), made(b), out, out=out, **how)
    assert close(getattr(out, "values", out), a, b)
    with gemmlab.Matmul(made(a), made(b), **how) as product:
        product.plan()
        found = product.execute()
        assert close(getattr(found, "values", found), a, b)


@pytest.mark.usefixtures("gpu")
def test_views_between_each_other_may_be_factor_and_result() -> None:
    both = np.zeros((4, 11), np.float32)
    both[:, :5] = A
    out = fake_driver.Array(both[:, 5:])
    gemmlab.matmul(fake_driver.Array(both[:, :5]), fake_driver.Array(B), out=out)
    assert close(out.values, A, B)


class Kind(np.ndarray):
    """A subclass, like that of a units library."""


def test_on_the_host_the_kind_of_array_is_numpys_choice() -> None:
    a, b = A.view(Kind), B.view(Kind)
    assert type(gemmlab.matmul(a, b)) is type(np.matmul(a, b)) is Kind
    c = gemmlab.matmul(a, b, numbers((6,)), alpha=2, beta=3)
    assert type(c) is Kind and c.dtype == np.float32
    assert type(gemmlab.matmul(A[0], B[:, 0], np.ones((), "f4"), beta=1)) is np.float32


def test_an_operand_is_packed_once() -> None:
    packed: Any = object.__new__(PackedMatrix)
    packed.side, packed.array, packed.framework = "right", None, fake_driver.Framework()
    packed.descriptor = SimpleNamespace(device=0)
    with pytest.raises(ArrayError, match="a is already packed, for the right side"):
        gemmlab.pack(packed)


def test_another_gpu_takes_float32_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver.install(monkeypatch, capability=(7, 5))
    a, b = fake_driver.Array(A), fake_driver.Array(B)
    assert close(gemmlab.matmul(a, b).values, A, B)
    report = gemmlab.last_plan().report()
    assert report.tier == "ieee" and "compute capability 7.5" in report.reason
    with pytest.raises(TierError, match=r"compute capability 7\.5"):
        gemmlab.matmul(a, b, precision="bf16x6")


@pytest.mark.usefixtures("gpu")
def test_the_report_tells_what_the_gpu_chose() -> None:
    a, b = fake_driver.Array(numbers((2048, 2048))), fake_driver.Array(numbers((2048, 2048)))
    product = gemmlab.Matmul(a, b)
    plan = product.plan()
    assert (plan.tier, plan.fallback) == ("fp16x3", "tf32x3") and plan.tolerated is not None
    run = product._product.planned._run
    assert product.ran().tier == "fp16x3"
    run.found = Counts(at_risk=7, wide=plan.tolerated + 1)
    assert product.ran().tier == "tf32x3" and str(run.found.at_risk) in product.ran().reason
    run.found = Counts(at_risk=9, wide=plan.tolerated, doubtful=3)
    assert product.ran().tier == "fp16x3" and "3 elements of the result" in str(product.ran())


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.usefixtures("gpu")
def test_a_prepared_product_runs_again_with_other_arrays(on_gpu: bool) -> None:
    kind = fake_driver.Array if on_gpu else np.asarray
    out = np.zeros((4, 6), np.float32)
    with gemmlab.Matmul(kind(A), kind(B), out=kind(out)) as product:
        with pytest.raises(StateError, match=r"before Matmul.plan"):
            product.execute()
        assert product.plan() == product.plan()
        product.execute()
        assert close(out, A, B)
        other = numbers((4, 5), 9)
        product.reset_operands(a=kind(other))
        product.execute()
        assert close(out, other, B)
        with pytest.raises(ShapeError, match="was planned for"):
            product.reset_operands(a=kind(numbers((3, 5))))
        with pytest.raises(InputError, match="without c"):
            product.reset_operands(c=kind(out))
        with pytest.raises(DTypeError, match="b is a list"):
            product.reset_operands(b=[1, 2])
        product.execute()
        assert close(out, other, B)
    with pytest.raises(StateError, match="freed"):
        product.execute()


@pytest.mark.usefixtures("gpu")
def test_an_array_of_another_library_comes_back_as_one() -> None:
    class Library:
        from_dlpack = staticmethod(lambda array: ("foreign", array.values))

    foreign: Any = type("Foreign", (), dict(vars(fake_driver.Array)) | {"__module__": "elsewhere"})
    foreign.__array_namespace__ = lambda self: Library
    kind, values = gemmlab.matmul(foreign(A), foreign(B))
    assert kind == "foreign" and close(values, A, B)
    with pytest.raises(ArrayError, match="out is a Foreign"):
        gemmlab.matmul(foreign(A), foreign(B), out=foreign(OUT))


def test_results_go_to_the_library_of_a_whatever_carried_them(gpu: fake_driver.Framework) -> None:
    class Library:
        from_dlpack = staticmethod(lambda array: ("foreign", array.values, gpu.current))

    foreign: Any = type("Foreign", (), dict(vars(fake_driver.Array)) | {"__module__": "elsewhere"})
    foreign.__array_namespace__ = lambda self: Library
    with gemmlab.Matmul(foreign(A), fake_driver.Array(B), stream=99) as product:
        product.plan()
        kind, values, stream = product.execute()
    # DLPack orders current streams, so the product's stream must be current both ways.
    assert kind == "foreign" and close(values, A, B)
    assert (gpu.imports, stream) == ([99], 99)

    out = fake_driver.Array(np.zeros_like(OUT))
    assert gemmlab.matmul(foreign(A), foreign(B), out=out) is out and close(out.values, A, B)
    del foreign.__array_namespace__
    with pytest.raises(InputError, match="a is a Foreign: its library has no __array_namespace__"):
        gemmlab.matmul(foreign(A), foreign(B))


def test_a_product_follows_the_stream_that_is_current(gpu: fake_driver.Framework) -> None:
    a, b = fake_driver.Array(A[:, ::2]), fake_driver.Array(B[::2])  # a is copied first
    with gemmlab.Matmul(a, b, precision="fp16x3") as product:
        product.plan()
        for gpu.current in (7, 11, 11, 7):
            product.execute()
        product.reset_operands(a=fake_driver.Array(numbers((4, 5), 3)[:, ::2]))
        product.execute()
    gpu.current = 12
    gemmlab.matmul(a, b, precision="fp16x3", stream=5)
    assert gpu.ran == [(7, 7), (11, 11), (11, 11), (7, 7), (7, 7), (5, 5)]


def test_a_stream_of_each_thread_is_not_shared(gpu: fake_driver.Framework) -> None:
    gpu.current = 2  # cudaStreamPerThread
    a, b = fake_driver.Array(A), fake_driver.Array(B)
    plans: list[Any] = []

    def multiply() -> None:
        gemmlab.matmul(a, b, precision="fp16x3")
        plans.append(gemmlab.last_plan())

    multiply()
    thread = threading.Thread(target=multiply)
    thread.start()
    thread.join()
    multiply()
    assert plans[0] is plans[2] and plans[0] is not plans[1]


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_work_of_a_plan_is_counted() -> None:
    for n, totals in ((512, 0), (2048, 132 * 4 * 128 * 128)):
        a, b = fake_driver.Array(numbers((n, n))), fake_driver.Array(numbers((n, n)))
        gemmlab.matmul(a, b, precision="bf16x6")
        least = 2 * 6 * n * n
        assert least <= gemmlab.last_plan().workspace - totals <= 1.1 * least
