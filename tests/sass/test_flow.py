"""Inconsistent counts, and the closest flow."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmlab.sass.flow import Guess, least_change

LEAVE = -1
DIAMOND = [[1, 2], [3], [3], [LEAVE]]
LOOP = [[1], [1, 2], [LEAVE]]


def solve(edges, guesses, entering):
    counts, along = least_change(guesses, [[(to, 0) for to in out] for out in edges], entering)
    for block, out in enumerate(along):
        arriving = sum(
            flow
            for flows, targets in zip(along, edges, strict=True)
            for flow, to in zip(flows, targets, strict=True)
            if to == block
        )
        assert counts[block] == sum(out) == arriving + (entering if block == 0 else 0)
    return counts


@st.composite
def walked(draw):
    """Return a graph, and how often random walks from block 0 to the exit visited each block."""
    size = draw(st.integers(2, 8))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    edges = []
    for block in range(size):
        ahead = rng.randint(block + 1, size)
        out = {ahead if ahead < size else LEAVE}
        if rng.random() < 0.5:
            out.add(rng.randrange(size))
        edges.append(sorted(out, reverse=True))
    walks, counts = draw(st.integers(1, 20)), [0] * size
    for _ in range(walks):
        block, steps = 0, 0
        while block != LEAVE:
            counts[block] += 1
            steps += 1
            out = edges[block]
            forward = max((to for to in out if to > block), default=LEAVE)
            block = rng.choice(out) if steps < 50 else LEAVE if LEAVE in out else forward
    return edges, walks, counts


@given(walked())
def test_counts_that_are_a_flow_stay(graph):
    edges, walks, counts = graph
    assert solve(edges, [Guess(count, 1) for count in counts], walks) == counts


@given(walked(), st.data())
def test_any_guess_becomes_a_flow(graph, data):
    edges, walks, _ = graph
    numbers = st.tuples(st.integers(0, 1000), st.integers(0, 9))
    guesses = [Guess(*data.draw(numbers)) for _ in edges]
    assert solve(edges, guesses, walks)[0] >= walks


def test_what_is_not_known_follows():
    assert solve(DIAMOND, [Guess(9, 1), Guess(4, 1), Guess(0, 0), Guess(0, 0)], 9) == [9, 4, 5, 9]


def test_the_lighter_guess_gives_way():
    # Instructions were hoisted from the loop into block 0, so its count is too high.
    assert solve(LOOP, [Guess(80, 3), Guess(80, 5), Guess(8, 1)], 8) == [8, 80, 8]
    assert solve(DIAMOND, [Guess(8, 9), Guess(6, 9), Guess(4, 1), Guess(8, 9)], 8) == [8, 6, 2, 8]


@pytest.mark.parametrize("dear", [1, 2])
def test_of_two_ways_the_cheaper(dear):
    edges = [[(to, int(to == dear)) for to in out] for out in DIAMOND]
    counts, _ = least_change([Guess(0, 0)] * 4, edges, 5)
    assert counts[dear] == 0 and counts[3 - dear] == 5
