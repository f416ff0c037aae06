"""The choice of a tier, and its reason."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

from benchmarks.direct import NAMES
from gemmlab.errors import TierError
from gemmlab.linalg.arch import ARCHITECTURES
from gemmlab.linalg.planning import direct
from gemmlab.linalg.planning.tiers import (
    TIERS,
    choose,
    names_of,
    offered,
)
from gemmlab.linalg.planning.times import (
    ROUTED,
    SURE,
    Case,
    by_formulas,
    decide,
    direct_time,
    fma_time,
    fp16x3_time,
    sgemm_bound,
    sgemm_time,
)

HOPPER = Case(4096, 4096, 4096, capability=(9, 0))


@pytest.mark.parametrize(("n", "fallback"), [(2048, "tf32x3"), (4096, "bf16x6"), (16384, "bf16x6")])
def test_large_products_go_to_tensor_cores_with_a_way_out(n: int, fallback: str) -> None:
    choice = choose(None, replace(HOPPER, m=n, n=n, k=n))
    assert (choice.tier, choice.fallback) == ("fp16x3", fallback)


def test_large_products_need_no_comparison() -> None:
    rng, large = random.Random(3), ARCHITECTURES[9, 0].large
    assert large is not None
    found: list[float] = []
    while len(found) < 300:
        m, n, k = (round(2 ** rng.uniform(8, 14)) for _ in "mnk")
        k_major = rng.random() < 0.5, rng.random() < 0.5
        case = replace(HOPPER, m=m, n=n, k=k, batch=rng.choice((1, 1, 4)), k_major=k_major)
        names = names_of(offered(None, case))
        fastest, _, times = by_formulas(decide, case, names)
        if m < large.side or n < large.side or k < large.depth or m * n * k < large.work:
            assert None not in times
            continue
        assert names[fastest][0] == "fp16x3" and set(times) == {None}
        others = direct_time(case), fma_time(case), SURE * sgemm_time(case)
        found.append(fp16x3_time(case) / min(others))
    assert max(found) < 1.1 and sorted(found)[-4] < 1


def test_the_time_of_a_large_product_is_predicted() -> None:
    case = replace(HOPPER, m=2048, n=2048, k=2048)
    choice = choose(None, case)
    assert choice.seconds is not None and choice.seconds == pytest.approx(fp16x3_time(case))
    assert f"predicted {choice.seconds * 1e6:.0f} µs" in choice.reason


def test_formulas_predict_the_same_times() -> None:
    """Of products on both sides of the limits at which the predictions change."""
    rng = random.Random(1)
    for k_major in ((True, True), (True, False), (False, True), (False, False)):
        for _ in range(60):
            m, n, k, batch = (round(2 ** rng.uniform(0, top)) for top in (14, 14, 17, 6))
            case = replace(HOPPER, m=m, n=n, k=k, batch=batch, k_major=k_major)
            names = names_of(offered(None, case))
            (fastest, tiles, times), expected = (
                by_formulas(decide, case, names),
                decide(case, names),
            )
            assert (fastest, tiles[fastest], times) == (
                expected[0],
                expected[1][expected[0]],
                expected[2],
            )


def test_no_route_is_faster_than_the_bound() -> None:
    """With the bound, most products skip comparing routes; for some it is close to the fastest."""
    rng, arch, ratios = random.Random(2), ARCHITECTURES[9, 0], []
    for sms in (78, 114, 132):
        for k_major in ((True, True), (True, False)):
            for _ in range(60):
                m, n, k, batch = (round(2 ** rng.uniform(0, top)) for top in (16, 16, 13, 3))
                times = direct.seconds_of(m, n, k, batch, k_major, arch, sms)
                time = max(min(times), direct.moving(m, n, k, batch, arch))
                ratios.append(direct.bound(m, n, k, batch, k_major, arch, sms) / time)
    assert max(ratios) <= 1 and sorted(ratios)[-20] > 0.9


def test_cublas_is_never_faster_than_the_bound() -> None:
    """With the bound, most products skip comparing tiles; for some it is close to their time."""
    rng, ratios = random.Random(3), []
    for sms in (78, 114, 132):
        for k_major in ((True, True), (True, False), (False, True), (False, False)):
            for _ in range(60):
                m, n, k, batch = (round(2 ** rng.uniform(0, top)) for top in (15, 15, 14, 3))
                case = Case(m, n, k, batch, (9, 0), sms, k_major)
                ratios.append(sgemm_bound(case) / sgemm_time(case))
    assert max(ratios) <= 1 and sorted(ratios)[-100] > 0.8


def test_factors_with_lines_that_are_not_aligned_cost_time() -> None:
    """Each of a and b, whatever its order; both more than each."""

    def longer(k_major: tuple[bool, bool], **odd: Any) -> float:
        own = replace(HOPPER, m=1024, n=1024, k=1024, k_major=k_major)
        return direct_time(replace(own, **odd)) / direct_time(own)  # of as many tiles

    for k_major, aligned, others in (((True, False), "m", "nk"), ((False, True), "n", "mk")):
        assert longer(k_major, **{aligned: 1023}) == pytest.approx(1, abs=0.01)
        assert all(1.03 < longer(k_major, **{other: 1023}) < 1.3 for other in others)
    both = longer((True, True), k=1023)
    assert longer((True, False), k=1023) < both and longer((False, True), k=1023) < both


def test_a_product_takes_longer_if_any_matrix_is_not_aligned() -> None:
    own = replace(HOPPER, m=4096, n=4096, k=4096)
    share = ARCHITECTURES[9, 0].packed_unaligned
    for odd in (replace(own, n=4095), replace(own, k=4095), replace(own, n=4095, k=4095)):
        assert fp16x3_time(odd) > (1 + 0.9 * share) * fp16x3_time(own)


@pytest.mark.parametrize(
    ("shape", "measured_us"),
    [
        ((110, 73, 2184, 10, "tn"), 41.0),  # k is not divided in a stack
        ((2260, 2467, 73, 15, "nt"), 442.2),  # the ends of tiles, where lines are not aligned
        ((79, 4032, 1056, 5, "nn"), 154.3),  # rows that fill a part of a tile
    ],
)
def test_sgemm_is_as_slow_as_measured(
    shape: tuple[int, int, int, int, str], measured_us: float
) -> None:
    """On an H100, roughly; these were two to four times slower than was predicted."""
    m, n, k, batch, way = shape
    case = replace(HOPPER, m=m, n=n, k=k, batch=batch, k_major=(way[0] == "n", way[1] == "t"))
    assert 0.6 < sgemm_time(case) * 1e6 / measured_us < 1.5


def test_sgemm_waits_for_what_l2_does_not_keep() -> None:
    """Twice as long for each step, if few blocks run; on an H200, 122 and 276 µs."""
    near = replace(HOPPER, m=61, n=16, k=6880, batch=7)
    far = replace(HOPPER, m=23, n=273, k=7369, batch=8)
    assert sgemm_time(near) * 1e6 == pytest.approx(122, rel=0.1)
    assert sgemm_time(far) * 1e6 == pytest.approx(276, rel=0.1)


def test_packing_takes_longer_where_l2_does_not_keep_the_operands() -> None:
    """And for each K-major vector, however short, that a whole block packs."""
    case = replace(HOPPER, m=1024, n=1024, k=512)
    near, far = (fp16x3_time(replace(case, batch=count)) for count in (1, 32))
    packed = [
        fp16x3_time(replace(case, batch=count, packed=("fp16x3", "fp16x3"))) for count in (1, 32)
    ]
    assert far - packed[1] > 1.5 * 32 * (near - packed[0])
    long = replace(case, m=2**16, n=64, k_major=(True, True))
    assert fp16x3_time(replace(long, k=1028)) > 1.2 * fp16x3_time(replace(long, k=1024))


def test_sgemm_divides_k_unless_in_a_stack() -> None:
    case = replace(HOPPER, m=64, n=64, k=8192)
    assert sgemm_time(replace(case, batch=2)) > 5 * sgemm_time(case)
    whole = sgemm_time(replace(case, k=64)), sgemm_time(replace(case, k=64, batch=2))
    assert whole[0] == pytest.approx(whole[1], rel=0.01)  # a division would take longer


def test_sgemm_is_faster_the_fewer_operands_are_k_major() -> None:
    case = replace(HOPPER, m=1024, n=1024, k=1024)
    ways = (False, False), (True, False), (True, True)
    times = [sgemm_time(replace(case, k_major=way)) for way in ways]
    assert times == sorted(times) and times[2] < 1.1 * times[0]
    wide = replace(HOPPER, m=20, n=4096, k=512, batch=20)  # one kernel needs contiguous rows of b
    assert sgemm_time(replace(wide, k_major=(True, True))) > 1.1 * sgemm_time(wide)


@pytest.mark.parametrize("k", [64, 777, 4096, 20000])
@pytest.mark.parametrize("k_major", [(True, True), (True, False), (False, False)])
def test_products_with_a_vector_are_not_computed_on_tensor_cores(
    k: int, k_major: tuple[bool, bool]
) -> None:
    """Tensor cores would need each element of the matrix split, only to use it once."""
    for length in (64, 300, 4096, 20000):
        for m, n in ((1, length), (length, 1)):
            for batch in (1, 64):
                case = replace(HOPPER, m=m, n=n, k=k, batch=batch, k_major=k_major)
                choice = choose(None, case)
                assert choice.tier in ("fma", "ieee") and choice.fallback is None, str(case)


def test_sizes_that_no_memory_holds_have_a_tier() -> None:
    """Each is predicted to take longer than what counts as possible."""
    case = replace(HOPPER, m=255361962, n=255361962, k=8192, batch=5961)
    assert choose(None, case).tier in TIERS


@pytest.mark.parametrize("columns", [10, 11, 16])
def test_the_large_operand_of_a_narrow_product_is_not_packed(columns: int) -> None:
    """On an H200, SGEMM takes 395, 393 and 353 µs, `tf32x3` 202, 202 and 184, `fp16x3s` 190, 190
    and 184; it is predicted to take 174."""
    case = replace(HOPPER, m=12000, n=columns, k=12000)
    choice = choose(None, case)
    assert choice.tier == "fp16x3s" and choice.seconds == pytest.approx(190e-6, rel=0.15)


def test_an_a100_uses_its_tensor_cores_and_geforce_does_not() -> None:
    case = replace(HOPPER, capability=(8, 0), multiprocessors=108)
    choice = choose(None, case)
    assert (choice.tier, choice.fallback, choice.arch.target) == ("fp16x3", "bf16x6", "sm_80")
    assert 2.5 < sgemm_time(case) / fp16x3_time(case) < 3.5  # published: 2.6
    for capability in ((8, 6), (8, 9), (12, 0)):
        assert choose(None, replace(case, capability=capability)).tier == "ieee"


@pytest.mark.parametrize("precision", ["fp16x3", "bf16x6", "ieee"])
def test_what_is_asked_for_is_taken_whatever_the_size(precision: str) -> None:
    choice = choose(precision, replace(HOPPER, m=1))
    assert (choice.tier, choice.fallback) == (precision, None)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (replace(HOPPER, capability=None), "on the host"),
        (replace(HOPPER, capability=(8, 9)), "compute capability 8.9"),
        (replace(HOPPER, capability=(10, 0)), "compute capability 10.0"),
        (replace(HOPPER, batch=100_000), "100000 matrices"),
        (replace(HOPPER, k=2**31), "an axis of 2147483648"),
        (replace(HOPPER, m=1, n=2**31 - 100), "an axis of 2147483548"),  # + 191 is past 2^31
    ],
)
def test_what_cannot_run_is_said_or_refused(case: Case, words: str) -> None:
    choice = choose(None, case)
    assert choice.tier == "ieee" and words in choice.reason
    for precision in ("fp16x3", "bf16x6"):
        with pytest.raises(TierError, match=words):
            choose(precision, case)


def test_packed_operands_decide() -> None:
    packed = replace(HOPPER, m=1, packed=(None, "fp16x3"))
    assert choose(None, packed).fallback == "tf32x3"
    assert choose(None, replace(packed, k=31)).fallback == "bf16x6"  # too shallow for TF32
    assert choose(None, replace(HOPPER, packed=("bf16x6", "bf16x6"))).tier == "bf16x6"
    for precision, case in (
        ("ieee", packed),
        ("bf16x6", packed),
        (None, replace(HOPPER, packed=("fp16x3", "bf16x6"))),
        (None, replace(packed, capability=(8, 6))),
    ):
        with pytest.raises(TierError, match="packed"):
            choose(precision, case)


BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "h200"


def case_of(row: dict[str, Any]) -> Case:
    m, n, k, batch, way = (row[x] for x in ("m", "n", "k", "batch", "transposed"))
    return Case(m, n, k, batch, (9, 0), k_major=(way[0] == "n", way[1] == "t"))


def test_no_choice_lost_to_sgemm_when_it_was_measured() -> None:
    """Of the recorded products, those packed as they would be now were as fast as SGEMM."""
    rows = json.loads((BENCHMARKS / "matmul.json").read_text(encoding="utf-8"))["shapes"]
    assert len(rows) >= 50
    packed = [row for row in rows if row["tier"] == "fp16x3"]
    for row in packed:
        ratio = row["sgemm"]["us"] / row["default"]["us"]
        assert choose(None, case_of(row)).tier != "fp16x3" or ratio >= 0.98, case_of(row)
    assert len(packed) >= 8


@pytest.mark.slow
def test_choices_are_close_to_the_best_that_was_measured() -> None:
    """Of the drawn products that constants are not fitted to, and of the routes that were timed."""
    rows = json.loads((BENCHMARKS / "direct.json").read_text(encoding="utf-8"))["drawn"][::4]
    factors, best, lost = [], [], 0
    for row in rows:
        case = case_of(row)
        tier = choose(None, case).tier
        times = {"ieee": row["sgemm"], "fp16x3": row.get("fp16x3")}
        timed = [row["sgemm"], row.get("fp16x3", row["sgemm"])]
        for name, key in NAMES.items():
            if routes := dict(row.get(key, ())):
                sizes = case.m, case.n, case.k, case.batch, case.k_major
                seconds = ROUTED[name].seconds_of(*sizes, ARCHITECTURES[9, 0], 132)
                times[name] = routes[min(routes, key=seconds.__getitem__)]
                timed += routes.values()
        if (time := times.get(tier)) is not None:
            factors.append(row["sgemm"] / time)
            best.append(row["sgemm"] / min(timed))
            lost += factors[-1] < 0.98
    assert len(factors) > 0.98 * len(rows)
    assert geometric_mean(factors) > 0.97 * geometric_mean(best)
    assert lost < 0.02 * len(rows)


def test_products_with_a_vector_are_as_fast_as_in_cublas() -> None:
    """Of those that were measured 24 in 25, by the route that is chosen; 1.37 times on average."""
    rows = json.loads((BENCHMARKS / "direct.json").read_text(encoding="utf-8"))["vectors"]
    factors = []
    for row in rows:
        case, time = case_of(row), row["sgemm"]
        if (tier := choose(None, case).tier) != "ieee":
            sizes = case.m, case.n, case.k, case.batch, case.k_major
            index, _ = ROUTED[tier].least_seconds(*sizes, ARCHITECTURES[9, 0], 132)
            time = {number: time for number, time, _ in row[tier]}[index]
        factors.append(row["sgemm"] / time)
    assert len(factors) > 250 and geometric_mean(factors) > 1.35
    assert sum(x < 0.98 for x in factors) < 0.05 * len(factors) and min(factors) > 0.6


def test_no_route_lost_to_sgemm_when_it_was_measured() -> None:
    """Nor those that are not packed, by the route that is chosen."""
    rows = json.loads((BENCHMARKS / "direct.json").read_text(encoding="utf-8"))["routes"]
    chosen = 0
    for row in rows:
        case = case_of(row)
        if not choose(None, case).routed:
            continue
        tier = choose(None, case).tier
        sizes = case.m, case.n, case.k, case.batch, case.k_major
        arch, sms = ARCHITECTURES[9, 0], case.multiprocessors
        index, _ = ROUTED[tier].least_seconds(*sizes, arch, sms)
        times = {number: time for number, time, _ in row[NAMES[tier]]}
        assert row["sgemm"] >= 0.98 * times.get(index, 0.0), case
        chosen += index in times
    assert chosen >= 25
