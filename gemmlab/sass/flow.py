"""The flow through a control-flow graph that differs least from counts that are not quite its own.

As many threads leave a basic block as enter it. Counts guessed block by block break that rule; the
flow that keeps it and moves the guesses least is a circulation of minimum cost, after R. Levin,
I. Newman, G. Haber, "Complementing missing and inaccurate profiling using a minimum cost
circulation algorithm", HiPEAC 2008. It is found by successive shortest paths.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

UNLIMITED = 1 << 62


class Guess(NamedTuple):
    """How often a block should be executed, and the cost of each time more or less."""

    times: int
    weight: int


def least_change(
    guesses: Sequence[Guess],
    edges: Sequence[Sequence[tuple[int, int]]],
    entering: int,
) -> tuple[list[int], list[list[int]]]:
    """Counts of blocks, and of the edges out of each, of which `entering` enter block 0.

    edges: for each block its (target, cost of a unit); target -1 leaves the graph.
    """
    blocks = len(guesses)
    leave, source, sink = 2 * blocks, 2 * blocks + 1, 2 * blocks + 2
    network = _Network(2 * blocks + 3)
    more, less, along = [], [], list[list[int]]()
    for block, (count, weight) in enumerate(guesses):
        into, out = 2 * block, 2 * block + 1
        more.append(network.arc(into, out, UNLIMITED, weight))
        less.append(network.arc(out, into, count, weight))
        # The guess is a flow that is already there: it ends at `into` and starts at `out`.
        network.arc(source, out, count, 0)
        network.arc(into, sink, count, 0)
        targets = (leave if target < 0 else 2 * target for target, _ in edges[block])
        costs = (cost for _, cost in edges[block])
        along.append(
            [network.arc(out, to, UNLIMITED, cost) for to, cost in zip(targets, costs, strict=True)]
        )
    network.arc(source, 0, entering, 0)
    network.arc(leave, sink, entering, 0)
    network.send(source, sink)
    counts = [
        guess.times + network.flow(up) - network.flow(down)
        for guess, up, down in zip(guesses, more, less, strict=True)
    ]
    return counts, [[network.flow(arc) for arc in arcs] for arcs in along]


@dataclass
class _Network:
    """Arcs in pairs: arc i and, as arc i ^ 1, what of its flow can be taken back."""

    nodes: int
    to: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)
    cost: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out: list[list[int]] = [[] for _ in range(self.nodes)]

    def arc(self, a: int, b: int, capacity: int, cost: int) -> int:
        number = len(self.to)
        for start, end, room, price in ((a, b, capacity, cost), (b, a, 0, -cost)):
            self.out[start].append(len(self.to))
            self.to.append(end)
            self.room.append(room)
            self.cost.append(price)
        return number

    def flow(self, arc: int) -> int:
        return self.room[arc ^ 1]

    def send(self, source: int, sink: int) -> None:
        """As much flow as there is room for, each unit along a cheapest path."""
        potential = [0] * self.nodes
        while True:
            distance, through = self._search(source, sink, potential)
            if sink not in distance:
                return
            far = distance[sink]
            for node in range(self.nodes):
                potential[node] += min(distance.get(node, far), far)
            path, node = [], sink
            while node != source:
                path.append(through[node])
                node = self.to[through[node] ^ 1]
            amount = min(self.room[arc] for arc in path)
            for arc in path:
                self.room[arc] -= amount
                self.room[arc ^ 1] += amount

    def _search(
        self, source: int, sink: int, potential: list[int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Dijkstra's search on reduced costs, until the sink's distance is final."""
        distance, through, done = {source: 0}, dict[int, int](), set[int]()
        heap = [(0, source)]
        while heap:
            so_far, node = heapq.heappop(heap)
            if node in done:
                continue
            done.add(node)
            if node == sink:
                break
            for arc in self.out[node]:
                if self.room[arc] > 0:
                    end = self.to[arc]
                    total = so_far + self.cost[arc] + potential[node] - potential[end]
                    if total < distance.get(end, UNLIMITED):
                        distance[end], through[end] = total, arc
                        heapq.heappush(heap, (total, end))
        return distance, through
