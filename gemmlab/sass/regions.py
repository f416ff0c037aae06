"""Basic blocks of machine code that run equally often, whatever the branches between them do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain, combinations
from operator import and_

from gemmlab.cubin.code import LEAVE, Code
from gemmlab.cubin.loops import natural_loops

Region = frozenset[int]  # blocks


@dataclass(frozen=True)
class Regions:
    """The regions of a kernel: blocks of the same loops, all of which run if one of them does.

    of: the region of each block. innermost: first block -> the blocks of a loop without others in
    it. _around: for each block, the loops that it is in. _dominators: for each block, those that
    every path to it passes, as bits.
    """

    of: Sequence[Region]
    innermost: dict[int, frozenset[int]]
    _around: Sequence[frozenset[int]]
    _dominators: Sequence[int]

    @classmethod
    @lru_cache(maxsize=8)
    def find(cls, code: Code) -> Regions:
        after = [[edge.target for edge in block.edges] for block in code.blocks]
        before: list[list[int]] = [[] for _ in after]
        for i, targets in enumerate(after):
            for target in targets:
                if target != LEAVE:
                    before[target].append(i)
        ends = {i for i, targets in enumerate(after) if LEAVE in targets or not targets}
        within = [[target for target in targets if target != LEAVE] for targets in after]
        everything = range(len(after))
        earlier = _on_every_path(before, {0}, everything)
        later = _on_every_path(within, ends, everything[::-1])
        loops = [*natural_loops(code)]
        around = [frozenset(n for n, loop in enumerate(loops) if i in loop) for i in everything]
        alike: dict[frozenset[int], list[int]] = {}
        for i, own in enumerate(around):
            alike.setdefault(own, []).append(i)
        of = [{i} for i in everything]
        for i, j in chain.from_iterable(combinations(own, 2) for own in alike.values()):
            if earlier[j] >> i & 1 and later[i] >> j & 1:
                of[i].add(j)
                of[j].add(i)
        innermost = {min(loop): loop for loop in loops if not any(other < loop for other in loops)}
        return cls([*map(frozenset, of)], innermost, around, earlier)

    def entrance(self, head: int, blocks: Iterable[int]) -> int | None:
        """Return the last block before an innermost loop that every path to `blocks` passes, and
        that is in no other loop than the loop is. None if there is none."""
        common = reduce(and_, (self._dominators[i] for i in blocks))
        own = self.innermost[head]
        outside = [
            i
            for i, around in enumerate(self._around)
            if common >> i & 1 and i not in own and around < self._around[head]
        ]
        return max(outside, key=lambda i: self._dominators[i].bit_count(), default=None)


def _on_every_path(
    neighbours: Sequence[Sequence[int]], ends: set[int], order: Iterable[int]
) -> list[int]:
    """For each block, the blocks on every path to it from one of `ends`, as bits.

    order: of all blocks. In that of most paths, few rounds are needed.
    """
    everything = (1 << len(neighbours)) - 1
    found = [everything] * len(neighbours)
    changed = True
    while changed:
        changed = False
        for i in order:
            common = 0 if i in ends else everything
            for other in neighbours[i]:
                common &= found[other]
            now = common | 1 << i
            changed |= now != found[i]
            found[i] = now
    return found
