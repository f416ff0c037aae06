"""gemmlab.matmul on the host, and on a GPU up to the launches: shapes, strides, errors."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import fake_driver
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gemmlab
from gemmlab.errors import (
    ArrayError,
    DTypeError,
    InputError,
    ShapeError,
    StateError,
    TierError,
    UnknownNameError,
)
from gemmlab.linalg.operands import check_scalars
from gemmlab.linalg.packed import PackedMatrix
from gemmlab.linalg.planned import Counts

SIZES = st.integers(1, 5)
quick = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return np.asarray(rng.standard_normal(shape), np.float32)


@st.composite
def strided(draw: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Draw an array of that shape with gaps, permuted axes or reversed axes."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from([1, 1, 2])) for _ in shape]
    base = numbers(tuple(shape[axis] * gaps[axis] for axis in order), draw(st.integers(0, 9)))
    array = base.transpose(np.argsort(order))
    steps = [draw(st.sampled_from([gap, gap, -gap])) for gap in gaps]
    index: Any = (*(slice(None, None, step) for step in steps), ...)
    return array[index]


@st.composite
def factors(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw compatible operands: 1-D, stacks, broadcast."""
    m, n, k = draw(SIZES), draw(SIZES), draw(SIZES)
    stack = draw(st.lists(SIZES, max_size=3))
    shapes = []
    for matrix in ((m, k), (k, n)):
        own = [draw(st.sampled_from([size, size, 1])) for size in stack]
        own = own[draw(st.integers(0, len(own))) :]
        shapes.append((*own, *matrix))
    if draw(st.integers(0, 4)) == 0:
        shapes[0] = (k,)
    if draw(st.integers(0, 4)) == 0:
        shapes[1] = (k,)
    return draw(strided(shapes[0])), draw(strided(shapes[1]))


def close(result: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    exact = np.matmul(a.astype(float), b.astype(float))
    return result.shape == exact.shape and bool(np.allclose(result, exact, rtol=1e-5, atol=1e-5))


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


A, B = numbers((4, 5)), numbers((5, 6))
OUT = np.zeros((4, 6), np.float32)
READ_ONLY = np.zeros((4, 6), np.float32)
READ_ONLY.flags.writeable = False
BOTH = np.zeros(60, np.float32)
MISTAKES: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
    (A, numbers((4, 6)), {}, ShapeError, r"a has shape \(4, 5\) and b has shape \(4, 6\)"),
    (numbers((2, 4, 5)), numbers((3, 5, 6)), {}, ShapeError, r"stacks \(2,\) and \(3,\)"),
    (np.ones((), np.float32), B, {}, ShapeError, "a is 0-D"),
    (A.astype(float), B, {}, DTypeError, "a has dtype float64"),
    (A, B.astype(np.float16), {}, DTypeError, "b has dtype float16"),
    (A, B, {"beta": 1}, InputError, "beta = 1 without c"),
    (A, B, {"beta": float("nan")}, InputError, "beta = nan without c"),
    (A, B, {"beta": "0"}, DTypeError, "beta is '0'"),
    (A, B, {"c": OUT}, InputError, "c without beta"),
    (A, B, {"alpha": "2"}, DTypeError, "alpha is '2'"),
    (A, B, {"alpha": 1e39}, InputError, r"alpha is 1e\+39, out of the range of float32"),
    (A, B, {"c": OUT, "beta": 10**400}, InputError, "beta is 1000.*out of the range of float32"),
    (A, B, {"c": numbers((3, 6)), "beta": 1}, ShapeError, r"c has shape \(3, 6\)"),
    (A, B, {"out": np.zeros((6, 4), np.float32)}, ShapeError, r"out has shape \(6, 4\)"),
    (BOTH[:20].reshape(4, 5), B, {"out": BOTH[10:34].reshape(4, 6)}, ArrayError, "out .* and a"),
    (A, B, {"precision": "fp32"}, UnknownNameError, "no precision 'fp32'; it must be None or"),
    (A, B, {"precision": 3}, DTypeError, "precision is 3"),
]
HOST_MISTAKES: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
    (A.tolist(), B, {}, DTypeError, "a is a list"),
    (A, B, {"out": READ_ONLY}, ArrayError, "read-only"),
]


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "words", "on_gpu"),
    [
        *((*mistake, False) for mistake in [*MISTAKES, *HOST_MISTAKES]),
        *((*mistake, True) for mistake in MISTAKES),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_a_mistake_is_named_and_nothing_is_written(
    a: Any,
    b: Any,
    options: dict[str, Any],
    error: type[Exception],
    words: str,
    on_gpu: bool,
) -> None:
    before = [x.copy() for x in options.values() if isinstance(x, np.ndarray)]
    arrays = {k: v for k, v in options.items() if isinstance(v, np.ndarray)}
    if on_gpu:
        a, b = fake_driver.Array(a), fake_driver.Array(b)
        options = {k: fake_driver.Array(v) if k in arrays else v for k, v in options.items()}
    with pytest.raises(error, match=words):
        gemmlab.matmul(a, b, **options)
    assert all(np.array_equal(x, y) for x, y in zip(before, arrays.values(), strict=True))


@pytest.mark.usefixtures("gpu")
def test_arrays_in_different_places_are_refused() -> None:
    for a, b in ((A, fake_driver.Array(B)), (fake_driver.Array(A), B)):
        with pytest.raises(ArrayError, match="on the host"):
            gemmlab.matmul(a, b)
    words = r"a \(shape \(4, 5\)\) is on GPU 0 and b \(shape \(5, 6\)\) is on GPU 1"
    with pytest.raises(ArrayError, match=words):
        gemmlab.matmul(fake_driver.Array(A), fake_driver.Array(B, device=1))


@pytest.mark.usefixtures("gpu")
def test_views_between_each_other_may_be_factor_and_result() -> None:
    both = np.zeros((4, 11), np.float32)
    both[:, :5] = A
    out = fake_driver.Array(both[:, 5:])
    gemmlab.matmul(fake_driver.Array(both[:, :5]), fake_driver.Array(B), out=out)
    assert close(out.values, A, B)


@pytest.mark.usefixtures("gpu")
def test_out_whose_elements_share_memory_is_refused() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(6, np.float32), (4, 6), (0, 4))
    with pytest.raises(ArrayError, match="share memory"):
        gemmlab.matmul(fake_driver.Array(A), fake_driver.Array(B), out=fake_driver.Array(out))


class Kind(np.ndarray):
    """A subclass, like that of a units library."""


def test_on_the_host_the_kind_of_array_is_numpys_choice() -> None:
    a, b = A.view(Kind), B.view(Kind)
    assert type(gemmlab.matmul(a, b)) is type(np.matmul(a, b)) is Kind
    c = gemmlab.matmul(a, b, numbers((6,)), alpha=2, beta=3)
    assert type(c) is Kind and c.dtype == np.float32
    assert type(gemmlab.matmul(A[0], B[:, 0], np.ones((), "f4"), beta=1)) is np.float32


@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
def test_masks_are_not_dropped(name: str) -> None:
    arrays: dict[str, Any] = {"a": A, "b": B, "c": OUT, "out": OUT.copy()}
    arrays[name] = np.ma.array(arrays[name], mask=True)
    a, b = arrays.pop("a"), arrays.pop("b")
    with pytest.raises(ArrayError, match=f"{name} is a masked array of shape"):
        gemmlab.matmul(a, b, **arrays, beta=1)


def test_what_dlpack_refuses_is_named() -> None:
    class Sharded:
        def __dlpack_device__(self) -> tuple[int, int]:
            raise BufferError("on two devices")

    class Odd:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> Any:
            raise ValueError("odd")

    with pytest.raises(ArrayError, match=r"DLPack does not report the device of b: on two devices"):
        gemmlab.matmul(A, Sharded())
    with pytest.raises(ArrayError, match="b cannot be read through DLPack: odd"):
        gemmlab.matmul(A, Odd())


class Bare:
    """An array with only the methods that DLPack requires."""

    def __init__(self, array: np.ndarray, device: tuple[int, int]) -> None:
        self._array, self._device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


def test_an_operand_is_packed_once() -> None:
    packed: Any = object.__new__(PackedMatrix)
    packed.side, packed.array, packed.framework = "right", None, fake_driver.Framework()
    packed.descriptor = SimpleNamespace(device=0)
    with pytest.raises(ArrayError, match="a is already packed, for the right side"):
        gemmlab.pack(packed)


def test_arrays_that_tell_no_shape_are_named_too() -> None:
    on_host, on_gpu = Bare(B, (1, 0)), Bare(B, (2, 0))
    assert close(gemmlab.matmul(A, on_host), A, B)
    with pytest.raises(ArrayError, match=r"a \(shape \(4, 5\)\) is on the host and b is on a GPU"):
        gemmlab.matmul(A, on_gpu)
    with pytest.raises(ArrayError, match="a is on the host"):
        gemmlab.pack(on_host)
    product = gemmlab.Matmul(A, B)
    with pytest.raises(ShapeError, match="b is Bare"):
        product.reset_operands(b=on_host)
    with pytest.raises(ShapeError, match="b is ndarray of float64"):
        product.reset_operands(b=B.astype(np.float64))


def test_a_tier_on_the_host_is_refused() -> None:
    with pytest.raises(TierError, match="'fp16x3' cannot run: the arrays are on the host"):
        gemmlab.matmul(A, B, precision="fp16x3")


def test_another_gpu_takes_float32_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver.install(monkeypatch, capability=(8, 0))
    a, b = fake_driver.Array(A), fake_driver.Array(B)
    assert close(gemmlab.matmul(a, b).values, A, B)
    report = gemmlab.last_plan().report()
    assert report.tier == "ieee" and "compute capability 8.0" in report.reason
    with pytest.raises(TierError, match=r"compute capability 8.0"):
        gemmlab.matmul(a, b, precision="bf16x6")


def test_a_product_needs_both_operands() -> None:
    with pytest.raises(DTypeError, match="b is None"):
        gemmlab.matmul(A, None)


@pytest.mark.usefixtures("gpu")
def test_the_report_tells_what_the_gpu_chose() -> None:
    a, b = fake_driver.Array(numbers((2048, 2048))), fake_driver.Array(numbers((2048, 2048)))
    product = gemmlab.Matmul(a, b)
    plan = product.plan()
    assert (plan.tier, plan.fallback) == ("fp16x3", "bf16x6") and plan.tolerated is not None
    run = product._product.planned._run
    assert product.ran().tier == "fp16x3"
    run.found = Counts(at_risk=7, wide=plan.tolerated + 1)
    assert product.ran().tier == "bf16x6" and str(run.found.at_risk) in product.ran().reason
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


@pytest.mark.usefixtures("gpu")
def test_an_array_without_memory_of_its_own_is_refused() -> None:
    a, b = fake_driver.Array(A), fake_driver.Array(B)
    wrappers = fake_driver.Wrapper(A), fake_driver.Wrapper(B)
    for name, pair in (("a", (wrappers[0], b)), ("b", (a, wrappers[1]))):
        with pytest.raises(ArrayError, match=f"{name} is a Wrapper"):
            gemmlab.matmul(*pair)


def test_packing_needs_a_gpu() -> None:
    with pytest.raises(ArrayError, match="on the host"):
        gemmlab.pack(A)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_work_of_a_plan_is_counted() -> None:
    for n, totals in ((512, 0), (2048, 132 * 4 * 128 * 128)):
        a, b = fake_driver.Array(numbers((n, n))), fake_driver.Array(numbers((n, n)))
        gemmlab.matmul(a, b, precision="bf16x6")
        least = 2 * 6 * n * n
        assert least <= gemmlab.last_plan().workspace - totals <= 1.1 * least
