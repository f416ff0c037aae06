"""The flow through a control-flow graph that is closest to inconsistent execution counts.

Every basic block is entered as often as it is left. Counts estimated per block violate this. The
flow that satisfies it with the least change is a minimum cost circulation, after R. Levin, I.
Newman, G. Haber, "Complementing missing and inaccurate profiling using a minimum cost circulation
algorithm", HiPEAC 2008. It is computed by successive shortest paths.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

UNLIMITED = 1 << 62


class Estimate(NamedTuple):
    """An estimated count of a block, and the cost per unit of deviation."""

    times: int
    weight: int


class Graph:
    """A control-flow graph. edges: for each block its (target, cost per unit); target -1 leaves the
    graph."""

    def __init__(self, edges: Sequence[Sequence[tuple[int, int]]]) -> None:
        leave, source, sink = 2 * len(edges), 2 * len(edges) + 1, 2 * len(edges) + 2
        nodes = 2 * len(edges) + 3
        self._source, self._sink, self._network = source, sink, _Network([[] for _ in range(nodes)])
        arc = self._network.arc
        self._blocks: list[_Arcs] = []
        for block, targets in enumerate(edges):
            into, out = 2 * block, 2 * block + 1
            more, less = arc(into, out, 0), arc(out, into, 0)
            # The estimate is an initial flow, which drains at `into` and is supplied at `out`.
            supply, drain = arc(source, out, 0), arc(into, sink, 0)
            further = [arc(out, leave if to < 0 else 2 * to, cost) for to, cost in targets]
            self._blocks.append(_Arcs(more, less, supply, drain, further))
        self._enter, self._leave = arc(source, 0, 0), arc(leave, sink, 0)

    def closest(
        self, estimates: Sequence[Estimate], entering: int
    ) -> tuple[list[int], list[list[int]]]:
        """Return the counts of blocks and of the edges out of each. entering: the count that enters
        block 0."""
        known = self._network
        room, cost = [0] * len(known.to), [*known.cost]
        network = replace(known, room=room, cost=cost)
        for (count, weight), arcs in zip(estimates, self._blocks, strict=True):
            for arc in (arcs.more, arcs.less):
                cost[arc], cost[arc ^ 1] = weight, -weight
            room[arcs.more] = UNLIMITED
            room[arcs.less] = room[arcs.supply] = room[arcs.drain] = count
            for arc in arcs.further:
                room[arc] = UNLIMITED
        room[self._enter] = room[self._leave] = entering
        network.send(self._source, self._sink)
        counts = [
            estimate.times + network.flow(arcs.more) - network.flow(arcs.less)
            for estimate, arcs in zip(estimates, self._blocks, strict=True)
        ]
        return counts, [[network.flow(arc) for arc in arcs.further] for arcs in self._blocks]


class _Arcs(NamedTuple):
    """The arcs of a block: for a count above and below its estimate, for its supply and drain, and
    along its edges."""

    more: int
    less: int
    supply: int
    drain: int
    further: list[int]


@dataclass
class _Network:
    """Arcs in pairs: arc i, and its residual arc i ^ 1. out: the arcs out of each node."""

    out: list[list[int]]
    to: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)
    cost: list[int] = field(default_factory=list)

    def arc(self, a: int, b: int, cost: int) -> int:
        """Add an arc that has no room yet."""
        number = len(self.to)
        for start, end, price in ((a, b, cost), (b, a, -cost)):
            self.out[start].append(len(self.to))
            self.to.append(end)
            self.room.append(0)
            self.cost.append(price)
        return number

    def flow(self, arc: int) -> int:
        return self.room[arc ^ 1]

    def send(self, source: int, sink: int) -> None:
        """Send as much flow as capacity permits, each unit along a cheapest path."""
        potential = [0] * len(self.out)
        while True:
            distance, through = self._search(source, sink, potential)
            if sink not in distance:
                return
            far = distance[sink]
            # A potential of all nodes that are farther than the sink makes no difference.
            for node, near in distance.items():
                potential[node] += min(0, near - far)
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
