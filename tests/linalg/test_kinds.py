"""Formulas plan products as the planner does."""

from __future__ import annotations

import threading
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmlab.linalg.arch.sm80 import SM80
from gemmlab.linalg.planning import formulas, kinds
from gemmlab.linalg.planning.formulas import (
    Formulas,
    NotTraceable,
    Symbol,
    first_least,
    least,
)
from gemmlab.linalg.planning.launch import PlannedLaunch, WorkspaceAddresses
from gemmlab.linalg.planning.program import NAMES, Factor, Job, placed
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.planning.times import DIRECT, FMA, LEAST_DEPTH, ROUTED
from gemmlab.linalg.shapes import Operand, Stack

SMS = 132
LEFT, RIGHT, REPORT, TOTALS, NOTES = (i << 40 for i in range(1, 6))
MEMORY = WorkspaceAddresses(LEFT, RIGHT, REPORT, TOTALS, NOTES)
ARRAYS = dict(zip(NAMES, (i << 44 for i in range(1, 5)), strict=True))
CHOICES = [
    Choice("fp16x3", "", DIRECT),
    Choice("fp16x3", "", "bf16x6"),
    Choice("fp16x3", "requested"),
    Choice("bf16x6", "requested"),
    Choice("fp16x3", "", "bf16x6", SM80),
    Choice(DIRECT, "requested"),
    Choice(FMA, "requested"),
]


@st.composite
def jobs(draw: Any) -> Job:
    """Products with any layouts, in memory with gaps, also with packed operands."""
    choice = draw(st.sampled_from(CHOICES))
    sizes = st.one_of(st.integers(1, 300), st.integers(1, 6000))
    m, n, k = draw(sizes), draw(sizes), draw(st.one_of(sizes, st.integers(6000, 40000)))
    if draw(st.booleans()):  # a vector
        m, n = draw(st.sampled_from([(1, n), (m, 1)]))
    if DIRECT in (choice.tier, choice.fallback):
        k = max(k, LEAST_DEPTH)
    batch = draw(st.sampled_from([1, 1, 1, 3]))

    def factor(name: str, vectors: int) -> Factor:
        k_major, gap = draw(st.booleans()), draw(st.integers(0, 3))
        ld = (k if k_major else vectors) + gap
        step = draw(st.sampled_from([0, ld * (vectors if k_major else k)])) if batch > 1 else 0
        operand = Operand(vectors, k, k_major, ld, batch if step else 1, step)
        kept = None if choice.tier in ROUTED else draw(st.sampled_from([None, None, 7 << 40]))
        return Factor(name, operand, choice.tier, choice.fallback, kept, choice.arch)

    names = draw(st.sampled_from(["ab", "ba"]))
    left, right = factor(names[0], m), factor(names[1], n)
    c = Stack(m, n, n + draw(st.integers(0, 2)), 1, batch, m * n if batch > 1 else 0)
    beta = draw(st.sampled_from([0.0, 0.0, 1.0, -0.5]))
    d = None
    if beta and draw(st.booleans()):
        row, column = draw(st.sampled_from([(0, 1), (1, 0), (n + 3, 1)]))
        d = Stack(m, n, row, column, batch, 0)
    return Job(left, right, c, choice, draw(st.sampled_from([1.0, 2.0])), beta, d=d)


def parameters_of(launch: PlannedLaunch) -> list[tuple[str, str]]:
    """The arguments in another order, with some type."""
    return [(name, "f32" if name in ("alpha", "beta") else "u64") for name in sorted(launch.args)]


@given(st.lists(jobs(), min_size=2, max_size=8))
def test_formulas_plan_what_the_planner_plans(wanted: list[Job]) -> None:
    """Each product is planned by the kinds of the products before it."""
    for job in wanted:
        launches = job.launches(MEMORY, SMS)
        parameters = [parameters_of(launch) for launch in launches]
        found = kinds.of(job, SMS)
        if found is not None:
            asked: list[Any] = []

            def place(*sizes: int, to: Any = asked) -> tuple[int, ...]:
                to.append(sizes)
                return LEFT, RIGHT, TOTALS, NOTES

            numbers = *kinds.numbers_of(job), REPORT, *ARRAYS.values()
            planned = found.plan(*numbers, place)
            if planned is None:
                assert not asked  # an operand of another kind takes no memory
                found.add(job, SMS, launches, parameters)
                planned = found.plan(*numbers, place)
            if planned is None:  # formulas cannot plan it
                continue
            index, *each = planned
            kind = found.each[index]
            sizes = job.sizes(SMS)
            assert asked == [sizes] or (asked == [] and not any(sizes))
            expected = zip(placed(launches, ARRAYS), parameters, strict=True)
            assert [*kind.each(*each)] == [kinds.launch_numbers(*pair) for pair in expected]
            for first, launch in zip(kind.launches, launches, strict=True):
                assert (first.code, [*first.args]) == (launch.code, [*launch.args])
                assert [x.copy for x in first.maps] == [x.copy for x in launch.maps]


def test_kinds_know_all_that_describes_a_product() -> None:
    """A new field belongs into `kinds.of`, or into `Numbers`."""
    known = {
        Job: ["left", "right", "c", "choice", "alpha", "beta", "tile", "route", "d"],
        Factor: ["name", "operand", "scheme", "fallback", "kept", "arch"],
        Operand: ["vectors", "depth", "k_major", "ld", "batch", "batch_stride"],
    }
    for kind, names in known.items():
        assert [x.name for x in fields(kind) if x.init] == names
    strides = ["rows", "columns", "row_stride", "column_stride", "batch", "step"]
    assert list(Stack._fields) == strides


def by_default(m: int, n: int, k: int) -> Job:
    left, right = Operand(m, k, True, k), Operand(n, k, False, n)
    choice = CHOICES[0]
    factors = [
        Factor(name, operand, choice.tier, choice.fallback)
        for name, operand in (("a", left), ("b", right))
    ]
    return Job(factors[0], factors[1], Stack(m, n, n, 1), choice)


def test_most_new_shapes_are_of_few_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_kinds", {})
    planned = 0
    for m in range(1024, 4000, 7):
        job = by_default(m, 2048 + 3 * m % 1000, 1000 + m % 3000)
        numbers, found = kinds.numbers_of(job), kinds.of(job, SMS)
        if found is None:
            continue
        memory = LEFT, RIGHT, TOTALS, NOTES
        if found.plan(*numbers, REPORT, *ARRAYS.values(), lambda *_, at=memory: at):
            planned += 1
        else:
            launches = job.launches(MEMORY, SMS)
            found.add(job, SMS, launches, [*map(parameters_of, launches)])
    count = sum(map(len, kinds._kinds.values()))
    assert count < 20 and planned > 0.85 * len(range(1024, 4000, 7))


def trace(names: Any, values: Any, plan: Any, place: Any = None) -> Any:
    """The function of one trace."""
    traces = formulas.Traces(names, place)
    traces.add(values, plan)
    return traces.function


def test_a_function_applies_where_all_comparisons_have_the_same_outcome() -> None:
    def twice(x: int) -> tuple[int]:
        return (2 * x,)

    def plan(x: Any, y: Any, place: Any) -> Any:
        blocks = min(-(-x // 64), 10)
        (memory,) = place(formulas.least(blocks, y))
        rest = formulas.most(x - y, memory) if x < 3000 else 0
        index, value = formulas.first_least((x // 9, y, 7, y + 0))  # ties go to the first
        found = 1.0 / x if x < 100 else max(x - y, 2)
        return (blocks, x * y + 3 if y else 0), (found, rest), (index, 1 * value)

    for given_x, given_y in ((70, 2), (700, 2), (70, 0), (5000, 4998)):
        traced = trace(("x", "y"), (given_x, given_y), plan, twice)
        for x in (1, 64, 65, 99, 100, 640, 641, 5000):
            for y in (0, 1, 4998, 4999):
                assert traced(x, y, twice) in (None, plan(x, y, twice))
        assert traced(given_x, given_y, twice) == plan(given_x, given_y, twice)


NUMBERS = st.integers(0, 60)


def ways(x: Any, y: Any, z: Any) -> Any:
    """A plan whose comparisons depend on others, and that computes more than it needs."""
    total, wide = x * y + z, -(-x // 8)
    unused = total * 7
    if total > 400:
        if y > z:
            return (total, wide, formulas.least(unused, x))
        return (wide + unused, formulas.first_least((x, y, z))[0])
    if wide == 3:
        return (formulas.most(total, y), (wide,))
    return (total - wide,) if z < 20 else (unused // 3, total)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=6),
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=20),
)
def test_traces_apply_where_one_of_them_does(traced: list[Any], others: list[Any]) -> None:
    traces = formulas.Traces(("x", "y", "z"))
    known: list[Any] = []
    for point in traced:
        one = trace(("x", "y", "z"), point, ways)
        if not any(each(*point) for each in known):
            assert traces.function(*point) is None
            traces.add(point, ways)
            known.append(one)
    assert len(traces) == len(known) <= 5
    for point in (*traced, *others):
        found = [one for each in known if (one := each(*point)) is not None]
        assert traces.function(*point) == (found[0] if found else None)
        assert len(found) <= 1 and found in ([], [ways(*point)])


def test_operands_of_another_kind_call_nothing() -> None:
    """Conditions come first, whatever the order in the plan, and unneeded lines are left out."""

    def plan(x: Any, place: Any) -> Any:
        (memory,) = place(x * x)
        _ = x + 3
        return (memory + x,) if x > 5 else (memory,)

    asked: list[int] = []

    def place(size: int) -> tuple[int]:
        asked.append(size)
        return (size + 1,)

    traced = trace(("x",), (7,), plan, place)
    asked.clear()
    assert traced(4, place) is None and not asked
    assert traced(9, place) == (91,) and asked == [81]


def test_a_plan_that_needs_a_number_has_no_formulas() -> None:
    with pytest.raises(NotTraceable):
        trace(("x",), (3,), lambda x, _: tuple(range(x)), lambda: ())


def test_threads_that_miss_a_formula_make_it_once() -> None:
    """One of them while another one makes it."""
    others = list[threading.Thread]()

    def function(n: Any) -> tuple[Any]:
        if isinstance(n, Symbol) and not others:
            others.append(threading.Thread(target=doubled, args=(3,)))
            others[0].start()
            others[0].join(0.1)
        return (2 * n if n > 2 else n,)

    doubled = Formulas(("n",), function)
    for _ in range(20):
        assert doubled(3) == (6,)
    others[0].join()
    assert doubled(3) == (6,) and len(doubled._traces) == 1


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda x: (least(x / 4, 1) // 1,), [8] * 6 + [2]),
        (lambda x: (least(x / 4, 1) * 1, 5 if x > 100 else 6), [2] * 6 + [200] * 6 + [50]),
        (lambda x: (first_least([x / 4, 1])[1] * 1,), [8] * 6 + [2]),
    ],
)
def test_the_smaller_of_an_int_and_a_float_may_be_either(function: Any, calls: list[int]) -> None:
    """Operations that leave an int as it is are left out of formulas, but not of these."""
    found = Formulas(("x",), function)
    for x in calls:
        assert found(x) == function(x)
    assert len(found._traces) > 0


def test_a_function_that_cannot_be_traced_is_called() -> None:
    found = Formulas(("x",), lambda x: (int(x) + 1,))
    assert [found(x) for x in range(20)] == [(x + 1,) for x in range(20)]
