"""Errors of a product, against float64."""

from __future__ import annotations

from typing import Any

from benchmarks.record import Row

U = 2.0**-24


def exact(a: Any, b: Any) -> tuple[Any, Any]:
    """AB and |A||B| in float64."""
    a, b = a.double(), b.double()
    return a @ b, a.abs() @ b.abs()


def worst_u(c: Any, product: Any, magnitude: Any) -> float:
    """The largest |C - AB| / (|A||B|) of an element in units of u, where |A||B| is not zero."""
    difference = (c.double() - product).abs()
    assert bool((difference[magnitude == 0] == 0).all()), "a sum of zeros is not zero"
    defined = magnitude > 0
    return float((difference[defined] / magnitude[defined]).amax() / U) if defined.any() else 0.0


def norm(c: Any, product: Any) -> float:
    """The relative error in the Frobenius norm."""
    return float((c.double() - product).norm() / product.norm())


def errors(c: Any, product: Any, magnitude: Any) -> Row:
    """Frobenius norm; worst element; mean signed error over mean magnitude. Three digits."""
    bias = ((c.double() - product) * product.sign()).mean() / product.abs().mean()
    values = {
        "frobenius": norm(c, product),
        "componentwise_u": worst_u(c, product, magnitude),
        "bias": float(bias),
    }
    return {name: float(f"{value:.3g}") for name, value in values.items()}
