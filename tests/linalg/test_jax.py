"""`gemmlab.matmul` in functions that JAX transforms, on a GPU or on the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import gemmlab
from gemmlab.errors import (
    DTypeError,
    InputError,
    MissingDependencyError,
    ShapeError,
    TierError,
    UnknownNameError,
)

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy

ON_HOST = jax.default_backend() == "cpu"
pytestmark = [] if ON_HOST else [pytest.mark.gpu]


def normal(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(rng.standard_normal(shape, np.float32))


def assert_product(found: Any, a: Any, b: Any) -> None:
    """The error is at most 16 u of |A||B|."""
    a, b = np.float64(a), np.float64(b)
    assert found.dtype == np.float32
    assert np.all(np.abs(found - a @ b) <= 16 * 2.0**-24 * (np.abs(a) @ np.abs(b)))


SHAPES = [
    ((64, 48), (48, 80)),
    ((48,), (48, 80)),
    ((64, 48), (48,)),
    ((48,), (48,)),
    ((3, 64, 48), (48, 80)),
    ((2, 1, 16, 48), (3, 48, 20)),
    ((0, 48), (48, 8)),
]


@pytest.fixture(autouse=True)
def float32() -> Iterator[None]:
    """JAX's own products, the references, would be in TF32 on GPUs."""
    with jax.default_matmul_precision("float32"):
        yield


@pytest.mark.parametrize(("of_a", "of_b"), SHAPES)
def test_it_multiplies_under_jit(of_a: tuple[int, ...], of_b: tuple[int, ...]) -> None:
    a, b = normal(*of_a), normal(*of_b, seed=1)
    found = jax.jit(gemmlab.matmul)(a, b)
    assert found.shape == np.matmul(np.asarray(a), np.asarray(b)).shape
    assert_product(found, a, b)


def test_the_program_calls_gemmlab() -> None:
    text = jax.jit(gemmlab.matmul).lower(normal(4, 5), normal(5, 6)).as_text()
    assert "callback" in text
    assert "dot_general" not in text


def test_it_computes_with_scalars_and_c() -> None:
    a, b, c = normal(30, 40), normal(40, 20, seed=1), normal(20)
    run = jax.jit(lambda a, b, c: gemmlab.matmul(a, b, c, alpha=0.5, beta=-2))
    expected = 0.5 * np.asarray(a, float) @ np.asarray(b, float) - 2 * np.asarray(c, float)
    np.testing.assert_allclose(run(a, b, c), expected, rtol=0, atol=1e-4)


def test_it_composes_with_other_operations_and_repeats() -> None:
    weights = normal(32, 32, seed=2)
    step = jax.jit(lambda x: jnp.tanh(gemmlab.matmul(x, weights) / 8))
    x = normal(16, 32)
    for _ in range(3):
        expected = np.tanh(np.asarray(x, float) @ np.asarray(weights, float) / 8)
        x = step(x)
        np.testing.assert_allclose(x, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("of_a", "of_b"), SHAPES[:6])
def test_its_gradients_are_those_of_jax(of_a: tuple[int, ...], of_b: tuple[int, ...]) -> None:
    a, b = normal(*of_a), normal(*of_b, seed=1)

    def gradients(multiply: Any) -> Any:
        return jax.grad(lambda a, b: jnp.sin(multiply(a, b)).sum(), (0, 1))(a, b)

    for found, expected in zip(gradients(gemmlab.matmul), gradients(jnp.matmul), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.slow
def test_a_gradient_has_a_gradient() -> None:
    a, b = normal(6, 5), normal(5, 4, seed=1)

    def second(multiply: Any) -> Any:
        first = jax.grad(lambda a: (multiply(a, b) ** 3).sum())
        return jax.grad(lambda a: (first(a) ** 2).sum())(a)

    np.testing.assert_allclose(second(gemmlab.matmul), second(jnp.matmul), rtol=1e-4)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 2)])
def test_it_is_mapped(axes: tuple[int | None, int | None]) -> None:
    shapes = {None: (6, 6), 0: (3, 6, 6), 1: (6, 3, 6), 2: (6, 6, 3)}
    a, b = normal(*shapes[axes[0]]), normal(*shapes[axes[1]], seed=1)
    found = jax.jit(jax.vmap(gemmlab.matmul, axes))(a, b)
    np.testing.assert_allclose(found, jax.vmap(jnp.matmul, axes)(a, b), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda a: gemmlab.matmul(a, a.T.astype(jnp.float16)), DTypeError, "b is float16"),
        (lambda a: gemmlab.matmul(a, a), ShapeError, "3 columns and 2 rows"),
        (lambda a: gemmlab.matmul(a, a[0, 0]), ShapeError, "neither may be a scalar"),
        (lambda a: gemmlab.matmul(a, a.T, out=a), InputError, "neither out nor stream"),
        (lambda a: gemmlab.matmul(a, a.T, a), InputError, "beta"),
        (lambda a: gemmlab.matmul(a, a.T, precision="fp8"), UnknownNameError, "fp8"),
    ],
)
def test_bad_input_raises_while_it_is_traced(call: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        jax.jit(call)(normal(2, 3))


def test_a_tier_runs_on_the_gpu_and_raises_on_the_host() -> None:
    raises = pytest.raises(TierError, match="on the host") if ON_HOST else nullcontext()
    a = normal(64, 64)
    with raises:
        assert_product(jax.jit(lambda a: gemmlab.matmul(a, a, precision="fp16x3"))(a), a, a)


def test_forward_mode_raises_jaxs_error() -> None:
    a = normal(4, 4)
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda a: gemmlab.matmul(a, a), (a,), (a,))


def test_a_version_of_jax_without_callbacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax.experimental.buffer_callback", None)
    monkeypatch.delitem(sys.modules, "gemmlab.linalg.jax_operators", raising=False)
    monkeypatch.delattr(gemmlab.linalg, "jax_operators", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'jax>=0\.7'"):
        jax.jit(gemmlab.matmul)(normal(2, 2), normal(2, 2))
