"""Products of one packed and one streamed operand: right for every input, layout and slice of k."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import emulation
import numpy as np
import pytest

from benchmarks import families
from gemmlab.errors import InputError
from gemmlab.kernels.gemm.sm90.streamed_config import StreamedConfig
from gemmlab.linalg.arch.architecture import StreamedTile
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planned import Counts
from gemmlab.linalg.planning import plan, program, streamed
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.planning.times import DIRECT, LEAST_DEPTH, STREAMED
from gemmlab.linalg.shapes import Stack
from gemmlab.problems.rounding import sum_bound_u

U = 2.0**-24
NARROW = StreamedConfig(block_n=64, stages=3)
LAYOUTS = [*product((False, True), repeat=2)]
WAYS = [*product((False, True), (0, 1))]  # of which operand is streamed, and waves of slices


class Run:
    """alpha·a·b + beta·(what is added, or 3) for a (batch, m, k) and b (k, n), or (batch, k, n).

    transposed: whether the columns of a, and of b, are contiguous in memory. swapped: whether b is
    streamed. shift: elements from an aligned address to the first one of each factor.
    """

    def __init__(
        self,
        a: np.ndarray,
        b: np.ndarray,
        *,
        config: StreamedConfig = NARROW,
        sms: int = 2,
        swapped: bool = False,
        waves: int = 0,
        transposed: tuple[bool, bool] = (False, False),
        shift: int = 0,
        alpha: float = 1.0,
        beta: float = 0.0,
        added: tuple[Stack, np.ndarray] | None = None,
        **checks: Any,
    ) -> None:
        memory = emulation.DeviceImage(**checks)
        (batch, m, k), n = a.shape, b.shape[-1]
        arrays = {}
        for name, x, flip in zip("ab", (a, b), transposed, strict=True):
            given = np.ascontiguousarray(x.swapaxes(-1, -2) if flip else x)
            arrays[name] = np.concatenate([np.full(shift, np.nan, np.float32), given.ravel()])
        row, column = (1, m) if transposed[0] else (k, 1)
        left = Stack(m, k, row, column, batch, m * k if batch > 1 else 0).operand()
        row, column = (1, k) if transposed[1] else (n, 1)
        step = (batch, k * n) if b.ndim > 2 else (1, 0)
        right = Stack(k, n, row, column, *step).transposed.operand()
        assert left is not None and right is not None
        majors = ["k" if x.k_major else "mn" for x in (left, right)][:: -1 if swapped else 1]
        config = replace(config, streamed_major=majors[0], packed_major=majors[1])
        route = streamed.Route(StreamedTile(config, *[0.0] * 4), swapped, waves)
        d, source = added or (None, np.empty(1))
        self.c = np.full((batch, m, n), 3.0 if beta and d is None else np.nan, np.float32)
        job = Job(
            Factor("a", left, STREAMED),
            Factor("b", right, STREAMED),
            Stack(m, n, n, 1, batch, m * n if batch > 1 else 0),
            Choice(STREAMED, "", DIRECT, SM90),
            alpha,
            beta,
            d=d,
            route=route,
        )
        at = {name: memory.place(x) for name, x in {**arrays, "c": self.c, "d": source}.items()}
        at["a"], at["b"] = at["a"] + 4 * shift, at["b"] + 4 * shift
        sizes = job.sizes(sms)
        one, other, totals, notes = (memory.place(np.full(x // 4 + 4, -1, np.int32)) for x in sizes)
        report = np.zeros(plan.REPORT_BYTES // 8, np.uint64)
        addresses = WorkspaceAddresses(one, other, memory.place(report), totals, notes)
        launches = job.launches(addresses, sms)
        self.kernels = [launch.kernel for launch in launches]
        for launch in program.placed(launches, at):
            memory.run(launch)
        # What the next product counts begins at zero.
        assert not report[2] and not report[plan.STATUSES[0] // 8 :].any()
        counts = Counts.of([*map(int, report)])
        self.wide, self.not_finite, self.doubtful = counts[1:]


def check(c: np.ndarray, a: np.ndarray, b: np.ndarray, bound: float) -> None:
    """Each element is within `bound` u."""
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    error = np.abs(c - exact)
    assert np.isfinite(c).all()
    assert (error <= bound * U * size).all(), f"{(error / np.maximum(size, 1e-300)).max() / U} u"


def test_configurations_that_cannot_run_are_refused() -> None:
    with pytest.raises(InputError, match="block_n = 96"):
        StreamedConfig(block_n=96)
    with pytest.raises(InputError, match="4 stages take 286720 bytes"):
        StreamedConfig(stages=4)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.slow
def test_every_family_keeps_the_contract(family: str, swapped: bool) -> None:
    for k in (LEAST_DEPTH, 200):
        a, b = families.FAMILIES[family](np.random.default_rng(len(family)), 70, 140, k)
        check(Run(a[None], b, swapped=swapped).c[0], a, b, sum_bound_u(k))


@pytest.mark.parametrize(("transposed", "swapped"), [*product(LAYOUTS, (False, True))])
@pytest.mark.slow
def test_every_layout(transposed: tuple[bool, bool], swapped: bool) -> None:
    """Lines that TMA can copy, and lines that it cannot; each with tiles at all edges."""
    for m, n, k in ((140, 72, 76), (139, 73, 75), (130, 260, 64)):
        a, b = families.FAMILIES["normal"](np.random.default_rng(m), m, n, k)
        check(Run(a[None], b, transposed=transposed, swapped=swapped).c[0], a, b, 4)


@pytest.mark.slow
def test_an_array_may_begin_anywhere() -> None:
    a, b = families.FAMILIES["normal"](np.random.default_rng(0), 132, 68, 64)
    for shift in (1, 2, 3, 4):
        check(Run(a[None], b, shift=shift).c[0], a, b, 4)


@pytest.mark.slow
def test_few_vectors() -> None:
    """Lines shorter than what a tensor map permits."""
    a, b = families.FAMILIES["normal"](np.random.default_rng(0), 2, 3, 40)
    for swapped in (False, True):
        check(Run(a[None], b, transposed=(True, False), swapped=swapped).c[0], a, b, 4)


@pytest.mark.slow
def test_the_wide_tile() -> None:
    a, b = families.FAMILIES["normal"](np.random.default_rng(0), 132, 200, 96)
    check(Run(a[None], b, config=StreamedConfig()).c[0], a, b, 4)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.slow
def test_slices(swapped: bool) -> None:
    for k, sms, waves in ((520, 8, 1), (1200, 9, 1), (256, 132, 1), (768, 3, 3)):
        a, b = families.FAMILIES["normal"](np.random.default_rng(k), 130, 66, k)
        found = Run(a[None], b, swapped=swapped, waves=waves, sms=sms)
        pack = "pack_k_major" if swapped else "pack_mn_major"
        assert found.kernels == [pack, "multiply_streamed", "add_slices"]
        check(found.c[0], a, b, 4)


@pytest.mark.slow
def test_stacks() -> None:
    """Of both, and of one alone, which is the packed or the streamed one."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 20, 600), "f4"), rng.standard_normal((3, 600, 24), "f4")
    for swapped, waves in WAYS:
        check(Run(a, b, swapped=swapped, waves=waves, sms=9).c, a, b, 4)
        check(Run(a, b[0], swapped=swapped, waves=waves, sms=9).c, a, b[0], 4)


@pytest.mark.parametrize(("transposed", "swapped"), [*product(LAYOUTS, (False, True))])
@pytest.mark.slow
def test_matrices_of_a_stack_need_not_be_aligned_alike(
    transposed: tuple[bool, bool], swapped: bool
) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 19, 75), "f4"), rng.standard_normal((4, 75, 21), "f4")
    check(Run(a, b, transposed=transposed, swapped=swapped).c, a, b, 4)


@pytest.mark.parametrize(("swapped", "waves"), WAYS)
@pytest.mark.slow
def test_what_is_added_may_have_any_strides(swapped: bool, waves: int) -> None:
    rng = np.random.default_rng(1)
    a, b = families.FAMILIES["normal"](rng, 70, 66, 530)
    source = rng.standard_normal(70 * 211, "f4")
    for d in (Stack(70, 66, 0, 1), Stack(70, 66, 1, 0), Stack(70, 66, 3, 211), None):
        layout = d or Stack(70, 66, 66, 1)
        steps = (4 * layout.row_stride, 4 * layout.column_stride)
        added = np.lib.stride_tricks.as_strided(source, (70, 66), steps) if d else 3.0
        rest: dict[str, Any] = {"added": d and (d, source), "swapped": swapped, "waves": waves}
        (c,) = Run(a[None], b, alpha=2.0, beta=-1.0, sms=9, **rest).c
        exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
        assert (np.abs(c - (2 * exact - added)) <= 4 * U * (2 * size + np.abs(added))).all()


@pytest.mark.parametrize(("swapped", "waves"), WAYS)
@pytest.mark.slow
def test_infinities_and_nans_are_where_float32_has_them(swapped: bool, waves: int) -> None:
    """In the streamed operand alone, then in both: the product is then computed in TF32."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((1, 70, 530), "f4"), rng.standard_normal((530, 66), "f4")
    a[0, :, 2], b[:, 2] = 0, 0
    streamed_one, packed_one = (b.T, a[0]) if swapped else (a[0], b.T)
    streamed_one[3, 5], streamed_one[9, 100], streamed_one[20, 500] = np.inf, -np.inf, np.nan
    for both in (False, True):
        if both:
            packed_one[7, 120], packed_one[1, 5] = np.nan, -np.inf
        with np.errstate(invalid="ignore"):
            exact = a[0].astype(float) @ b.astype(float)
            size = np.abs(a[0]).astype(float) @ np.abs(b)
        found = Run(a, b, swapped=swapped, waves=waves, sms=9)
        (c,), finite = found.c, np.isfinite(exact)
        assert 0 < finite.sum() < exact.size
        assert found.not_finite == 2 * both and (found.doubtful > 0) == (not both)
        assert np.array_equal(c[~finite], exact[~finite], equal_nan=True)
        assert (np.abs(c[finite] - exact[finite]) <= 10 * U * size[finite]).all()


@pytest.mark.parametrize(("swapped", "waves"), WAYS)
@pytest.mark.slow
def test_elements_at_risk_are_noticed(swapped: bool, waves: int) -> None:
    """A large element in a row of each operand meets a zero, and small ones meet small ones, in
    each slice. They are so few that no row or column is wide."""
    k = 512
    a, b = np.zeros((130, k), "f4"), np.zeros((k, 70), "f4")
    rng = np.random.default_rng(3)
    for at in (0, 400):
        own, other = slice(at + 1, at + 6), rng.standard_normal((5, 200)) * 1e-7
        a[:, own], b[own] = other[:, :130].T, other[:, 130:]
        a[::9, at], b[at + 10, ::7] = 1.0, 1.0
    found = Run(a[None], b, swapped=swapped, waves=waves, sms=9)
    assert found.wide == 0 and found.doubtful > (100 if waves else 50)
    check(found.c[0], a, b, sum_bound_u(k))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.slow
def test_each_slice_is_repaired_on_its_own(swapped: bool) -> None:
    """An element is doubtful in one slice, and has large terms in the other one."""
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((130, 512), "f4"), rng.standard_normal((512, 70), "f4")
    for row, at in ((10, 0), (20, 256)):
        a[row, at : at + 256] = 0
        a[row, at], a[row, at + 1 : at + 9], b[at, 33] = 1, rng.standard_normal(8) * 1e-7, 0
    found = Run(a[None], b, swapped=swapped, waves=1, sms=9)
    assert 2 <= found.doubtful <= 7
    check(found.c[0], a, b, sum_bound_u(512))


@pytest.mark.slow
def test_the_losses_of_the_lanes_that_share_a_row_add_up() -> None:
    """Sixteen elements at risk in each row of the streamed operand: a sum is twice as large as what
    four of them may lose, in units of `doubt`, and half as large as what all may lose."""
    a, b = np.zeros((130, 64), "f4"), np.zeros((64, 70), "f4")
    a[:, 0], a[:, 1:17], b[1:17] = 1.0, 2.0**-18, 1.0
    found = Run(a[None], b)
    assert found.wide == 0 and found.doubtful == a.shape[0] * b.shape[1]
    check(found.c[0], a, b, 4)


@pytest.mark.parametrize("exponents", [(-120, 0), (120, -100), (-60, -60), (100, 20)])
@pytest.mark.slow
def test_every_range(exponents: tuple[int, int]) -> None:
    a, b = families.FAMILIES["normal"](np.random.default_rng(4), 70, 40, 96)
    a, b = np.ldexp(a, exponents[0]), np.ldexp(b, exponents[1])
    for swapped in (False, True):
        check(Run(a[None], b, swapped=swapped).c[0], a, b, 8)


@pytest.mark.parametrize(("swapped", "waves"), WAYS)
@pytest.mark.slow
def test_a_product_whose_packed_operand_is_wide_is_computed_in_tf32(
    swapped: bool, waves: int
) -> None:
    """Also where C itself is added; at two depths, which take different arithmetic."""
    rng = np.random.default_rng(5)
    for k in (100, 530):
        a, b = rng.standard_normal((130, k), "f4"), rng.standard_normal((k, 140), "f4")
        x = a if swapped else b
        x *= np.exp(8 * rng.standard_normal(x.shape)).astype("f4")
        exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
        for beta in (0.0, 1.0):
            found = Run(a[None], b, beta=beta, swapped=swapped, waves=waves, sms=9)
            assert found.wide > 0 and found.doubtful == 0
            error = np.abs(found.c[0] - (exact + 3 * beta))
            assert (error <= sum_bound_u(k) * U * (size + 3 * beta)).all()


@pytest.mark.slow
def test_no_race_is_found() -> None:
    rng = np.random.default_rng(6)
    for m, n, k in ((132, 68, 128), (131, 67, 70)):
        a, b = families.FAMILIES["normal"](rng, m, n, k)
        for checks in (("races", "warps"), ("global-races", "barriers")):
            check(Run(a[None], b, check=checks).c[0], a, b, 4)
            b[:, ::9] = 0
            b[3, ::9], b[4:9, ::9] = 1e10, 1.0  # other sums are doubtful
            check(Run(a[None], b, check=checks).c[0], a, b, sum_bound_u(k))
