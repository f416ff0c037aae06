"""Whole products on the emulator: packing, wgmma and TMA, as the plan launches them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulation import DeviceImage

from gemmlab.compile.artifact import Artifact
from gemmlab.compile.cute import compile_rung
from gemmlab.cubin.tools import sass
from gemmlab.kernels import ladder
from gemmlab.kernels.gemm.sm90.config import BF16X6, FP16X3, WIDE_COUNT, TileConfig
from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.again import again
from gemmlab.linalg.planning.launch import PlannedLaunch
from gemmlab.linalg.planning.packed import Packed
from gemmlab.linalg.runtime.kernels import artifact_of
from gemmlab.linalg.shapes import Operand
from gemmlab.problems.rounding import sum_bound_u

U = 2.0**-24
CHECKS = ("races", "global-races", "copies", "barriers", "clusters", "warps")
SMALL = TileConfig(block_m=64, block_n=64, stages=4, cluster=1)
PAIR = TileConfig(
    block_m=128, block_n=64, stages=3, cluster=2, a_major="mn", b_major="k", promote_k=32
)


def product(
    a: np.ndarray,
    b: np.ndarray,
    tile: TileConfig,
    alpha: float = 1.0,
    beta: float = 0.0,
    doubts: bool = False,
    **checks: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """C of a plan with that tile, from C = `before`, and its report.

    doubts: whether doubtful sums are computed again.
    """
    (m, k), n = a.shape, b.shape[1]
    k_major = tile.a_major == "k", tile.b_major == "k"
    stored = a if k_major[0] else a.T, b.T if k_major[1] else b
    operands = (
        Operand(m, k, k_major[0], stored[0].shape[1]),
        Operand(n, k, k_major[1], stored[1].shape[1]),
    )
    packed = (
        Packed(tile.scheme, m, k, k_major[0], factor="a"),
        Packed(tile.scheme, n, k, k_major[1], factor="b"),
    )
    memory = DeviceImage(**checks)
    c = before(m, n)
    arrays = [*(np.ascontiguousarray(x) for x in stored), c]
    work = [np.full(x.nbytes, 0x70, np.uint8) for x in packed]  # stale contents
    for counted in work:
        counted[: plan.STATUS_BYTES] = 0
    report = np.zeros(plan.REPORT_BYTES, np.uint8)
    at = memory.place(arrays[0]), memory.place(arrays[1]), memory.place(arrays[2])
    works, statuses = (memory.place(work[0]), memory.place(work[1])), []
    for place, x in zip(works, packed, strict=True):
        statuses.append(place + x.offsets["status"])
    reporting = plan.Reporting(memory.place(report), (statuses[0], statuses[1]), clear=3)
    wanted = plan.Product(m, n, k, n, alpha=alpha, beta=beta)
    totals = np.full(plan.totals_bytes(wanted, tile, sms=2), 0xFF, np.uint8)
    notes = memory.place(np.full(plan.notes_bytes(wanted, tile, SM90), 0xFF, np.uint8))
    rest = 2, (0, 2**64 - 1), memory.place(totals), notes
    launches = [
        *plan.pack(operands[0], packed[0], at[0], works[0]),
        *plan.pack(operands[1], packed[1], at[1], works[1]),
        *plan.multiply(wanted, tile, operands, packed, at, works, reporting, *rest, checks=doubts),
    ]
    for launch in launches:
        memory.run(launch)
    counts = report.view(np.uint64)
    assert not counts[5:7].any()  # of `finish`
    return c, counts[:5]


def before(m: int, n: int) -> np.ndarray:
    return (np.arange(m * n, dtype=np.float32) % 7).reshape(m, n)


def matrices(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    return a, b


TOTALS = replace(SMALL, scheme=BF16X6, promote_k=32, total_k=128)


@pytest.mark.parametrize(
    ("tile", "shape"),
    [(SMALL, (70, 66, 72)), (PAIR, (150, 70, 65)), (TOTALS, (70, 66, 330)), (TOTALS, (9, 9, 256))],
)
@pytest.mark.slow
def test_products_are_float32_accurate(tile: TileConfig, shape: tuple[int, int, int]) -> None:
    a, b = matrices(*shape)
    c, _ = product(a, b, tile)
    exact, magnitude = (
        a.astype(float) @ b.astype(float),
        abs(a).astype(float) @ abs(b).astype(float),
    )
    assert (abs(c - exact) <= 4 * U * magnitude).all()


@pytest.mark.parametrize("tile", [SMALL, PAIR])
@pytest.mark.slow
def test_rows_that_start_anywhere_in_a_sector_have_the_same_bits(tile: TileConfig) -> None:
    """Rows of 67 numbers start at each of the eight places, rows of 72 at the first."""
    a, b = matrices(70, 72, 40)
    aligned, _ = product(a, b, tile, alpha=1.5)
    odd, _ = product(a, b[:, :67], tile, alpha=1.5)
    assert np.array_equal(odd, aligned[:, :67])
    added, _ = product(a, b[:, :67], tile, alpha=1.5, beta=0.5)
    assert np.array_equal(added, odd + before(70, 67) / 2)


@pytest.mark.parametrize(
    ("tile", "k"),
    [
        (SMALL, 150),
        (PAIR, 150),
        (TOTALS, 500),
    ],
)
@pytest.mark.slow
def test_a_deep_product_is_added_up_in_parts(
    tile: TileConfig, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_DEEPEST", k // 3)
    a, b = matrices(40, 70, k)
    a[3, 140] = np.inf
    c, _ = product(a, b, tile, alpha=2.0, beta=0.5)
    with np.errstate(invalid="ignore"):  # a warning from within BLAS; its result is right
        exact = 2 * a.astype(float) @ b.astype(float) + before(40, 70) / 2
        magnitude = 2 * abs(a).astype(float) @ abs(b).astype(float) + before(40, 70) / 2
    finite = np.arange(40) != 3
    assert (abs(c[finite] - exact[finite]) <= 4 * U * magnitude[finite]).all()
    assert np.array_equal(c[3], exact[3])


@pytest.mark.parametrize(
    ("tile", "order", "shape"),
    [
        (PAIR, "reversed", (300, 20, 130)),
        (PAIR, "reversed", (140, 69, 40)),  # whose rows are not aligned
        (replace(PAIR, scheme=BF16X6, stages=4, total_k=64), "in-order", (300, 20, 130)),
    ],
)
@pytest.mark.slow
def test_nothing_is_found_where_stages_and_totals_are_used_again(
    tile: TileConfig, order: str, shape: tuple[int, int, int]
) -> None:
    """Two consumer warpgroups per block of a cluster, with as few stages as there may be; several
    blocks compute non-finite rows again."""
    a, b = matrices(*shape)
    a[3, 5] = np.nan
    c, report = product(a, b, tile, check=CHECKS, order=order)
    assert np.isnan(c[3]).all() and np.isfinite(np.delete(c, 3, axis=0)).all()
    assert report[1:].tolist() == [1, 0, shape[1], 0]


def multiplying(tile: TileConfig) -> tuple[PlannedLaunch, ...]:
    a, b = (Packed(tile.scheme, 64, 64, k_major) for k_major in (True, False))
    factors = Operand(64, 64, True, 64), Operand(64, 64, False, 64)
    reporting, sources = plan.Reporting(0, (0, 0), 3), (0, 0, 0)
    wanted = plan.Product(64, 64, 64, 64)
    return plan.multiply(wanted, tile, factors, (a, b), sources, (0, 0), reporting, sms=2)


def small() -> Artifact:
    [launch] = multiplying(SMALL)
    return artifact_of(launch)


def large() -> Artifact:
    """The rung has the main loop and the tile of the library."""
    return compile_rung(ladder.find("bf16x6"))


# Steps of 16 in the first k-tile of a sum, in others, and in a last one with a single chain.
STEPS = {small: (4, 4), large: (4, 4, 2)}


@pytest.mark.parametrize(("kernel", "products", "waits"), [(small, 3, 2), (large, 6, 3)])
@pytest.mark.slow
def test_the_assembler_leaves_wgmma_asynchronous(
    kernel: Callable[[], Artifact], products: int, waits: int
) -> None:
    artifact = kernel()
    assert artifact.cubin is not None and artifact.resources is not None
    code = sass(artifact.cubin)
    assert code.count("HGMMA") == sum(STEPS[kernel]) * products
    # One per stage that is released early, one at the end.
    assert code.count("WARPGROUP.DEPBAR") == len(STEPS[kernel]) * waits
    assert artifact.resources.spill_bytes == 0


@pytest.mark.parametrize("config", SM90.again, ids=["deep", "short"])
@pytest.mark.slow
def test_wgmma_stay_asynchronous_beside_those_of_another_way(config: DirectConfig) -> None:
    """Where registers do not suffice, the assembler waits after each wgmma of a kernel."""
    chosen = plan.choices(plan.Product(2048, 2048, 2048, 2048), SM90, FP16X3, (True, False))
    [launch] = multiplying(plan.with_again(chosen[0], config))
    artifact = artifact_of(launch)
    assert artifact.cubin is not None
    code = sass(artifact.cubin)
    assert code.count("WARPGROUP.DEPBAR") < code.count("HGMMA") / 2


@pytest.mark.parametrize("shape", [(5, 9, 20), (64, 130, 20), (70, 65, 20)])
@pytest.mark.slow
def test_alpha_and_beta_and_what_is_not_finite(shape: tuple[int, int, int]) -> None:
    a, b = matrices(*shape)
    a[1, 3], b[0, 2], b[7, 2] = np.nan, np.inf, np.inf
    c, report = product(a, b, SMALL, alpha=2.0, beta=-1.0)
    with np.errstate(invalid="ignore"):
        exact = 2.0 * (a.astype(float) @ b.astype(float)) - before(*shape[:2])
    assert np.array_equal(np.isnan(c), np.isnan(exact))
    assert np.array_equal(c[np.isinf(exact)], exact[np.isinf(exact)])
    finite = np.isfinite(exact)
    assert np.allclose(c[finite], exact[finite], rtol=1e-5, atol=1e-5)
    marked = shape[0] + shape[1] - 1  # elements of one row and one column
    assert report.tolist() == [2 * WIDE_COUNT, 2, 0, marked, 0]


def identity_plus_small(
    m: int, n: int, k: int, small: float = 2**-13
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (x.astype("f4") for x in (np.eye(m, k), np.eye(k, n)))
    a += rng.standard_normal((m, k), "f4") * np.float32(small)
    b += rng.standard_normal((k, n), "f4") * np.float32(small)
    return a, b


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.slow
def test_many_doubtful_sums_of_a_warp(tiny: bool) -> None:
    """An identity plus small numbers: nearly all sums are small compared with what may be lost.

    If a column has a number too small for TF32's parts, its sums are multiplied and added.
    """
    m, n, k = 70, 65, 512
    a, b = identity_plus_small(m, n, k)
    if tiny:
        b[300, 20] = 2.0**-110
    c, report = product(a, b, SMALL, alpha=2.0, beta=-1.0, doubts=True)
    added = before(m, n)
    exact = 2.0 * (a.astype(float) @ b.astype(float)) - added
    size = 2.0 * (np.abs(a).astype(float) @ np.abs(b)) + np.abs(added)
    assert (np.abs(c - exact) <= sum_bound_u(k) * U * size).all()
    *_, doubtful, _ = report.tolist()
    assert doubtful > 0.2 * m * n  # more than 48 of each warp: tensor cores compute them


@pytest.mark.parametrize("tile", [SMALL, PAIR])
@pytest.mark.parametrize("small", [2**-13, 2**-16])
@pytest.mark.slow
def test_doubtful_sums_are_left_to_a_last_launch(
    tile: TileConfig, small: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the list has room for; blocks compute the others to the same bits.

    One row has a NaN. The smaller numbers make nearly all sums doubtful: too many to be listed.
    """
    a, b = identity_plus_small(140, 70, 512, small)
    a[5, 7] = np.nan
    _, same = product(a, b, tile, 2.0, -1.0, True)
    *_, doubtful, _ = same.tolist()
    assert 300 < doubtful < 2**13 if small == 2**-13 else doubtful > 0.9 * 140 * 70
    monkeypatch.setattr(plan, "_DEEP", 512)
    added = before(140, 70)
    exact = 2.0 * (a.astype(float) @ b.astype(float)) - added
    size = 2.0 * (np.abs(a).astype(float) @ np.abs(b)) + added
    finite = np.arange(140) != 5
    found = []
    for room in (2**13, 300):
        monkeypatch.setattr(plan, "_LISTED", room)
        c, report = product(a, b, tile, 2.0, -1.0, True, check=CHECKS)
        assert report.tolist() == same.tolist()
        assert (np.abs(c - exact) <= sum_bound_u(512) * U * size)[finite].all()
        assert np.isnan(c[5]).all()
        found.append(c)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("beta", [0.0, -1.0])
@pytest.mark.slow
def test_blocks_with_many_doubtful_sums_compute_their_tiles_again(beta: float) -> None:
    """Two tiles per block, in TF32: sums that are not doubtful have other bits, too. But not where
    C is added to, which has been overwritten.

    One row has a NaN, one column a number too small for TF32's parts.
    """
    m, n, k = 300, 70, 512
    tile = plan.with_again(PAIR, again(SM90, k, (False, True)))
    a, b = identity_plus_small(m, n, k)
    a[5, 7], b[300, 20] = np.nan, 2.0**-110
    c, report = product(a, b, tile, alpha=2.0, beta=beta, doubts=True, check=CHECKS)
    by_warps, same = product(a, b, PAIR, alpha=2.0, beta=beta, doubts=True)
    added = beta * before(m, n)
    exact = 2.0 * (a.astype(float) @ b.astype(float)) + added
    size = 2.0 * (np.abs(a).astype(float) @ np.abs(b)) + np.abs(added)
    finite = np.arange(m) != 5
    for found in (c, by_warps):
        assert (np.abs(found - exact) <= sum_bound_u(k) * U * size)[finite].all()
        assert np.isnan(found[5]).all()
    assert report.tolist() == same.tolist()
    *_, doubtful, _ = report.tolist()
    assert doubtful > 0.2 * m * n
    changed = c[finite] != by_warps[finite]
    assert (changed.sum() > doubtful) == (beta == 0)
