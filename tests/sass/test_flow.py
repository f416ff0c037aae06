"""Inconsistent counts, and the closest flow."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmlab.sass.flow import Estimate as E
from gemmlab.sass.flow import Graph

LEAVE = -1
DIAMOND = [[1, 2], [3], [3], [LEAVE]]
LOOP = [[1], [1, 2], [LEAVE]]


def solve(edges, estimates, launched):
    graph = Graph([[(to, 0) for to in out] for out in edges])
    counts, edge_counts = graph.closest(estimates, launched)
    assert graph.closest(estimates, launched) == (counts, edge_counts)  # it keeps no flow
    for block, out in enumerate(edge_counts):
        arriving = sum(
            flow
            for flows, targets in zip(edge_counts, edges, strict=True)
            for flow, to in zip(flows, targets, strict=True)
            if to == block
        )
        assert counts[block] == sum(out) == arriving + (launched if block == 0 else 0)
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
            targets = edges[block]
            forward = max((to for to in targets if to > block), default=LEAVE)
            block = rng.choice(targets) if steps < 50 else LEAVE if LEAVE in targets else forward
    return edges, walks, counts


@given(walked())
def test_counts_that_are_a_flow_stay(graph):
    edges, walks, counts = graph
    assert solve(edges, [E(count, 1) for count in counts], walks) == counts


@given(walked(), st.data())
def test_any_estimate_becomes_a_flow(graph, data):
    edges, walks, _ = graph
    numbers = st.tuples(st.integers(0, 1000), st.integers(0, 9))
    estimates = [E(*data.draw(numbers)) for _ in edges]
    assert solve(edges, estimates, walks)[0] >= walks


def test_what_is_not_known_follows():
    assert solve(DIAMOND, [E(9, 1), E(4, 1), E(0, 0), E(0, 0)], 9) == [9, 4, 5, 9]


def test_the_lighter_estimate_gives_way():
    # Instructions were hoisted from the loop into block 0, so its count is too high.
    assert solve(LOOP, [E(80, 3), E(80, 5), E(8, 1)], 8) == [8, 80, 8]
    assert solve(DIAMOND, [E(8, 9), E(6, 9), E(4, 1), E(8, 9)], 8) == [8, 6, 2, 8]


@pytest.mark.parametrize("dear", [1, 2])
def test_of_two_ways_the_cheaper(dear):
    edges = [[(to, int(to == dear)) for to in out] for out in DIAMOND]
    counts, _ = Graph(edges).closest([E(0, 0)] * 4, 5)
    assert counts[dear] == 0 and counts[3 - dear] == 5
