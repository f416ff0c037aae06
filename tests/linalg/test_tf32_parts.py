"""Sums of products of TF32 parts: as documented, bit for bit, and within the accuracy contract."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np
import pytest
from test_direct import SHALLOW as TILES
from test_direct import U, run

from benchmarks import families
from gemmlab.emulator.arithmetic import tensor_core
from gemmlab.emulator.arithmetic.formats import narrow, widen
from gemmlab.kernels.gemm.sm90.direct_config import CHUNK, LEAST_K, STEP, DirectConfig
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.problems.rounding import sum_bound_u

# Parts of A and of B in the order of their products.
PRODUCTS = {
    3: ((0, 1), (1, 0), (0, 0)),
    4: ((1, 1), (0, 1), (1, 0), (0, 0)),
}
KINDS = sorted(LEAST_K)
SHALLOW = [kind for kind in KINDS if kind[0] > 3]


def parts_of(x: np.ndarray) -> list[np.ndarray]:
    """The high and the low part of float32 numbers, as float64."""
    high = nearest(x)
    return [high.astype(np.float64), cut(x - high).astype(np.float64)]


def even(x: np.ndarray) -> np.ndarray:
    """The numbers, odd ones replaced by the next ones away from zero."""
    return np.where(x.view(np.uint32) & 1, np.nextafter(x, np.copysign(np.float32(np.inf), x)), x)


def nearest(x: np.ndarray) -> np.ndarray:
    return widen(narrow(x, "tf32", "rna"), "tf32")


def cut(x: np.ndarray) -> np.ndarray:
    return widen(x.view(np.uint32), "tf32")


def documented(
    a: np.ndarray, b: np.ndarray, products: int, chain: int, k_major: bool = True
) -> np.ndarray:
    """Sums along the first axis of a · b, which broadcast; `k_major`: the layout of A."""
    depth = -(-len(a) // CHUNK) * CHUNK
    order = np.arange(depth)
    if k_major:  # a step takes the first two, or the last two, of each four of 16 of k
        order = order.reshape(-1, 4, 2, 2).transpose(0, 2, 1, 3).ravel()
    left, right = (
        parts_of(np.pad(x, ((0, depth - len(x)), *[(0, 0)] * (x.ndim - 1)))[order])
        for x in (a, b if products == 3 else even(b))
    )
    sums, zero = [], np.zeros(np.broadcast_shapes(a.shape[1:], b.shape[1:]))
    for k in range(0, depth, chain):
        total, own = zero, slice(k, k + chain)
        for i, j in PRODUCTS[products]:
            pair = left[i][own], right[j][own]
            total = tensor_core.dot(*pair, total, tensor_core.TF32, step=STEP)
        sums.append(total.astype(np.float32))
    chains = CHUNK // chain
    while chains > 1:
        sums = [x + y for x, y in zip(sums[::2], sums[1::2], strict=True)]
        chains //= 2
    return np.asarray(sum(sums[1:], sums[0]))


def close_to_ties(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers from 1 to 2 whose parts lose as much as possible, or just not."""
    last = (0, 1, 2047, 2048, 2049, 3073, 4095, 4096, 4097, 6143, 6145, 8191)
    high = np.where(rng.random(shape) < 0.5, 0, rng.integers(0, 1024, shape))
    return np.asarray(1 + high / 1024 + rng.choice(last, shape) * 2.0**-23, np.float32)


def vectors(name: str, count: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of vectors (k, count) whose products lose much."""
    rng = np.random.default_rng(k)
    a, b = close_to_ties(rng, k, count), close_to_ties(rng, k, count)
    signs = rng.choice((-1.0, 1.0), (k, count))
    kind, _, value = name.partition(" ")
    if kind == "one-hot":
        a *= np.arange(k)[:, None] == rng.integers(0, k, count)
    elif kind == "equal":
        a[:], b[:] = a[0], b[0]
    elif kind in ("lognormal", "signed"):
        a, b = (np.exp(float(value) * rng.standard_normal((k, count))) for _ in "ab")
        a = a * signs if kind == "signed" else a
    elif kind == "more":  # a term that loses bits, and small ones of the same sign
        a *= np.float32(2.0 ** -float(value))
        a[0] = 1 + rng.integers(2048, 4096, count) * 2.0**-23
    elif kind == "less":  # small ones of the other sign
        a *= np.float32(-(2.0 ** -float(value)))
        a[0] = 1 + 2.0**-10 - rng.integers(2048, 4096, count) * 2.0**-23
    return a.astype(np.float32), b.astype(np.float32)


NAMES = ["close to ties", "one-hot", "equal"]
NAMES += [f"{kind} {sigma}" for kind in ("lognormal", "signed") for sigma in (1, 2, 3, 4)]
NAMES += [f"{kind} {bits}" for kind in ("more", "less") for bits in (6, 10, 14, 18, 22, 24)]


def error_u(name: str, count: int, k: int, products: int, chain: int) -> float:
    """The largest error of `count` sums of the family."""
    a, b = vectors(name, count, k)
    terms = a.astype(np.longdouble) * b
    error = np.abs(documented(a, b, products, chain) - terms.sum(axis=0))
    return float((error / np.abs(terms).sum(axis=0)).max()) / U


def derived_u(k: int, products: int, chain: int) -> float:
    """The bound of `docs/fp16x3.md`, "Without packing"."""
    steps, chains = chain // STEP, min(CHUNK, k) / chain
    too_small, too_large = {3: (8, 4), 4: (2, 4)}[products]
    own = max(too_small + 5.5 * steps, too_large + 4 * steps)
    return own + ceil(log2(ceil(chains))) + ceil(k / CHUNK) - 1


@pytest.mark.parametrize(("products", "chain"), SHALLOW)
def test_the_derived_bound_is_within_the_contract(products: int, chain: int) -> None:
    """From the least k on, to that of products which take no such configuration."""
    for k in range(LEAST_K[products, chain], LEAST_K[3, 32]):
        assert derived_u(k, products, chain) < sum_bound_u(k), k


@pytest.mark.parametrize(("products", "chain"), KINDS)
def test_the_worst_products_are_within_the_derived_bound(products: int, chain: int) -> None:
    """And some come close to it. A hundredth is what the small products and parts add."""
    k = LEAST_K[products, chain]
    # Of the families that come close, more sums.
    counts = {name: 5000 if name.startswith(("more", "less")) else 500 for name in NAMES}
    found = [error_u(name, count, k, products, chain) for name, count in counts.items()]
    bound = derived_u(k, products, chain)
    assert 0.6 * bound < max(found) < bound + 0.01
    assert max(found) < sum_bound_u(k)


@pytest.mark.parametrize(("products", "chain", "k"), [(4, 8, 8), (3, 8, 32), (4, 32, 32)])
def test_less_is_not_enough(products: int, chain: int, k: int) -> None:
    """Fewer terms than the least k, the low parts' product left out, or long chains."""
    assert max(error_u(name, 5000, k, products, chain) for name in NAMES) > sum_bound_u(k)


@pytest.mark.parametrize(("config", "k_major"), [(TILES[0], False), (TILES[1], True)])
@pytest.mark.slow
def test_the_kernel_computes_what_is_documented(config: DirectConfig, k_major: bool) -> None:
    """Also of infinities and NaNs, which lie where they do in float32.

    The layouts are those for which `test_direct.test_every_layout` compiles the same tile.
    """
    kind = config.products, config.chain
    assert kind in {(tile.config.products, tile.config.chain) for tile in SM90.direct}
    how: dict[str, Any] = {"tile": config, "swapped": not k_major, "transposed": (False, k_major)}
    for k in (LEAST_K[kind], 75):
        pairs = [vectors(name, 6, k) for name in ("signed 3", "more 14", "less 22", "one-hot")]
        a, b = (np.hstack(x) for x in zip(*pairs, strict=True))
        (c,) = run(a.T[None], b, check=("races", "warps"), **how)
        left, right = (a[:, :, None], b[:, None]) if k_major else (b[:, None], a[:, :, None])
        assert np.array_equal(c, documented(left, right, *kind, k_major))
        a.view(np.uint32)[3, :2], b.view(np.uint32)[5, 7] = (0x7FFFFFFF, 0xFFFFFFFF), 0x7F800000
        with np.errstate(invalid="ignore"):
            finite = np.isfinite(a.T.astype(float) @ b.astype(float))
        assert np.array_equal(np.isfinite(run(a.T[None], b, **how)[0]), finite)


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize(("products", "chain"), SHALLOW)
def test_every_family_keeps_the_contract(family: str, products: int, chain: int) -> None:
    k = LEAST_K[products, chain]
    a, b = families.FAMILIES[family](np.random.default_rng(len(family)), 40, 24, k)
    c = documented(a.T[:, :, None].copy(), b[:, None].copy(), products, chain)
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    assert (np.abs(c - exact) <= sum_bound_u(k) * U * size).all()
