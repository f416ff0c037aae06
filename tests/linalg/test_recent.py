"""Products like ones before: they take the short way, and nothing that differs does."""

from __future__ import annotations

import itertools
from typing import Any

import fake_driver
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_matmul import MISTAKES, READ_ONLY, A, B, close, numbers, quick

import gemmlab
from gemmlab.errors import ArrayError, DTypeError
from gemmlab.linalg import calls, recent

Array = fake_driver.Array


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Products that took the long way."""
    taken: list[Any] = []

    class Bound(calls.Bound):
        __slots__ = ()

        def __init__(self, *args: Any) -> None:
            taken.append(args)
            super().__init__(*args)

    monkeypatch.setattr(calls, "Bound", Bound)
    return taken


PAIRS = {
    "plain": (numbers((4, 5)), numbers((5, 6))),
    "another shape": (numbers((3, 5)), numbers((5, 6))),
    "column-major": (numbers((5, 4)).T, numbers((5, 6))),
    "copied first": (numbers((4, 10))[:, ::2], numbers((5, 6))),
    "one vector": (numbers((5,)), numbers((5, 6))),
    "empty": (numbers((4, 0)), numbers((0, 6))),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("into", [False, True], ids=["new", "out"])
@pytest.mark.parametrize("alpha", [None, 0.1])
def test_the_second_product_takes_the_short_way(
    gpu: Any, bound: list[Any], pair: Any, into: bool, alpha: float | None
) -> None:
    for turn in range(3):
        a, b = (x + np.float32(turn) for x in pair)  # other numbers, at other addresses
        out = Array(np.zeros((a @ b).shape, np.float32)) if into else None
        result = gemmlab.matmul(Array(a), Array(b), out=out, alpha=alpha)
        assert close(result.values, a if alpha is None else np.float32(alpha) * a, b)
        assert not into or result is out
        assert gemmlab.last_plan().k == a.shape[-1]
    assert len(bound) == 1


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
            expected.append((gpu.current if given is None else given, out is None))
    for (stream, current), (right, is_new) in zip(gpu.ran, expected, strict=True):
        assert stream == right and (current == right or not is_new)


@pytest.mark.parametrize(("a", "b", "options", "error", "words"), MISTAKES)
def test_a_mistake_after_a_product_is_named(
    gpu: Any, a: Any, b: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    if options.get("out") is READ_ONLY or isinstance(a, list):
        pytest.skip("a rule of the host alone")
    for precision, into in itertools.product((None, "fp16x3"), (False, True)):
        out = Array(np.zeros((4, 6), np.float32)) if into else None
        gemmlab.matmul(Array(A), Array(B), out=out, precision=precision)
    given = {k: Array(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    with pytest.raises(error, match=words):
        gemmlab.matmul(Array(a), Array(b), **given)


def test_out_that_comes_to_overlap_is_refused(gpu: Any, bound: list[Any]) -> None:
    memory = np.zeros(100, np.float32)
    a, b = Array(memory[:20].reshape(4, 5)), Array(B)
    for start in (40, 20, 70):
        out = Array(memory[start : start + 24].reshape(4, 6))
        assert gemmlab.matmul(a, b, out=out) is out
    assert len(bound) == 1
    with pytest.raises(ArrayError, match="out .* and a"):
        gemmlab.matmul(a, b, out=Array(memory[19:43].reshape(4, 6)))


def test_few_forms_in_turn_all_take_the_short_way(gpu: Any, bound: list[Any]) -> None:
    for _ in range(3):
        for n in range(1, 5):
            a, b = numbers((n, 5)), numbers((5, n))
            assert close(gemmlab.matmul(Array(a), Array(b)).values, a, b)
    assert len(bound) == 4


def test_another_c_takes_the_long_way(gpu: Any, bound: list[Any]) -> None:
    a, b = Array(A), Array(B)
    for shape in ((4, 6), (6,), (4, 1), (4, 6)):
        c = numbers(shape)
        result = gemmlab.matmul(a, b, Array(c), beta=1.0)
        assert np.allclose(result.values, A @ B + c, rtol=1e-5, atol=1e-5)
    assert len(bound) == 3
    with pytest.raises(DTypeError, match="c has dtype float64"):
        gemmlab.matmul(a, b, Array(numbers((4, 6)).astype(float)), beta=1.0)


def test_few_products_are_kept_and_the_last_comes_first(gpu: Any, bound: list[Any]) -> None:
    a, b = Array(A), Array(B)
    for alpha in (1.0, 2.0, 3.0, 4.0, 1.0, 5.0, 1.0):  # 5.0 takes the place of 2.0
        gemmlab.matmul(a, b, alpha=alpha)
        (repeats,) = recent._recent.repeats.values()
        assert repeats[0]._alpha is alpha and len(repeats) <= 4
    assert len(bound) == 5
    gemmlab.matmul(a, b, alpha=2.0)
    assert len(bound) == 6
