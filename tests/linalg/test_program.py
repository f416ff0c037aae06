"""All launches of a product: their kernels, their memory, and their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import emulation
import numpy as np
import pytest

from benchmarks import families
from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import (
    FIRST,
    FP16X3,
    INSTEAD,
    LAST,
    REPEATS,
    WIDE_COUNT,
    Scheme,
    TileConfig,
)
from gemmlab.kernels.gemm.sm90.direct_config import MOST_ITEMS
from gemmlab.linalg import reference
from gemmlab.linalg.planned import Counts
from gemmlab.linalg.planning import plan, program
from gemmlab.linalg.planning.launch import PlannedLaunch, WorkspaceAddresses
from gemmlab.linalg.planning.plan import REPORT_BYTES
from gemmlab.linalg.planning.program import Factor, Job, Source
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.shapes import Stack

U = 2.0**-24
BY_DEFAULT = Choice("fp16x3", "", "tf32x3")
LARGE = Choice("fp16x3", "", "bf16x6")  # by default, too
ALONE = Choice("fp16x3", "requested")


def job(
    choice: Choice,
    m: int,
    n: int,
    k: int,
    batch: int = 1,
    kept: tuple[int | None, ...] = (None,) * 2,
) -> Job:
    """a (batch, m, k) times one b (k, n), both row-major."""
    a, b = Stack(m, k, k, 1, batch, m * k if batch > 1 else 0), Stack(k, n, n, 1)
    c = Stack(m, n, n, 1, batch, m * n if batch > 1 else 0)
    left_operand, right_operand = a.operand(), b.transposed.operand()
    assert left_operand is not None and right_operand is not None
    left = Factor("a", left_operand, choice.tier, choice.fallback, kept[0])
    right = Factor("b", right_operand, choice.tier, choice.fallback, kept[1])
    return Job(left, right, c, choice)


def kernels(launches: tuple[PlannedLaunch, ...]) -> list[str]:
    return [launch.kernel for launch in launches]


def test_by_default_the_launch_that_multiplies_may_do_so_in_another_way() -> None:
    launches = job(BY_DEFAULT, 300, 200, 100).launches(
        WorkspaceAddresses(1 << 20, 2 << 20, 3 << 20), 132
    )
    assert kernels(launches) == ["pack_k_major", "pack_mn_major", "multiply_packed"]
    args = launches[2].args
    assert args["least_risk"] == 0 and args["most_risk"] == 9 * WIDE_COUNT - 1
    assert args["launch"] == FIRST | LAST | INSTEAD | REPEATS


def test_only_the_first_segment_of_k_may_be_computed_in_another_way() -> None:
    launches = job(BY_DEFAULT, 300, 200, 20000).launches(WorkspaceAddresses(0, 0, 0), 132)
    first, last = (x for x in launches if x.kernel == "multiply_packed")
    assert first.args["launch"] == FIRST | INSTEAD and first.args["begin"] == 0
    assert last.args["launch"] == LAST and last.args["begin"] == first.args["k"]


@pytest.mark.parametrize(("k", "least_k"), [(32, 32), (191, 32), (192, 192), (5000, 192)])
def test_the_other_way_is_accurate_at_every_depth(k: int, least_k: int) -> None:
    launches = job(BY_DEFAULT, 300, 200, k).launches(WorkspaceAddresses(0, 0, 0), 132)
    [config] = [x.config for x in launches if x.kernel == "multiply_packed"]
    assert isinstance(config, TileConfig) and config.again is not None
    assert config.again.least_k == least_k


def test_each_segment_of_a_deep_product_is_finished() -> None:
    """The list lies behind the notes; both are memory that the product asks for."""
    wanted = job(BY_DEFAULT, 300, 200, 20000)
    memory = WorkspaceAddresses(0, 0, 0, notes=1 << 20)
    *_, first, one, last, other = wanted.launches(memory, 132)
    assert (one.kernel, other.kernel) == ("finish", "finish")
    for launch, before in ((one, first), (other, last)):
        assert [launch.args[x] for x in ("begin", "k")] == [before.args[x] for x in ("begin", "k")]
        doubts, room = launch.args["doubts"], launch.args["room"]
        assert isinstance(doubts, int) and isinstance(room, int)
        assert doubts + 8 * room == (1 << 20) + wanted.notes(132)
    shallow = job(BY_DEFAULT, 300, 200, 4095).launches(WorkspaceAddresses(0, 0, 0), 132)
    assert "finish" not in [x.kernel for x in shallow]


@pytest.mark.parametrize(
    ("m", "n", "batch"), [(40000, 30000, 1), (100, 100, 60000), (129, 1, 9000)]
)
def test_a_block_computes_any_number_of_tiles(m: int, n: int, batch: int) -> None:
    """Also in another way: one after the other, and each is few tiles of that way."""
    *_, last = job(BY_DEFAULT, m, n, 40, batch).launches(WorkspaceAddresses(0, 0, 0), 132)
    tile = last.config
    assert isinstance(tile, TileConfig) and tile.again is not None
    assert last.grid[0] == 132
    rows, columns = tile.block_m // tile.again.block_m, ceil_div(tile.block_n, tile.again.block_n)
    assert rows * columns <= MOST_ITEMS


def test_a_large_product_may_run_again_in_bfloat16() -> None:
    launches = job(LARGE, 300, 200, 100).launches(
        WorkspaceAddresses(1 << 20, 2 << 20, 3 << 20), 132
    )
    again = ["repack", "multiply_packed"]
    assert kernels(launches) == [
        "pack_k_major",
        "pack_mn_major",
        "multiply_packed",
        *again,
    ]
    assert [x.args["beside"] for x in launches[:2]] == [0, 1]  # b is packed beside a
    first, last = (x for x in launches if x.kernel == "multiply_packed")
    assert first.args["most_risk"] + 1 == last.args["least_risk"]  # exactly one of them computes
    assert first.args["least_risk"] == 0 and last.args["most_risk"] == 2**64 - 1
    assert [x.args["launch"] for x in (first, last)] == [FIRST | REPEATS, LAST]


def test_a_tier_asked_for_is_the_only_one() -> None:
    launches = job(ALONE, 300, 200, 100).launches(
        WorkspaceAddresses(1 << 20, 2 << 20, 3 << 20), 132
    )
    assert kernels(launches) == [
        "pack_k_major",
        "pack_mn_major",
        "multiply_packed",
    ]
    assert launches[2].args["doubt"] == 0  # no sum is doubtful
    assert launches[2].args["launch"] == FIRST | LAST  # no block repeats its tiles


def test_a_packed_operand_is_not_split_and_not_cleared() -> None:
    kept = 7 << 20
    *_, last = job(BY_DEFAULT, 300, 200, 100, kept=(None, kept)).launches(
        WorkspaceAddresses(0, 128, 256), 132
    )
    assert last.args["clear"] == 1 and kept in last.args.values()
    launches = job(LARGE, 300, 200, 100, kept=(None, kept)).launches(
        WorkspaceAddresses(0, 128, 256), 132
    )
    assert kernels(launches) == [
        "pack_k_major",
        "multiply_packed",
        "repack",
        "multiply_packed",
    ]
    assert launches[0].args["beside"] == 0
    assert launches[-1].args["clear"] == 1  # clears the counts of a alone
    assert all(
        kept in launch.args.values() for launch in launches if launch.kernel != "pack_k_major"
    )
    address = launches[-1].maps[1].address
    assert (
        isinstance(address, int) and address < kept
    )  # the parts for the fallback are in the workspace


@pytest.mark.parametrize(
    ("choice", "wanted"), [(BY_DEFAULT, []), (LARGE, ["ab", "abc"]), (ALONE, [])]
)
def test_sources_are_the_callers_arrays_and_no_others(choice: Choice, wanted: list[str]) -> None:
    launches = job(choice, 30, 20, 40, batch=3).launches(
        WorkspaceAddresses(1 << 20, 2 << 20, 3 << 20), 132
    )
    named = [{x.name for x in launch.args.values() if isinstance(x, Source)} for launch in launches]
    assert named == [*map(set, ("a", "b", "abc", *wanted))]


@pytest.mark.parametrize("batch", [1, 3])
def test_workspaces_hold_the_larger_of_both_splits(batch: int) -> None:
    for choice, count in ((BY_DEFAULT, 2), (LARGE, 3)):
        wanted = job(choice, 300, 200, 100, batch)
        parts = 2 * count * 300 * 128 * batch
        assert parts <= wanted.left.workspace <= parts + 3 * 4 * 512 * batch + 1024
    assert job(LARGE, 300, 200, 100, batch, kept=(64, None)).left.workspace >= parts
    assert job(BY_DEFAULT, 300, 200, 100, batch, kept=(64, None)).left.workspace == 0
    assert job(ALONE, 300, 200, 100, batch, kept=(64, None)).left.workspace == 0


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> emulation.DeviceImage:
    """Emulated memory, and small tiles, because the emulator is slow."""

    def small(
        _product: plan.Product, _arch: Any, scheme: Scheme, k_major: tuple[bool, bool], _sms: int
    ) -> tuple[int, TileConfig]:
        majors = ["k" if major else "mn" for major in k_major]
        return 0, TileConfig(scheme, majors[0], majors[1], 128, 64, 4, 1)

    monkeypatch.setattr(plan, "fastest", small)
    return emulation.DeviceImage()


def narrow(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape).astype("f4")


def one_wide(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """One huge element makes the first row and the first column wide."""
    x = narrow(rng, shape)
    x[0, 0] = 1e10
    return x


def all_wide(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return narrow(rng, shape) * 2.0 ** -rng.integers(0, 61, shape).astype("f4")


def run(
    memory: emulation.DeviceImage,
    choice: Choice,
    a: np.ndarray,
    b: np.ndarray,
    alpha: float = 1.0,
    beta: float = 0.0,
    before: float | np.ndarray = np.nan,
    added: tuple[Stack, np.ndarray] | None = None,
    times: int = 1,
) -> tuple[np.ndarray, Counts]:
    """C of all launches, and what the GPU counted. Checks what they leave behind.

    before: all elements of C, or of all items of it, unless something else is `added` to it.
    times: runs of the product in the same memory, as by a CUDA graph.
    """
    batch, m, k = a.shape
    d, source = added or (None, np.empty(1))
    wanted = replace(job(choice, m, b.shape[1], k, batch), alpha=alpha, beta=beta, d=d)
    c = np.full((batch, m, b.shape[1]), before if d is None else np.nan, np.float32)
    arrays = {"a": a, "b": b, "c": c, "d": source}
    at = {name: memory.place(array) for name, array in arrays.items()}
    sizes = (wanted.left.workspace, wanted.right.workspace, REPORT_BYTES, 4, wanted.notes(2))
    spaces = [np.full(size, 0xFF, np.uint8) for size in sizes]  # stale contents, NaN
    report = spaces[2]
    report[:] = 0
    launches = wanted.launches(
        WorkspaceAddresses(*(memory.place(space) for space in spaces)), sms=2
    )
    for launch in times * program.placed(launches, at):
        memory.run(launch)
    _, _, begun, _, _, *statuses = numbers = [*map(int, report.view(np.uint64))]
    assert begun == 0 and not any(statuses)
    return c, Counts.of(numbers)


@pytest.mark.parametrize(("choice", "most_u"), [(BY_DEFAULT, 2 * 40**0.5), (LARGE, 4)])
@pytest.mark.parametrize(
    ("make", "batch", "wide"),
    [(narrow, 1, 0), (one_wide, 1, 1), (all_wide, 1, 19), (one_wide, 3, 1)],
)
@pytest.mark.slow
def test_the_product_is_float32_accurate_on_the_emulator(
    memory: emulation.DeviceImage,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[np.random.Generator, tuple[int, int]], np.ndarray],
    batch: int,
    wide: int,
    choice: Choice,
    most_u: float,
) -> None:
    """From arrays to C through all launches; wide rows run in TF32, or in bfloat16."""
    monkeypatch.setattr(program, "TOLERATED", {"fp16x3": 2})
    m, n, k = 20, 24, 40
    rng = np.random.default_rng(1)
    a, b = make(rng, (batch * m, k)).reshape(batch, m, k), narrow(rng, (k, n))
    b[0] = 0
    a[0, 3, 5] = np.inf
    c, counts = run(memory, choice, a, b)

    exact, size = (x(a).astype(float) @ x(b).astype(float) for x in (np.asarray, np.abs))
    finite = np.isfinite(size)
    assert finite.sum() == (batch * m - 1) * n
    assert (np.abs(c[finite] - exact[finite]) <= most_u * U * size[finite]).all()
    assert np.array_equal(c[~finite], exact[~finite], equal_nan=True)
    assert (counts.wide, counts.not_finite) == (wide, 1)
    in_row = 0 if choice is BY_DEFAULT and wide > 1 else n  # that has an infinity
    assert counts.doubtful > n if wide == 1 else counts.doubtful == in_row


@pytest.mark.parametrize(
    ("family", "by"),
    [
        *((family, "repair") for family in families.FAMILIES),
        *((family, "fallback") for family in list(families.FAMILIES)[::3]),
    ],
)
@pytest.mark.slow
def test_every_family_is_float32_accurate(
    memory: emulation.DeviceImage, monkeypatch: pytest.MonkeyPatch, family: str, by: str
) -> None:
    """Two launches each cover a part of k; doubtful elements are computed again, or all of them.

    The fallback multiplies as the kernel of `test_direct.test_every_family_keeps_the_contract`.
    """
    monkeypatch.setattr(plan, "_DEEPEST", 64)
    monkeypatch.setattr(program, "TOLERATED", {"fp16x3": 1000 if by == "repair" else 0})
    rng = np.random.default_rng(len(family))
    a, b = families.FAMILIES[family](rng, 70, 40, 100)
    (c,), _ = run(memory, BY_DEFAULT, a[None], b)
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    error = np.abs(c - exact)
    assert np.isfinite(error).all()
    assert (error <= 10 * U * size).all(), f"{(error / np.maximum(size, 1e-300)).max() / U} u"


@pytest.mark.parametrize("family", ["gradients", "softmax gradients", "cancelling"])
@pytest.mark.slow
def test_elements_at_risk_cost_nothing_among_larger_ones(
    memory: emulation.DeviceImage, family: str
) -> None:
    """Their terms hardly count beside the others, even if the sum is small."""
    a, b = families.FAMILIES[family](np.random.default_rng(1), 70, 66, 190)
    (c,), counts = run(memory, BY_DEFAULT, a[None], b)
    assert counts.at_risk > 3 * len(a) or family == "cancelling"
    assert (counts.wide, counts.doubtful) == (0, 0)
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    assert (np.abs(c - exact) <= 10 * U * size).all()


BIAS = Stack(70, 66, 0, 1)


@pytest.mark.parametrize("depth", [40, 100])
@pytest.mark.parametrize(
    "d", [BIAS, BIAS.transposed._replace(rows=70, columns=66), Stack(70, 66, 3, 211), None]
)
@pytest.mark.slow
def test_what_is_added_may_have_any_strides(
    memory: emulation.DeviceImage, monkeypatch: pytest.MonkeyPatch, d: Stack | None, depth: int
) -> None:
    """One row, one column, a transposed view with gaps, C itself; in one launch and in two."""
    monkeypatch.setattr(plan, "_DEEPEST", 64)
    rng = np.random.default_rng(1)
    (a, b), source = families.FAMILIES["normal"](rng, 70, 66, depth), narrow(rng, (1, 70 * 211))
    layout = d or Stack(70, 66, 66, 1)
    steps = (4 * layout.row_stride, 4 * layout.column_stride)
    added = np.lib.stride_tricks.as_strided(source, (70, 66), steps)
    (c,), _ = run(memory, BY_DEFAULT, a[None], b, 2.0, -1.0, added, d and (d, source))
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    assert (np.abs(c - (2 * exact - added)) <= 4 * U * (2 * size + np.abs(added))).all()


@pytest.mark.slow
def test_a_block_computes_several_tiles_again(memory: emulation.DeviceImage) -> None:
    """2 × 2 tiles of each of two matrices, on two multiprocessors."""
    rng = np.random.default_rng(3)
    a, b = all_wide(rng, (280, 40)).reshape(2, 140, 40), narrow(rng, (40, 70))
    c, counts = run(memory, BY_DEFAULT, a, b)
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    assert counts.wide > 0
    assert (np.abs(c - exact) <= 2 * 40**0.5 * U * size).all()


@pytest.mark.slow
def test_checks_find_nothing_where_doubtful_elements_are_computed(
    memory: emulation.DeviceImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two segments of k have doubtful terms of the same elements of C, in two tiles."""
    monkeypatch.setattr(plan, "_DEEPEST", 64)
    monkeypatch.setattr(program, "TOLERATED", {"fp16x3": 1000})
    checked = emulation.DeviceImage(check=("races", "global-races", "barriers", "warps"))
    a, b = families.FAMILIES["both sparse"](np.random.default_rng(7), 66, 34, 100)
    (c,), counts = run(memory, BY_DEFAULT, a[None], b)
    assert counts.doubtful > 100 and np.isfinite(c).all()
    (again,), counted = run(checked, BY_DEFAULT, a[None], b, times=2)
    assert np.array_equal(again, c) and counted == counts


@pytest.mark.parametrize("family", ["one-hot", "both sparse"])
@pytest.mark.slow
def test_doubtful_elements_are_added_to_c(
    memory: emulation.DeviceImage, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """Before, C held what is added to the product."""
    monkeypatch.setattr(program, "TOLERATED", {"fp16x3": 10})
    a, b = families.FAMILIES[family](np.random.default_rng(7), 66, 34, 100)
    (c,), counts = run(memory, BY_DEFAULT, a[None], b, alpha=2.0, beta=-1.0, before=3.0)
    assert counts.wide <= 10 < counts.doubtful
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    assert (np.abs(c - (2 * exact - 3)) <= U * (20 * size + 3)).all()


def test_families_need_the_repair() -> None:
    """Without it, float16 parts are off by more in several families."""
    worst = {}
    for family, make in families.FAMILIES.items():
        a, b = make(np.random.default_rng(len(family)), 70, 66, 100)
        parts = [reference.pack(x, FP16X3).sum(FP16X3) for x in (a, b.T)]
        error = np.abs(parts[0] @ parts[1].T - a.astype(float) @ b.astype(float))
        size = np.abs(a).astype(float) @ np.abs(b)
        worst[family] = (error[size > 0] / size[size > 0]).max() / U
    assert sum(found > 10 for found in worst.values()) >= 8, worst
