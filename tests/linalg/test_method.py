"""Products on the emulator match the method of `docs/fp16x3.md` bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from test_products import PAIR, SMALL, TOTALS, product

from gemmlab.emulator.arithmetic import tensor_core
from gemmlab.kernels.gemm.sm90.config import FP16X3, LINE, TileConfig
from gemmlab.kernels.gemm.sm90.sizes import MMA_K
from gemmlab.linalg import reference
from gemmlab.linalg.planning import packed, plan

FORMATS = {"float16": tensor_core.F16, "bfloat16": tensor_core.BF16}
# Parts of A and of B in the order of their products: the smallest first, while the sum is small.
PRODUCTS = {
    "fp16x3": ((0, 1), (1, 0), (0, 0)),
    "bf16x6": ((1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0)),
}
CASES = [
    (SMALL, "normal", (64, 64, 96)),
    (SMALL, "tiny", (20, 20, 64)),
    (SMALL, "normal", (12, 70, 150)),  # deeper than the limit for short chains, as set here
    (PAIR, "wide", (30, 33, 101)),
    (TOTALS, "wide", (33, 20, 70)),  # less deep than a total
    (TOTALS, "wide", (33, 20, 350)),
]
SHORT = 101


def operands(family: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(shape)
    m, n, k = shape
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if family == "wide":
        a *= 2.0 ** -rng.integers(0, 40, (m, k))
    if family == "tiny":  # subnormal rows, with a subnormal product
        a[::2] *= 1e-41
        a[1::2] *= 1e-20
        b[:, 1::2] *= 1e-20
    return a.astype(np.float32), b.astype(np.float32)


def documented(a: np.ndarray, b: np.ndarray, tile: TileConfig) -> np.ndarray:
    """The product of finite matrices, by the documented method."""
    scheme, promote_k = tile.scheme, tile.promote_k
    one_way = scheme == FP16X3 and a.shape[1] > SHORT
    rows = reference.pack(a, scheme, "down" if one_way else "nearest")
    columns = reference.pack(b.T, scheme, "up" if one_way else "nearest")
    fill = ((0, 0), (0, 0), (0, -a.shape[1] % LINE))
    left, right = (
        np.pad(reference.as_float32(x.parts, scheme.dtype).astype(float), fill)
        for x in (rows, columns)
    )
    sums, totals = np.zeros((2, len(a), b.shape[1]), np.float32)
    for k in range(0, left.shape[2], promote_k):
        chain = np.zeros(sums.shape)
        for i, j in PRODUCTS[scheme.name]:
            x, y = left[i, :, k : k + promote_k].T, right[j, :, k : k + promote_k].T
            chain = tensor_core.dot(
                x[:, :, None], y[:, None], chain, FORMATS[scheme.dtype], step=MMA_K
            )
        sums += chain.astype(np.float32)
        if tile.total_k and (k + promote_k) % tile.total_k == 0:
            totals, sums = totals + sums, np.zeros_like(sums)
    return np.ldexp(totals + sums, rows.unscale[:, None] + columns.unscale)


@pytest.mark.parametrize(("tile", "family", "shape"), CASES)
@pytest.mark.slow
def test_products_are_what_the_method_says(
    tile: TileConfig, family: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    promote_k = lambda scheme, k: 32 if scheme.short_k is None or k <= SHORT else 64  # noqa: E731
    for module in (packed, plan):
        monkeypatch.setattr(module, "promote_k", promote_k)
    a, b = operands(family, shape)
    c, _ = product(a, b, tile)
    assert np.array_equal(c, documented(a, b, tile))


@pytest.mark.parametrize(("span", "exact"), [(140, True), (150, False)])
@pytest.mark.slow
def test_bfloat16_holds_what_lies_within_2_to_140(span: int, exact: bool) -> None:
    """An element is 2^span times smaller than its neighbour, which is multiplied by zero."""
    a, b = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    a[0, :2] = 2.0**100, 1.2345678 * 2.0 ** (100 - span)
    b[1, 0] = 1.7654321
    c, _ = product(a, b, TOTALS)
    wanted = float(a[0, 1]) * float(b[1, 0])
    assert (abs(float(c[0, 0]) - wanted) <= 2 * 2.0**-24 * wanted) == exact
