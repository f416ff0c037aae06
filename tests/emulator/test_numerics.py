"""Roundings that go wrong if computed through float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from snippets import ptx

from gemmlab.emulator import run
from gemmlab.emulator.arithmetic import compiled, numerics, tensor_core
from gemmlab.emulator.native import fused

WAYS: dict[str, Callable[[], Any]] = {
    "NumPy": lambda: numerics.rounded_fma32,
    "compiled": lambda: fused.ufunc(fused.FMA32),
}


def float32(*bits):
    return [np.array([b], np.uint32).view(np.float32) for b in bits]


@pytest.mark.parametrize(
    ("operands", "wanted"),
    [
        # The exact result is just below the smallest normal number and rounds to a subnormal.
        ((2575304697, 444592143, 0x00800000), 0x007FFFFF),
        # (1 + 2^-12)^2 - 2^-60 is just below a tie, to which float64 rounds it.
        ((0x3F800800, 0x3F800800, 0xA1800000), 0x3F801000),
        # +1·0 - 0 and exact cancellation are +0; a NaN is canonical.
        ((0x3F800000, 0x00000000, 0x80000000), 0x00000000),
        ((0x7F800000, 0x00000000, 0x3F800000), 0x7FFFFFFF),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_fma_rounds_once(operands, wanted, way):
    with np.errstate(all="ignore"):
        result = WAYS[way]()(*float32(*operands))
    assert result.view(np.uint32).tolist() == [wanted]


@pytest.mark.parametrize("size", [1, 15, 16, 17, 4099])
def test_compiled_fma_has_the_bits_of_numpys(size):
    """For arrays of any bits that are dense, strided, or one number for all."""
    given = np.random.default_rng().integers(0, 2**32, (3, 2 * size), dtype=np.uint32)
    a, b, c = given.view(np.float32)
    with np.errstate(all="ignore"):
        for terms in (
            (a, b, c),
            (a[::2], b[:size], c[::-2]),
            (a[0], b, c),
            (a, b[0], c),
            (a[:, None][:9], b, c),
            (a[0], b[0], c[0]),
        ):
            found, wanted = (WAYS[way]()(*terms) for way in WAYS)
            assert found.dtype == np.float32 and found.shape == wanted.shape
            assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("format", ["F16", "E4M3", "E5M2"])
def test_compiled_sums_of_products_have_the_bits_of_numpys(format, monkeypatch):
    """Of numbers with all exponents, and of zeros; rows of A and columns of B are broadcast."""
    rng, operands = np.random.default_rng(), getattr(tensor_core, format)

    def numbers(*shape: int) -> np.ndarray:
        digits = np.round(rng.uniform(1, 2, shape) * 2 ** (operands.digits - 1))
        exponents = rng.integers(operands.lowest, 15, shape) - (operands.digits - 1)
        return rng.choice([-1, 0, 1, 1], shape) * np.ldexp(digits, exponents)

    a, b, c = numbers(19, 40, 1), numbers(19, 1, 24), numbers(40, 24)
    found = []
    for is_compiled in (False, True):
        for operation in (fused.ADD_PRODUCT, fused.LARGEST_SUM):
            function = fused.ufunc(operation) if is_compiled else None
            monkeypatch.setattr(compiled, operation.name, function)
        found.append(tensor_core.dot(a, b, c, operands, step=16))
    assert np.array_equal(found[0].view(np.uint64), found[1].view(np.uint64))


def test_compiled_functions_are_used_when_much_has_run(monkeypatch):
    for name in ("fma32", "add_product", "largest_sum"):
        monkeypatch.setattr(compiled, name, None)
    monkeypatch.setattr(fused, "_executed", 0)
    text = "ld.param.u64 %q0, [p0]; mov.f32 %f1, 0f3F8CCCCD;"
    text = ptx(f"{text} fma.rn.f32 %f1, %f1, %f1, %f1; st.global.f32 [%q0], %f1;", ["u64"])
    x = np.zeros(1, np.float32)

    def launch() -> tuple[Any, bytes]:
        x[:] = 0
        return run(text, None, (1, 1, 1), (1, 1, 1), [x], tier="numpy").counters, x.tobytes()

    first = launch()
    assert compiled.fma32 is None
    monkeypatch.setattr(fused, "WORTH", 1)
    assert launch() == first
    assert compiled.fma32 is fused.ufunc(fused.FMA32) and compiled.add_product is not None
    assert launch() == first
