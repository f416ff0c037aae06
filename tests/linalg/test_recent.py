"""Products like earlier ones take the short path, and only those."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import fake_driver
import numpy as np
import pytest
from drawn import OUT, A, B, close, numbers, quick
from hypothesis import given
from hypothesis import strategies as st
from test_refusals import MISTAKES

import gemmlab
from gemmlab.errors import ArrayError, DTypeError
from gemmlab.linalg import calls, entry, frameworks, packed, recent
from gemmlab.linalg.planning.tiers import NotFaster
from gemmlab.linalg.runtime.launches import Launcher

pytestmark = pytest.mark.usefixtures("slow_multiply_adds")

Array = fake_driver.Array


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Products that took the long path."""
    taken: list[Any] = []

    class Bound(calls.BoundProduct):
        __slots__ = ()

        def __init__(self, *args: Any) -> None:
            taken.append(args)
            super().__init__(*args)

    monkeypatch.setattr(calls, "BoundProduct", Bound)
    return taken


PAIRS = {
    "plain": (numbers((4, 5)), numbers((5, 6))),
    "another shape": (numbers((3, 5)), numbers((5, 6))),
    "column-major": (numbers((5, 4)).T, numbers((5, 6))),
    "copied first": (numbers((4, 10))[:, ::2], numbers((5, 6))),
    "one vector": (numbers((5,)), numbers((5, 6))),
    "empty": (numbers((4, 0)), numbers((0, 6))),
}


@pytest.mark.usefixtures("gpu")
def test_old_forms_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MOST_SEEN", 2)
    assert [calls._was_seen(form) for form in (1, 2, 3, 1, 2, 3)] == 3 * [False] + 3 * [True]
    assert [calls._was_seen(form) for form in (4, 5, 3, 1)] == [False, False, True, False]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("into", [False, True], ids=["new", "out"])
@pytest.mark.parametrize("alpha", [None, 0.1])
@pytest.mark.usefixtures("gpu")
def test_the_third_product_takes_the_short_way(
    bound: list[Any], pair: Any, into: bool, alpha: float | None
) -> None:
    for turn in range(4):
        a, b = (x + np.float32(turn) for x in pair)  # other values at other addresses
        out = Array(np.zeros((a @ b).shape, np.float32)) if into else None
        result = gemmlab.matmul(Array(a), Array(b), out=out, alpha=alpha)
        assert close(result.values, a if alpha is None else np.float32(alpha) * a, b)
        assert not into or result is out
        assert gemmlab.last_plan().k == a.shape[-1]
    assert len(bound) == 2  # a product that comes again is prepared for the short way


def test_each_operand_is_described_once(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, described = list[str](), list[int]()
    find, describe = frameworks.find, gpu.describe

    def recorded_find(x: Any, name: str) -> Any:
        found.append(name)
        return find(x, name)

    def recorded_describe(x: Any) -> Any:
        described.append(id(x))
        return describe(x)

    monkeypatch.setattr(frameworks, "find", recorded_find)
    monkeypatch.setattr(gpu, "describe", recorded_describe)
    arrays = Array(A), Array(B), Array(OUT), Array(OUT.copy())
    a, b, c, out = arrays
    monkeypatch.setattr(gpu, "matcher", lambda array, shaped=True: lambda other: False)
    for _ in range(2):  # the first call plans, the second finds the plan
        gemmlab.matmul(a, b, c, out=out, beta=1)
        assert found == ["a"] and described == [id(x) for x in arrays]
        found.clear()
        described.clear()
    other = type("Other", (Array,), {})(B)  # a subclass: its library is looked up, too
    gemmlab.matmul(a, other, c, out=out, beta=1)
    assert found == ["a", "b"] and described == [id(x) for x in (a, other, c, out)]


OPTIONS = st.fixed_dictionaries(
    {
        "alpha": st.sampled_from([None, 2.0, -0.5]),
        "precision": st.sampled_from([None, "ieee", "fp16x3", "bf16x6"]),
        "stream": st.sampled_from([None, None, 3, 7]),
    }
)
STEPS = st.tuples(
    st.sampled_from(list(PAIRS)),
    st.sampled_from(["new", "out", "new + c", "out + c", "out + out"]),
    st.sampled_from([7, 7, 9]),
    OPTIONS,
)


@quick
@given(st.lists(STEPS, min_size=4, max_size=20))
def test_products_in_any_order_are_those_that_were_asked_for(gpu: Any, steps: list[Any]) -> None:
    gpu.ran.clear()
    expected = []
    for name, form, gpu.current, options in steps:
        a, b = PAIRS[name]
        into, _, added = form.partition(" + ")
        shape = (a @ b).shape
        out = Array(numbers(shape, 1)) if into == "out" else None
        c = out if added == "out" else Array(numbers(shape, 2))
        exact = (options["alpha"] or 1) * (a.astype(float) @ b)
        if added:
            assert c is not None
            exact = exact + 3 * c.values
            options = {**options, "c": c, "beta": 3.0}
        result = gemmlab.matmul(Array(a), Array(b), out=out, **options)
        assert np.allclose(result.values, exact, rtol=1e-5, atol=1e-5)
        assert out is None or result is out
        plan = gemmlab.last_plan()
        assert plan.k == a.shape[-1]
        assert name == "empty" or plan.tier == (options["precision"] or "ieee")
        if plan.tier != "ieee":
            given = options["stream"]
            right = gpu.current if given is None else given
            # A c that could be `out` is copied there.
            expected.append((right, form == "out + c"))
            assert out is not None or result.stream == right
    for (stream, current), (right, copies) in zip(gpu.ran, expected, strict=True):
        assert stream == right and (current == right or not copies)


@pytest.mark.parametrize(("a", "b", "options", "error", "words"), MISTAKES)
@pytest.mark.usefixtures("gpu")
def test_a_mistake_after_a_product_is_named(
    a: Any, b: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    for precision, into in itertools.product((None, "fp16x3"), (False, True)):
        out = Array(np.zeros((4, 6), np.float32)) if into else None
        gemmlab.matmul(Array(A), Array(B), out=out, precision=precision)
    given: dict[str, Any] = {
        k: Array(v) if isinstance(v, np.ndarray) else v for k, v in options.items()
    }
    with pytest.raises(error, match=words):
        gemmlab.matmul(Array(a), Array(b), **given)


@pytest.mark.usefixtures("gpu")
def test_out_that_comes_to_overlap_is_refused(bound: list[Any]) -> None:
    memory = np.zeros(100, np.float32)
    a, b = Array(memory[:20].reshape(4, 5)), Array(B)
    for start in (40, 40, 20, 70):
        out = Array(memory[start : start + 24].reshape(4, 6))
        assert gemmlab.matmul(a, b, out=out) is out
    assert len(bound) == 2
    with pytest.raises(ArrayError, match=r"out .* and a"):
        gemmlab.matmul(a, b, out=Array(memory[19:43].reshape(4, 6)))


@pytest.mark.usefixtures("gpu")
def test_few_forms_in_turn_all_take_the_short_way(bound: list[Any]) -> None:
    for _ in range(3):
        count = len(bound)
        for n in range(1, 5):
            a, b = numbers((n, 5)), numbers((5, n))
            assert close(gemmlab.matmul(Array(a), Array(b)).values, a, b)
    assert len(bound) == count >= 4  # none in the third turn


@pytest.mark.parametrize("kind", [float, np.float32])
@pytest.mark.usefixtures("gpu")
def test_factors_are_compared_by_value(bound: list[Any], kind: Any) -> None:
    a, b, c = Array(A), Array(B), Array(numbers((4, 6)))
    for text in ("0.1", "0.1", "0.1", "0.2", "0.2", "0.2", "0.1"):  # a new object each time
        result = gemmlab.matmul(a, b, c, alpha=kind(text), beta=kind(2 * kind(text)))
        exact = float(text) * (A @ B + 2 * c.values)
        assert np.allclose(result.values, exact, rtol=1e-5, atol=1e-5)
    assert len(bound) == 4
    for alpha in (np.ones(1), np.ones(3)):
        with pytest.raises(DTypeError, match="alpha is array"):
            gemmlab.matmul(a, b, c, alpha=alpha, beta=kind(0.2))  # type: ignore[arg-type]


@pytest.mark.usefixtures("gpu")
def test_out_between_rows_of_a_leaves_the_short_way_to_others(bound: list[Any]) -> None:
    both, other = np.zeros((4, 11), np.float32), Array(np.zeros((4, 11), np.float32)[:, 5:])
    both[:, :5] = A
    a, b, out = Array(both[:, :5]), Array(B), Array(both[:, 5:])
    for to in (out, out, other, other):
        assert gemmlab.matmul(a, b, out=to) is to and close(to.values, A, B)
    assert len(bound) == 3
    assert [len(repeats) for repeats in recent._recent.repeats.values()] == [1]


@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
def test_an_array_that_has_lost_its_memory_is_refused(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As in PyTorch, where storage.resize_(0) only changes the tensor's address to 0."""
    lost: list[Any] = []
    address, describe = gpu.address, gpu.describe

    def describe_kept(array: Any) -> Any:
        if array in lost:
            raise ArrayError("an array without memory")
        return describe(array)

    monkeypatch.setattr(gpu, "address", lambda array: 0 if array in lost else address(array))
    monkeypatch.setattr(gpu, "describe", describe_kept)
    monkeypatch.setattr(gpu, "matcher", lambda array, shaped=True: lambda other: True)
    arrays = {"a": Array(A), "b": Array(B), "c": Array(OUT), "out": Array(OUT.copy())}
    given = arrays["a"], arrays["b"], arrays["c"]
    gemmlab.matmul(*given, out=arrays["out"], beta=1)

    def never(*_: Any) -> None:
        pytest.fail("it was multiplied")

    monkeypatch.setattr(calls.PlannedProduct, "__call__", never)
    lost.append(arrays[name])
    with pytest.raises(ArrayError, match=f"{name} is an array without memory"):
        gemmlab.matmul(*given, out=arrays["out"], beta=1)


@pytest.fixture
def pack(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ARG001
    """Pack without a GPU; the fake GPU multiplies the operand's original array."""
    monkeypatch.setattr(packed, "call", lambda *_: None)
    monkeypatch.setattr(Launcher, "bind", lambda self, launches: [])
    return functools.partial(gemmlab.pack, side="right")


@pytest.mark.usefixtures("gpu")
def test_a_packed_operand_takes_the_short_way_as_long_as_it_is_as_it_was(
    pack: Any, bound: list[Any]
) -> None:
    a, b = Array(A), Array(B)
    first, second = pack(b), pack(b)
    for operand in (first, first, second, second, first, second):
        assert close(gemmlab.matmul(a, operand).values, A, B)
    assert len(bound) == 4
    b.values = B.astype(float)
    with pytest.raises(DTypeError, match="b has dtype float64"):
        gemmlab.matmul(a, first)


def test_an_operand_may_be_packed_by_another_library(
    gpu: Any, pack: Any, bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(fake_driver.Array):
        """An array of the library that packs."""

    library = fake_driver.Framework()
    monkeypatch.setitem(frameworks._found, Other, library)
    operand = pack(Other(B))
    assert operand.framework is library
    for _ in range(2):
        result = gemmlab.matmul(Array(A), operand)
        assert type(result) is Array and close(result.values, A, B)
    assert len(gpu.imports) == len(bound) == 2


@pytest.mark.usefixtures("gpu")
def test_another_c_takes_the_long_way(bound: list[Any]) -> None:
    a, b = Array(A), Array(B)
    for shape in ((4, 6), (4, 6), (6,), (6,), (4, 1), (4, 1), (4, 6)):
        c = numbers(shape)
        result = gemmlab.matmul(a, b, Array(c), beta=1.0)
        assert np.allclose(result.values, A @ B + c, rtol=1e-5, atol=1e-5)
    assert len(bound) == 6
    with pytest.raises(DTypeError, match="c has dtype float64"):
        gemmlab.matmul(a, b, Array(numbers((4, 6)).astype(float)), beta=1.0)


@pytest.mark.usefixtures("gpu")
def test_few_products_are_kept_and_the_last_comes_first(
    bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "_MOST_ALIKE", 8)
    a, b = Array(A), Array(B)
    for alpha in (*map(float, range(1, 9)), 1.0, 9.0, 1.0):  # 9.0 replaces 2.0
        for _ in range(2):
            gemmlab.matmul(a, b, alpha=alpha)
        (repeats,) = recent._recent.repeats.values()
        assert repeats[0]._alpha == alpha and len(repeats) <= 8
    # Each product was planned when it recurred; the first two also on their first call, on which
    # the others ran by formulas.
    assert len(bound) == 9 + 2
    for _ in range(2):
        gemmlab.matmul(a, b, alpha=2.0)
    assert len(bound) == 12


def test_no_product_in_ieee_is_repeated_where_only_faster_ones_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_driver.install(monkeypatch, (8, 0))
    a, b = (fake_driver.Array(np.ones((40, 40), np.float32)) for _ in "ab")
    for _ in range(3):
        gemmlab.matmul(a, b)
    with pytest.raises(NotFaster):
        entry.faster(a, b)
