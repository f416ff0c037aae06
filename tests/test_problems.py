"""The GEMM problem: inputs, layouts, reference, and the error bound that separates TF32."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmlab import problems
from gemmlab.errors import InputError, ShapeError, UnknownNameError
from gemmlab.lab.judge.judge import compare, errors
from gemmlab.problems import histogram
from gemmlab.problems.inputs import FAMILIES
from gemmlab.problems.rounding import sizes

GEMM = problems.find("gemm")
EXACT_IN_TF32 = {"integers", "zeros"}


def case(m, n, k, family="normal", layout="row", seed=0):
    return GEMM.case({"m": m, "n": n, "k": k}, layout, family, seed)


def verdict(one, c):
    return compare(c, one.reference(), one.magnitude(), GEMM.bound_u(one.shape))


def chained(a, b, fused):
    """Float32 product, one long chain per element, with or without fused multiply-add."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[1]):
        if fused:
            # A product of two float32 is exact in float64; the sum rounds twice, almost an FMA.
            exact = np.multiply.outer(a[:, i].astype(np.float64), b[i].astype(np.float64))
            c = (c + exact).astype(np.float32)
        else:
            c = c + np.multiply.outer(a[:, i], b[i])
    return c


def split(a, b, parts):
    """Partial sums of slices of K, added at the end."""
    slices = np.array_split(np.arange(a.shape[1]), parts)
    return np.sum([chained(a[:, s], b[s], True) for s in slices], axis=0, dtype=np.float32)


ORDERS = {
    "fused chain": lambda a, b: chained(a, b, True),
    "unfused chain": lambda a, b: chained(a, b, False),
    "reversed chain": lambda a, b: chained(a[:, ::-1], b[::-1], True),
    "split": lambda a, b: split(a, b, 4),
    "library": lambda a, b: a @ b,
}


def tf32(x):
    """Round to TF32's 10 bits of mantissa, nearest even; infinities and NaN stay."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 33),
    n=st.integers(1, 33),
    k=st.integers(1, 300),
    family=st.sampled_from(sorted(FAMILIES)),
    order=st.sampled_from(sorted(ORDERS)),
    seed=st.integers(0, 2**32),
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_correct_float32_passes_in_any_order(m, n, k, family, order, seed):
    one = case(m, n, k, family, seed=seed)
    found = verdict(one, ORDERS[order](one.a, one.b))
    assert found.passed, found.message


@pytest.mark.parametrize("k", [1, 2, 7, 32, 500, pytest.param(4096, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - EXACT_IN_TF32))
@pytest.mark.filterwarnings("ignore:invalid value")
def test_tf32_inputs_are_rejected(k, family):
    one = case(64, 64, k, family)
    found = verdict(one, tf32(one.a) @ tf32(one.b))
    assert found.status == "wrong answer"


def test_long_positive_chains_keep_to_the_bound():
    one = case(16, 16, 20_000, "uniform")
    assert verdict(one, chained(one.a, one.b, False)).passed


def test_the_bound_is_the_worst_case_for_a_few_terms_and_its_root_beyond():
    bounds = [GEMM.bound_u({"m": 1, "n": 1, "k": k}) for k in (1, 4, 100, 10_000)]
    assert bounds == pytest.approx([1, 4, 20, 200], rel=0.01)


def test_errors_are_in_units_of_u_and_infinite_where_nan_or_infinity_is_wrong():
    expected = np.array([1.0, np.nan, np.inf, np.inf, 1.0])
    got = np.array([1 + 2.0**-23, np.nan, np.inf, -np.inf, np.nan], np.float32)
    found = errors(got, expected, np.ones(5))
    assert found.tolist() == [2.0, 0.0, 0.0, np.inf, np.inf]


@pytest.mark.parametrize("layout", GEMM.layouts)
def test_memory_image_follows_the_layout(layout):
    one = case(3, 5, 7, layout=layout)
    s = one.scalars
    a, b = one.buffers["a"], one.buffers["b"]
    assert (a.size, b.size, one.output_size) == (21, 35, 15)
    assert a[2 * s["lda"] + 4] == one.a[2, 4]
    b_step, c_step = (s["ldb"], 1), (s["ldc"], 1)
    if layout == "course":
        b_step, c_step = b_step[::-1], c_step[::-1]
    assert b[4 * b_step[0] + 3 * b_step[1]] == one.b[4, 3]
    image = np.arange(15, dtype=np.float32)
    assert one.result(image)[2, 3] == image[2 * c_step[0] + 3 * c_step[1]]


def test_inputs_depend_on_every_part_of_the_key_and_nothing_else():
    assert np.array_equal(case(8, 8, 8).a, case(8, 8, 8).a)
    assert not np.array_equal(case(8, 8, 8).a, case(8, 8, 8, seed=1).a)
    assert not np.array_equal(case(8, 8, 8).a, case(8, 9, 8).a)
    assert not np.array_equal(case(8, 8, 8).a, case(8, 8, 8).b.T)


def test_families_are_what_they_say():
    special = case(40, 40, 40, "special")
    both = np.concatenate([special.a.ravel(), special.b.ravel()])
    assert np.isnan(both).any() and np.isposinf(both).any() and np.isneginf(both).any()
    assert (np.signbit(both) & (both == 0)).any()
    assert ((np.abs(both) < 2.0**-126) & (both != 0)).any()
    assert np.isfinite(special.reference()).mean() > 0.5
    cancelling = case(8, 8, 64, "cancellation")
    assert np.max(np.abs(cancelling.reference()) / cancelling.magnitude()) < 1e-2
    picked = case(8, 8, 64, "one-hot")
    assert np.isin(picked.reference(), picked.b).all()
    assert (case(4, 4, 4, "zeros").reference() == 0).all()
    values = case(32, 32, 32, "wide").a
    assert np.abs(values).max() / np.abs(values).min() > 2.0**50


def test_work_and_traffic():
    shape = {"m": 2, "n": 3, "k": 5}
    assert GEMM.flops(shape) == 60
    assert GEMM.min_bytes(shape) == 4 * (10 + 15 + 6)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (ShapeError, (0, 1, 1)),
        (ShapeError, (1, -1, 1)),
        (ShapeError, (1, 1, 2**31)),
        (UnknownNameError, (1, 1, 1, "gaussian")),
        (UnknownNameError, (1, 1, 1, "normal", "diagonal")),
        (InputError, (1, 1, 1, "normal", "row", -1)),
    ],
)
def test_bad_cases_are_refused(kind, arguments):
    with pytest.raises(kind):
        case(*arguments)


def test_unknown_problem_names_those_there_are():
    with pytest.raises(UnknownNameError, match="gemm"):
        problems.find("gem")


@pytest.mark.parametrize("name", problems.NAMES)
def test_a_case_has_an_image_for_every_parameter(name):
    problem = problems.find(name)
    for family in problem.families:
        one = problem.case(dict.fromkeys(problem.axes, 7), problem.layouts[0], family, 0)
        for parameter in problem.parameters:
            if parameter.kind == "scalar":
                assert isinstance(one.scalars[parameter.name], int)
            elif parameter.kind == "input":
                assert one.buffers[parameter.name].dtype == parameter.dtype
                assert one.buffers[parameter.name].ndim == 1
            else:
                assert (one.output, one.output_dtype) == (parameter.name, parameter.dtype)
        image = np.zeros(one.output_size, one.output_dtype)
        assert one.result(image).shape == one.reference().shape == one.magnitude().shape


@pytest.mark.parametrize("name", ["transpose", "sum", "histogram", "vector-add"])
def test_nothing_is_a_size_too(name):
    problem = problems.find(name)
    one = problem.case(dict.fromkeys(problem.axes, 0), "row", problem.families[0], 0)
    assert (one.reference() == 0).all()
    with pytest.raises(ShapeError, match="is not between 0 and"):
        problem.case(dict.fromkeys(problem.axes, -1), "row", problem.families[0], 0)
    with pytest.raises(UnknownNameError, match="no layout 'course' for"):
        problem.case(dict.fromkeys(problem.axes, 1), "course", problem.families[0], 0)


def test_a_transposed_image_is_row_major():
    one: Any = problems.find("transpose").case({"m": 3, "n": 5}, "row", "normal", 0)
    assert one.result(np.ascontiguousarray(one.a.T).ravel())[4, 2] == one.a[2, 4]
    assert (one.scalars["lda"], one.scalars["ldb"]) == (5, 3)


@pytest.mark.parametrize("family", problems.find("sum").families)
@pytest.mark.parametrize("n", [1, 2, 1000, 2**17])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_sum_in_one_chain_and_in_pairs_keeps_to_the_bound(family, n):
    total = problems.find("sum")
    one: Any = total.case({"n": n}, "row", family, 0)
    bound = total.bound_u(one.shape)
    for added in (np.cumsum(one.x)[-1:], np.array([np.sum(one.x)])):
        found = compare(added.astype(np.float32), one.reference(), one.magnitude(), bound)
        assert found.passed, found.message


def test_a_sum_that_lost_half_its_terms_is_wrong():
    total = problems.find("sum")
    one: Any = total.case({"n": 1000}, "row", "uniform", 0)
    half = np.array([one.x[::2].sum()])
    assert not compare(half, one.reference(), one.magnitude(), total.bound_u(one.shape)).passed


def test_histogram_families_differ_in_how_often_bytes_meet():
    histogram = problems.find("histogram")
    most = {}
    for family in histogram.families:
        counts = histogram.case({"n": 10_000}, "row", family, 0).reference()
        assert counts.sum() == 10_000
        most[family] = counts.max()
    assert most["single"] == 10_000 > most["text"] > 1000 > most["uniform"]


def test_text_is_drawn_as_numpy_draws_it():
    letters = np.frombuffer(histogram._LETTERS, np.uint8)
    shares, many = np.array(histogram._SHARES) / sum(histogram._SHARES), histogram._SLAB + 7
    drawn = np.random.default_rng(5).choice(letters, many, p=shares)
    assert np.array_equal(histogram.text(np.random.default_rng(5), many), drawn)


def test_one_count_that_is_off_is_not_exact():
    one = problems.find("histogram").case({"n": 99}, "row", "text", 0)
    counts = one.reference().astype(np.uint32)
    assert compare(counts, one.reference(), one.magnitude(), 0.0).message == "exact"
    counts[101] += 1
    found = compare(counts, one.reference(), one.magnitude(), 0.0)
    assert found.status == "wrong answer" and "1 of 256 elements not exact" in found.message


@pytest.mark.parametrize("family", problems.find("vector-add").families)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_an_addition_has_one_right_answer(family):
    one: Any = problems.find("vector-add").case({"n": 4000}, "row", family, 0)
    got = one.a + one.b
    assert compare(got, one.reference(), one.magnitude(), 0.0).passed
    at = int(np.flatnonzero(np.isfinite(got))[5])
    got[at] = np.nextafter(got[at], np.float32(np.inf))
    assert not compare(got, one.reference(), one.magnitude(), 0.0).passed


def test_terms_of_an_addition_cancel():
    one: Any = problems.find("vector-add").case({"n": 500}, "row", "cancellation", 0)
    assert np.abs(one.reference()).max() < 1e-2 < np.abs(one.a).max()


def test_small_numbers_count_as_the_least_and_zeros_as_none():
    x = np.array([0, 2.0**-20, -(2.0**-20), -3, np.inf, np.nan], np.float32)
    assert np.array_equal(
        sizes(x, 2.0**-14), [0, 2.0**-14, 2.0**-14, 3, np.inf, np.nan], equal_nan=True
    )
