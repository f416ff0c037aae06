"""The flow through a control-flow graph that is closest to inconsistent execution counts.

Every basic block is entered as often as it is left. Counts estimated per block violate this. The
flow that satisfies it with the least change is a minimum cost circulation, after R. Levin, I.
Newman, G. Haber, "Complementing missing and inaccurate profiling using a minimum cost circulation
algorithm", HiPEAC 2008. It is computed by successive shortest paths.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

UNLIMITED = 1 << 62


class Estimate(NamedTuple):
    """An estimated count of a block, and the cost per unit of deviation."""

    times: int
    weight: int


def closest_flow(
    estimates: Sequence[Estimate],
    edges: Sequence[Sequence[tuple[int, int]]],
    entering: int,
) -> tuple[list[int], list[list[int]]]:
    """Return the counts of blocks and of the edges out of each. `entering`: the count entering
    block 0.

    edges: for each block its (target, cost per unit); target -1 leaves the graph.
    """
    blocks = len(estimates)
    leave, source, sink = 2 * blocks, 2 * blocks + 1, 2 * blocks + 2
    network = _Network(2 * blocks + 3)
    more, less, edge_arcs = [], [], list[list[int]]()
    for block, (count, weight) in enumerate(estimates):
        into, out = 2 * block, 2 * block + 1
        more.append(network.arc(into, out, UNLIMITED, weight))
        less.append(network.arc(out, into, count, weight))
        # The estimate is an initial flow, which drains at `into` and is supplied at `out`.
        network.arc(source, out, count, 0)
        network.arc(into, sink, count, 0)
        targets = (leave if target < 0 else 2 * target for target, _ in edges[block])
        costs = (cost for _, cost in edges[block])
        edge_arcs.append(
            [network.arc(out, to, UNLIMITED, cost) for to, cost in zip(targets, costs, strict=True)]
        )
    network.arc(source, 0, entering, 0)
    network.arc(leave, sink, entering, 0)
    network.send(source, sink)
    counts = [
        estimate.times + network.flow(up) - network.flow(down)
        for estimate, up, down in zip(estimates, more, less, strict=True)
    ]
    return counts, [[network.flow(arc) for arc in arcs] for arcs in edge_arcs]


@dataclass
class _Network:
    """Arcs in pairs: arc i, and its residual arc i ^ 1."""

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
        """Send as much flow as capacity permits, each unit along a cheapest path."""
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
        """Run Dijkstra's algorithm on reduced costs until the sink's distance is final."""
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
