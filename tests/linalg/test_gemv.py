"""Products with a vector: every way to read the matrix, edge and split of k, on the emulator."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import multiply_adds
import numpy as np
import pytest
from multiply_adds import U, check

from benchmarks import families
from gemmlab.errors import InputError
from gemmlab.kernels.gemm.sm90.gemv_config import GemvConfig
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import fma, gemv
from gemmlab.linalg.planning.tiers import choose
from gemmlab.linalg.planning.times import FMA, Case
from gemmlab.linalg.runtime.kernels import artifact
from gemmlab.linalg.shapes import Stack

ROUTES = gemv.routes(SM90)
DIVIDED = [x for x in ROUTES if x.splits == 8]  # among blocks; one for each order of the matrix
ROUTE = {x.tile.config.k_major: x for x in DIVIDED}


def name_of(route: gemv.Route) -> str:
    config = route.tile.config
    return f"{'k' if config.k_major else 'mn'}-{config.lanes}-{route.warps}-{route.splits}"


def vector_products(route: gemv.Route, length: int, k: int) -> Any:
    """A row times a matrix and a matrix times a column, and how both lie in memory."""
    rng = np.random.default_rng(length * k)
    row, matrix = families.FAMILIES["normal"](rng, 1, length, k)
    order = "t" if route.tile.config.k_major else "n"
    flipped = "n" if route.tile.config.k_major else "t"
    return (row, matrix, f"n{order}"), (matrix.T.copy(), row.T.copy(), f"{flipped}n")


@pytest.mark.slow
def test_the_next_kernel_starts_when_the_previous_one_has_finished() -> None:
    config = SM90.gemv[0].config
    ptx = artifact(("multiply_vector", config, (config.threads, 1, 1), SM90)).ptx
    words = re.findall(r"griddepcontrol\.\w+", ptx)
    assert words == ["griddepcontrol.wait", "griddepcontrol.launch_dependents"]


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
@pytest.mark.slow
def test_every_route(route: gemv.Route) -> None:
    """Lines at any address, and lines of whole vectors; one more than a block has; shallow ones."""
    results, depth = route.results, route.depth
    aligned = 4 * (results // 4 + 1), depth + 132
    for length, k in ((results + 1, depth + 5), aligned, (results, 3)):
        checks: dict[str, Any] = {"check": ("races", "barriers")} if k == 3 else {}
        for a, b, way in vector_products(route, length, k):
            check(multiply_adds.run(a[None], b, route, way=way, **checks)[0], a, b)


@pytest.mark.parametrize("gap", [1, 4])
@pytest.mark.parametrize("way", ["nn", "nt", "tn", "tt"])
@pytest.mark.slow
def test_what_lies_between_the_lines_is_not_read(way: str, gap: int) -> None:
    """Lines at addresses that are multiples of 4 bytes, or of 16; a vector of distant elements."""
    rng = np.random.default_rng(gap)
    for m, n, k in ((1, 36, 140), (36, 1, 140)):
        a, b = rng.standard_normal((2, m, k), "f4"), rng.standard_normal((k, n), "f4")
        route = ROUTE[way[0] == "n" if m > 1 else way[1] == "t"]
        check(multiply_adds.run(a, b, route, way=way, gap=gap), a, b)


@pytest.mark.parametrize(("k", "n"), [(16384, 16384), (20000, 1024), (20000, 256)])
@pytest.mark.parametrize("k_major", ROUTE)
@pytest.mark.slow
def test_deep_products_keep_the_contract(k_major: bool, k: int, n: int) -> None:
    """By the route that is chosen, where a float32 sum loses most: it outweighs each later term by
    so much that these are rounded away. Two results have the time of all."""
    times = gemv.seconds_of(1, n, k, 1, (True, k_major), SM90, 132)
    route, x = ROUTES[times.index(min(times))], np.ones((1, k), "f4")
    matrix = np.full((k, 2), 2.0**-24, "f4")
    matrix[: route.depth] = 1
    matrix[:, 1] = 0.1
    check(multiply_adds.run(x[None], matrix, route, way="nt" if k_major else "nn")[0], x, matrix)


@pytest.mark.parametrize("k_major", ROUTE)
@pytest.mark.slow
def test_a_run_has_the_bits_of_the_one_before(k_major: bool) -> None:
    for a, b, way in vector_products(ROUTE[k_major], 133, 1030):
        c, again = (multiply_adds.run(a[None], b, ROUTE[k_major], way=way) for _ in range(2))
        assert np.array_equal(c, again)


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("k_major", ROUTE)
@pytest.mark.slow
def test_every_family_keeps_the_contract(k_major: bool, family: str) -> None:
    a, b = families.FAMILIES[family](np.random.default_rng(len(family)), 1, 40, 300)
    way = "nt" if k_major else "nn"
    check(multiply_adds.run(a[None], b, ROUTE[k_major], way=way)[0], a, b)


@pytest.mark.parametrize("k_major", ROUTE)
@pytest.mark.slow
def test_stacks(k_major: bool) -> None:
    """Of both, and of the vector alone."""
    rng, way = np.random.default_rng(0), "nt" if k_major else "nn"
    a, b = rng.standard_normal((3, 1, 60), "f4"), rng.standard_normal((3, 60, 41), "f4")
    check(multiply_adds.run(a, b, ROUTE[k_major], way=way), a, b)
    check(multiply_adds.run(a, b[0], ROUTE[k_major], way=way), a, b[0])


@pytest.mark.parametrize("k_major", ROUTE)
@pytest.mark.slow
def test_what_is_added_may_have_any_strides(k_major: bool) -> None:
    rng, route = np.random.default_rng(1), ROUTE[k_major]
    source = rng.standard_normal(35 * 101, "f4")
    for a, b, way in vector_products(route, 35, 40):
        shape = a.shape[0], b.shape[1]
        for d in (Stack(*shape, 0, 0), Stack(*shape, 3, 101), Stack(*shape, 101, 3), None):
            layout = d or Stack(*shape, shape[1], 1)
            steps = 4 * layout.row_stride, 4 * layout.column_stride
            added = np.lib.stride_tricks.as_strided(source, shape, steps) if d else 3.0
            rest = {"way": way, "alpha": 2.0, "beta": -1.0, "added": d and (d, source)}
            (c,) = multiply_adds.run(a[None], b, route, **rest)
            exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
            assert (np.abs(c - (2 * exact - added)) <= 8 * U * (2 * size + np.abs(added))).all()


@pytest.mark.parametrize("k_major", ROUTE)
@pytest.mark.slow
def test_infinities_and_nans_are_where_float32_has_them(k_major: bool) -> None:
    """Also none outside the matrix, whose elements count as zeros."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((1, 1, 70), "f4"), rng.standard_normal((70, 35), "f4")
    b[12, 7], b[5, 1], b[3, 34], b[:, 2] = np.nan, -np.inf, np.inf, 0
    exact = a[0].astype(float) @ b.astype(float)
    (c,) = multiply_adds.run(a, b, ROUTE[k_major], way="nt" if k_major else "nn")
    finite = np.isfinite(exact)
    assert 0 < finite.sum() < exact.size and np.isfinite(c[finite]).all()
    assert np.array_equal(c[~finite], exact[~finite], equal_nan=True)


def test_routes_are_for_matrices_of_one_order() -> None:
    """Of the factor that is not the vector; of the right one if both are."""
    for (m, n), side in {(1, 300): 1, (300, 1): 0, (1, 1): 1}.items():
        for k_major in ((True, False), (False, True)):
            times = fma.seconds_of(m, n, 512, 1, k_major, SM90, 132)
            every = zip(fma.routes(SM90, k_major, 512), times, strict=True)
            usable = [route for route, time in every if time < gemv.NEVER]
            assert {isinstance(x, gemv.Route) for x in usable} == {True}
            assert {x.tile.config for x in usable} == {
                x.config for x in SM90.gemv if x.config.k_major == k_major[side]
            }


HOPPER = Case(1, 4096, 4096, capability=(9, 0))


def test_few_results_are_divided_among_more_warps_and_blocks() -> None:
    def route(n: int, k: int, k_major: bool) -> gemv.Route:
        times = gemv.seconds_of(1, n, k, 1, (True, k_major), SM90, 132)
        return ROUTES[times.index(min(times))]

    assert route(4096, 8192, True).warps == 4 and route(100_000, 1024, True).warps == 1
    assert route(8, 100_000, True).splits == 8
    assert route(100_000, 1024, False).splits == 1 and route(300, 20_000, False).splits == 8
    assert route(50_000, 64, True).tile.config.lanes == 8


def test_a_matrix_takes_as_long_as_memory_delivers_it() -> None:
    for k_major in (True, False):
        case = replace(HOPPER, n=16384, k=16384, k_major=(True, k_major))
        choice = choose(None, case)
        assert choice.tier == FMA and choice.seconds is not None
        assert 3.9e12 < 4 * 16384**2 / choice.seconds < 4.8e12
    few = choose(None, replace(HOPPER, n=64, k=100_000))
    assert few.tier == "ieee"  # more blocks than a cluster has would divide k
    assert "1×64×100000" in few.reason and few.fallback is None


def test_configurations_have_rules() -> None:
    for name, wrong in (("lanes", 4), ("threads", 100), ("threads", 2048), ("loads", 0)):
        with pytest.raises(InputError, match=name):
            replace(GemvConfig(), **{name: wrong})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="128 to 1024"):
        GemvConfig(k_major=False, threads=64)
