"""Products of float32 multiply-adds: every layout, edge and split of k, on the emulator."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import multiply_adds
import numpy as np
import pytest
from multiply_adds import U, check

from benchmarks import families
from gemmlab.errors import TierError
from gemmlab.kernels.gemm.sm90.fma_config import DEPTH, FmaConfig
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import fma
from gemmlab.linalg.planning.tiers import choose
from gemmlab.linalg.planning.times import FMA, Case, fma_time
from gemmlab.linalg.runtime.kernels import artifact
from gemmlab.linalg.shapes import Stack

# A kernel takes three seconds to compile: these have the fewest and the most sums per thread. All
# tiles run on a GPU (`test_on_gpu`).
SMALL = next(tile for tile in SM90.fma if tile.config.block_m == tile.config.block_n == 32)
TILES = [SMALL, next(tile for tile in SM90.fma if tile.config.thread_n == 8)]


def run(
    a: np.ndarray, b: np.ndarray, splits: int = 1, *, tile: Any = SMALL, **options: Any
) -> np.ndarray:
    return multiply_adds.run(a, b, fma.Route(tile, splits), **options)


@pytest.mark.slow
def test_the_next_kernel_starts_when_the_previous_one_has_finished() -> None:
    """Not before, as its blocks would share multiprocessors with those of this kernel unevenly."""
    ptx = artifact(("multiply_fma", SMALL.config, (SMALL.config.threads, 1, 1), SM90)).ptx
    words = re.findall(r"griddepcontrol\.\w+", ptx)
    assert words == ["griddepcontrol.wait", "griddepcontrol.launch_dependents"]


@pytest.mark.parametrize("way", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("tile", TILES, ids=lambda x: f"{x.config.block_m}x{x.config.block_n}")
@pytest.mark.slow
def test_every_layout(tile: Any, way: str) -> None:
    """Whole tiles and chunks, parts of them, and rows at any address."""
    width = tile.config.block_n
    for m, n, k in ((tile.config.block_m + 3, 2 * width + 1, 37), (64, width, 3 * DEPTH)):
        a, b = families.FAMILIES["normal"](np.random.default_rng(m), m, n, k)
        check(run(a[None], b, tile=tile, way=way, check=("races", "warps"))[0], a, b)


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.slow
def test_every_family_keeps_the_contract(family: str) -> None:
    a, b = families.FAMILIES[family](np.random.default_rng(len(family)), 33, 40, 64)
    check(run(a[None], b, 2)[0], a, b)


@pytest.mark.parametrize("splits", fma.SPLITS)
@pytest.mark.slow
def test_every_division_of_k(splits: int) -> None:
    """More blocks than chunks of k, too; and again the same bits."""
    for k in (1, 20, 150):
        a, b = families.FAMILIES["normal"](np.random.default_rng(splits), 35, 33, k)
        c, again = (run(a[None], b, splits, check=("races", "barriers")) for _ in range(2))
        check(c[0], a, b)
        assert np.array_equal(c, again)


@pytest.mark.slow
def test_stacks() -> None:
    """Of both, and of a alone."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 20, 60), "f4"), rng.standard_normal((3, 60, 41), "f4")
    for splits in (1, 4):
        check(run(a, b, splits), a, b)
        check(run(a, b[0], splits, way="nt"), a, b[0])


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.slow
def test_what_is_added_may_have_any_strides(splits: int) -> None:
    rng = np.random.default_rng(1)
    a, b = families.FAMILIES["normal"](rng, 35, 34, 40)
    source = rng.standard_normal(35 * 101, "f4")
    for d in (Stack(35, 34, 0, 1), Stack(35, 34, 1, 0), Stack(35, 34, 3, 101), None):
        layout = d or Stack(35, 34, 34, 1)
        steps = (4 * layout.row_stride, 4 * layout.column_stride)
        added = np.lib.stride_tricks.as_strided(source, (35, 34), steps) if d else 3.0
        (c,) = run(a[None], b, splits, alpha=2.0, beta=-1.0, added=d and (d, source))
        exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
        assert (np.abs(c - (2 * exact - added)) <= 8 * U * (2 * size + np.abs(added))).all()


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.slow
def test_infinities_and_nans_are_where_float32_has_them(splits: int) -> None:
    """Also none outside the matrices, whose elements count as zeros."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((1, 40, 70), "f4"), rng.standard_normal((70, 35), "f4")
    a[0, 3, 5], a[0, 9, 10], b[12, 7], b[5, 1], b[:, 2] = np.inf, -np.inf, np.nan, -np.inf, 0
    with np.errstate(invalid="ignore"):
        exact = a[0].astype(float) @ b.astype(float)
    (c,) = run(a, b, splits)
    finite = np.isfinite(exact)
    assert 0 < finite.sum() < exact.size and np.isfinite(c[finite]).all()
    assert np.array_equal(c[~finite], exact[~finite], equal_nan=True)


def test_routes_have_the_time_of_their_work() -> None:
    """Twice the stack takes twice as long where it fills the GPU; a deeper split waits less."""
    sizes, rest = (96, 96, 64), ((True, False), SM90, 132)
    times = [fma.least_seconds(*sizes, batch, *rest)[1] for batch in (2000, 4000)]
    assert times[1] == pytest.approx(2 * times[0], rel=0.05)
    deep = fma.seconds_of(32, 32, 2048, 1, *rest)
    by_splits = [
        deep[i] for i, x in enumerate(fma.routes(SM90, *rest[:1], 2048)) if x.tile == SMALL
    ]
    assert by_splits == sorted(by_splits, reverse=True)
    assert fma.bound(32, 32, 2048, 1, SM90, 132) <= min(deep)


def test_where_more_than_half_of_the_blocks_that_fit_run_some_multiprocessors_are_full() -> None:
    """Of four: with three on average, a product takes as long as with four."""
    routes = fma.routes(SM90, (True, False), 512)
    tile = next(tile for tile in SM90.fma if tile.at_once == 4)
    config, rest = tile.config, ((True, False), SM90, 132)
    index = routes.index(fma.Route(tile, 1))
    sizes = config.block_m, config.block_n, 512
    two, three, four, five = (
        fma.seconds_of(*sizes, 132 * count, *rest)[index] for count in (2, 3, 4, 5)
    )
    assert two < 0.7 * three and three == four < five


def test_operands_that_are_k_major_take_longer() -> None:
    sizes, rest = (512, 512, 512, 8), (SM90, 132)
    times = [
        fma.least_seconds(*sizes, way, *rest)[1]
        for way in ((False, False), (True, False), (True, True))
    ]
    assert times == sorted(times) and times[0] < times[2] < 1.2 * times[0]


HOPPER = Case(33, 65, 40, 8, capability=(9, 0))


def test_small_unaligned_products_take_multiply_adds() -> None:
    assert choose(None, HOPPER).tier == FMA
    assert choose(None, replace(HOPPER, m=8192, n=8192, k=8192, batch=1)).tier != FMA
    assert fma_time(replace(HOPPER, m=8192, n=8192, k=8192), within=1e-6) > 1


def test_where_it_cannot_run() -> None:
    for case in (replace(HOPPER, capability=(8, 0)), replace(HOPPER, packed=("fp16x3", None))):
        with pytest.raises(TierError, match="precision 'fma' cannot run"):
            choose(FMA, case)
    assert choose(FMA, HOPPER).reason == "requested"


def test_configurations_have_rules() -> None:
    for wrong in ({"block_m": 48}, {"thread_n": 2}, {"stages": 1}):
        with pytest.raises(Exception, match="|".join(wrong)):
            FmaConfig(**wrong)
