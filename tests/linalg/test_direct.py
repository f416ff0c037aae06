"""Products without packing: right for every input, layout and split of k, on the emulator."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import emulation
import numpy as np
import pytest

from benchmarks import families
from gemmlab.errors import InputError
from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90 import direct_config
from gemmlab.kernels.gemm.sm90.direct_config import LEAST_K, MOST_ITEMS, DirectConfig
from gemmlab.linalg.arch.architecture import DirectTile
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import direct, program
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import Choice, choose
from gemmlab.linalg.planning.times import DIRECT, LEAST_DEPTH, Case, direct_time
from gemmlab.linalg.runtime.kernels import artifact
from gemmlab.linalg.shapes import Stack
from gemmlab.problems.rounding import sum_bound_u

U = 2.0**-24
TWO_GROUPS = DirectConfig(block_m=128, block_n=64)
SMALL = DirectConfig(block_m=64, block_n=64)
# For shallow products, with each length of a chain. To compile a tile of 128 × 128 takes more than
# twice as long.
SHALLOW = (
    DirectConfig(block_m=64, block_n=32, min_blocks=2, products=4, chain=8),
    DirectConfig(block_m=128, block_n=64, products=4, chain=16),
)
SLICES = direct.SLICES


def run(
    a: np.ndarray,
    b: np.ndarray,
    splits: int = 1,
    *,
    tile: DirectConfig = SMALL,
    sms: int = 132,
    swapped: bool = False,
    transposed: tuple[bool, bool] = (False, False),
    alpha: float = 1.0,
    beta: float = 0.0,
    added: tuple[Stack, np.ndarray] | None = None,
    **checks: Any,
) -> np.ndarray:
    """alpha·a·b + beta·(what is added, or 3) for a (batch, m, k) and b (k, n), or (batch, k, n).

    transposed: whether the columns of a, and of b, are contiguous in memory.
    """
    memory = emulation.DeviceImage(**checks)
    (batch, m, k), n = a.shape, b.shape[-1]
    arrays = {"a": a, "b": b}
    for name, flip in zip("ab", transposed, strict=True):
        arrays[name] = np.ascontiguousarray(arrays[name].swapaxes(-1, -2) if flip else arrays[name])
    steps = [m * k if batch > 1 else 0, k * n if b.ndim > 2 else 0]
    row, column = (1, m) if transposed[0] else (k, 1)
    left = Stack(m, k, row, column, batch, steps[0]).operand()
    row, column = (1, k) if transposed[1] else (n, 1)
    right = Stack(k, n, row, column, batch, steps[1]).transposed.operand()
    assert left is not None and right is not None
    majors = ["k" if x.k_major else "mn" for x in (left, right)]
    a_major, b_major = majors[::-1] if swapped else majors
    config = replace(tile, a_major=a_major, b_major=b_major)
    route = direct.Route(DirectTile(config, 1, *[0.0] * 6), splits, swapped)
    d, source = added or (None, np.empty(1))
    c = np.full((batch, m, n), 3.0 if beta and d is None else np.nan, np.float32)
    job = Job(
        Factor("a", left, DIRECT),
        Factor("b", right, DIRECT),
        Stack(m, n, n, 1, batch, m * n if batch > 1 else 0),
        Choice(DIRECT, "", None, SM90),
        alpha,
        beta,
        d=d,
        route=route,
    )
    at = {name: memory.place(x) for name, x in {**arrays, "c": c, "d": source}.items()}
    slices = memory.place(np.full(job.totals(sms) // 4 + 4, np.nan, np.float32))
    launches = job.launches(WorkspaceAddresses(0, 0, 0, slices), sms)
    assert len(launches) == 1 + (splits == SLICES)
    for launch in program.placed(launches, at):
        memory.run(launch)
    return c


def check(c: np.ndarray, a: np.ndarray, b: np.ndarray, bound: float) -> None:
    """Each element is within `bound` u."""
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    error = np.abs(c - exact)
    assert np.isfinite(c).all()
    assert (error <= bound * U * size).all(), f"{(error / np.maximum(size, 1e-300)).max() / U} u"


def test_registers_that_setmaxnreg_cannot_grant_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU would wait for them forever."""
    monkeypatch.setitem(direct_config.REGISTERS, (2, 1), (80, 216))
    with pytest.raises(InputError, match="take 65536 registers, of 64512"):
        DirectConfig(block_m=128, block_n=128)


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.slow
def test_every_family_keeps_the_contract(family: str) -> None:
    """At the least depth, whose bound is the narrowest."""
    k = LEAST_DEPTH
    a, b = families.FAMILIES[family](np.random.default_rng(len(family)), 70, 40, k)
    check(run(a[None], b, 2)[0], a, b, sum_bound_u(k))


@pytest.mark.parametrize(
    ("tile", "transposed", "swapped"),
    [
        (SMALL, (False, False), False),
        (SHALLOW[0], (False, False), True),
        (SHALLOW[1], (False, True), False),
        (TWO_GROUPS, (True, False), True),
    ],
)
@pytest.mark.slow
def test_every_layout(tile: DirectConfig, transposed: tuple[bool, bool], swapped: bool) -> None:
    """Rows at addresses that no 128-bit copy may use, and rows at which they may.

    A kernel takes seven seconds to compile: these four have each pair of layouts once, and each
    layout of an operand with each number of warpgroups. Other tests use the same four.
    """
    for m, n, k in ((67, 45, 71), (68, 132, 96)):
        a, b = families.FAMILIES["normal"](np.random.default_rng(m), m, n, k)
        found = run(a[None], b, tile=tile, transposed=transposed, swapped=swapped)
        check(found[0], a, b, 4)


@pytest.mark.parametrize(
    ("tile", "shared"),
    [
        (replace(SHALLOW[0], a_major="mn", b_major="k"), True),
        (replace(TWO_GROUPS, a_major="mn", b_major="mn"), False),
    ],
)
@pytest.mark.slow
def test_the_next_kernel_starts_late_where_blocks_share_a_multiprocessor(
    tile: DirectConfig, shared: bool
) -> None:
    """After the last part of B is stored, else before the kernel waits for the previous one."""
    ptx = artifact(("multiply", tile, (tile.threads, 1, 1), SM90)).ptx
    [starts] = positions(ptx, "griddepcontrol.launch_dependents")
    waits = positions(ptx, "griddepcontrol.wait")
    products = positions(ptx, "wgmma.mma_async")
    assert len(waits) == 2 and waits[1] < products[0]
    [stored] = positions(ptx, "fence.proxy.async")
    assert stored < starts < products[0] if shared else starts < waits[0]


def positions(text: str, word: str) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(word), text)]


@pytest.mark.parametrize("splits", [*direct.SPLITS, SLICES])
@pytest.mark.slow
def test_every_division_of_k(splits: int) -> None:
    """More blocks than chunks of k, too."""
    for k in (132, 800):
        a, b = families.FAMILIES["normal"](np.random.default_rng(splits), 13, 66, k)
        check(run(a[None], b, splits, sms=9)[0], a, b, 4)


@pytest.mark.slow
def test_stacks() -> None:
    """Of both, and of a alone."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 20, 600), "f4"), rng.standard_normal((3, 600, 24), "f4")
    for splits in (1, SLICES):
        check(run(a, b, splits), a, b, 4)
        check(run(a, b[0], splits), a, b[0], 4)


@pytest.mark.parametrize("sms", [4, 8])
@pytest.mark.slow
def test_a_block_computes_tiles_of_several_matrices(sms: int) -> None:
    """3 × 2 tiles of each of five. The next one is 4 further on in the same or in the next matrix,
    or 8: at least one matrix further on."""
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((5, 130, 40), "f4"), rng.standard_normal((5, 40, 70), "f4")
    check(run(a, b, sms=sms), a, b, 8)


BIAS = Stack(70, 66, 0, 1)


@pytest.mark.parametrize("splits", [1, SLICES])
@pytest.mark.slow
def test_what_is_added_may_have_any_strides(splits: int) -> None:
    rng = np.random.default_rng(1)
    a, b = families.FAMILIES["normal"](rng, 70, 66, 140)
    source = rng.standard_normal(70 * 211, "f4")
    transposed = BIAS.transposed._replace(rows=70, columns=66)
    for d in (BIAS, transposed, Stack(70, 66, 3, 211), None):
        layout = d or Stack(70, 66, 66, 1)
        steps = (4 * layout.row_stride, 4 * layout.column_stride)
        added = np.lib.stride_tricks.as_strided(source, (70, 66), steps) if d else 3.0
        given = d and (d, source)
        for swapped in (False, True):
            # The kernel of `test_every_layout` that reads swapped operands of these layouts.
            tile = SHALLOW[0] if swapped else SMALL
            rest: dict[str, Any] = {"added": given, "swapped": swapped, "tile": tile, "sms": 9}
            (c,) = run(a[None], b, splits, alpha=2.0, beta=-1.0, **rest)
            exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
            assert (np.abs(c - (2 * exact - added)) <= 4 * U * (2 * size + np.abs(added))).all()


@pytest.mark.parametrize("splits", [1, 4, SLICES])
@pytest.mark.slow
def test_infinities_and_nans_are_where_float32_has_them(splits: int) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((1, 70, 330), "f4"), rng.standard_normal((330, 66), "f4")
    a[0, 3, 5], a[0, 9, 100], b[120, 7], b[5, 1], b[:, 2] = np.inf, -np.inf, np.nan, -np.inf, 0
    with np.errstate(invalid="ignore"):
        exact = a[0].astype(float) @ b.astype(float)
        size = np.abs(a[0]).astype(float) @ np.abs(b)
    (c,) = run(a, b, splits)
    finite = np.isfinite(exact)
    assert 0 < finite.sum() < exact.size
    assert np.array_equal(c[~finite], exact[~finite], equal_nan=True)
    assert (np.abs(c[finite] - exact[finite]) <= 10 * U * size[finite]).all()


@pytest.mark.parametrize(
    ("tile", "transposed", "swapped"),
    [(SMALL, (False, False), False), (TWO_GROUPS, (True, False), True)],
)
@pytest.mark.slow
def test_a_block_computes_several_tiles(
    tile: DirectConfig, transposed: tuple[bool, bool], swapped: bool
) -> None:
    """Some of them again, in float32, although what is added is overwritten where it lies."""
    m, n, k = 136, 70, 70
    a, b = families.FAMILIES["normal"](np.random.default_rng(4), m, n, k)
    a[1, 3], b[5, 7], a[m - 1, 2] = 1e-33, 1e-35, 2.0**-140
    rest: dict[str, Any] = {"tile": tile, "transposed": transposed, "swapped": swapped}
    (c,) = run(a[None], b, beta=0.5, sms=2, check=("races", "warps"), **rest)
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    assert (np.abs(c - (exact + 1.5)) <= 4 * U * (size + 1.5)).all()


@pytest.mark.slow
def test_tiles_of_few_chunks() -> None:
    """The copies are several tiles ahead."""
    a, b = families.FAMILIES["normal"](np.random.default_rng(5), 400, 66, 33)
    for k in (20, 33):
        check(run(a[None, :, :k], b[:k], sms=3)[0], a[:, :k], b[:k], 8)


@pytest.mark.parametrize("exponents", [(-140, 20), (-70, -70), (110, -100), (60, 60), (20, -60)])
@pytest.mark.slow
def test_every_magnitude(exponents: tuple[int, int]) -> None:
    """Also where parts of elements would leave the range of TF32."""
    rng = np.random.default_rng(3)
    a, b = (
        np.ldexp(rng.standard_normal(shape, "f4"), e)
        for shape, e in zip(((70, 64), (64, 66)), exponents, strict=True)
    )
    (c,) = run(a[None], b)
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    assert (np.abs(c - exact) <= 10 * U * size + 64 * 2.0**-149).all()


@pytest.mark.slow
def test_checks_find_nothing() -> None:
    """Also where a tile is computed again."""
    races: dict[str, Any] = {"check": ("races", "global-races", "barriers", "warps")}
    for family in ("normal", "one wide row"):
        a, b = families.FAMILIES[family](np.random.default_rng(1), 70, 66, 330)
        (c,) = run(a[None], b, 2, tile=SHALLOW[1], transposed=(False, True), **races)
        check(c, a, b, sum_bound_u(330))


def test_no_block_has_more_tiles_than_it_can_mark() -> None:
    """And all have as many as the others, or one less."""
    route = next(x for x in direct.routes(SM90, (True, False), 64) if x.splits == 1)
    rows = Stack(1, 64, 64, 1).operand()
    assert rows is not None
    for tiles in (1, 100, 132, 133, 8000, 8317, 100_000):
        m = tiles * route.tile.config.block_m
        job = Job(
            Factor("a", replace(rows, vectors=m), DIRECT),
            Factor("b", replace(rows, vectors=1), DIRECT),
            Stack(m, 1, 1, 1),
            Choice(DIRECT, "", None, SM90),
            route=route,
        )
        (launch,) = job.launches(WorkspaceAddresses(0, 0, 0), 132)
        assert launch.args["items"] == tiles
        blocks = launch.grid[0]
        most = ceil_div(tiles, blocks)
        assert most <= MOST_ITEMS
        assert blocks == min(tiles, ceil_div(tiles, most)) and (most - 1) * blocks < tiles


HOPPER = Case(8192, 8192, 8192, capability=(9, 0))


def test_large_products_and_packed_operands_are_packed() -> None:
    assert not choose(None, HOPPER).routed
    assert not choose(None, replace(HOPPER, m=16, packed=("fp16x3", None))).routed


def test_small_products_and_short_axes_are_not() -> None:
    assert choose(None, replace(HOPPER, m=640, n=640, k=640)).tier == "tf32x3"
    thin = replace(HOPPER, m=4096, n=4096, k=4096)
    for case in (replace(thin, m=16), replace(thin, n=64)):
        assert choose(None, case).routed


def test_each_element_of_c_takes_time_where_slices_are_added_up() -> None:
    """However many there are: products of one slice differ from others by the second launch."""
    routes = direct.routes(SM90, (True, False), 256)
    sliced, whole = (
        next(i for i, x in enumerate(routes) if x.splits == splits) for splits in (SLICES, 1)
    )
    added = []
    for batch in (200, 400):
        times = direct.seconds_of(256, 256, 256, batch, (True, False), SM90, 132)
        added.append(times[sliced] - times[whole] - SM90.direct_add)
    assert added[1] == pytest.approx(2 * added[0])
    assert added[0] == pytest.approx(4 * 256 * 256 * 200 / SM90.direct_add_bytes)


def test_few_terms_are_added_in_float32() -> None:
    """The bound of a sum of fewer terms is below what tensor cores keep of each."""
    assert direct_time(replace(HOPPER, m=100, n=100, k=LEAST_DEPTH)) < 1
    assert direct_time(replace(HOPPER, m=100, n=100, k=LEAST_DEPTH - 1)) > 1


def test_shallow_products_take_more_accurate_tiles() -> None:
    """Each size as soon as it is accurate, with no more products and chains than needed."""
    for k in range(LEAST_DEPTH, 300):
        found = [route.tile.config for route in direct.routes(SM90, (True, False), k)]
        assert {config.products for config in found} == {3 if k >= LEAST_K[3, 32] else 4}
        assert all(config.least_k <= k for config in found)
        every = {tile.config for tile in SM90.direct if tile.config.products == found[0].products}
        accurate = {config for config in every if config.least_k <= k}
        longest = {
            size: max(x.chain for x in accurate if (x.block_m, x.block_n) == size)
            for size in {(x.block_m, x.block_n) for x in accurate}
        }
        kept = {replace(config, a_major="k", b_major="mn") for config in found}
        assert kept == {x for x in accurate if x.chain == longest[x.block_m, x.block_n]}
