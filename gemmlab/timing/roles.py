"""Which warps of a block execute what, in kernels whose warps have different tasks.

The first blocks of a kernel with mbarriers, or with barriers of some warps, run until their warps
have completed a few iterations of their loops. Warps that enter the same basic blocks have one
role. A basic block that no warp has entered at that point, such as the end of the kernel, is
executed by the warps that can still reach it, through basic blocks that no other role has entered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.cubin.code import LEAVE, Code
from gemmlab.cubin.code import Block as MachineBlock
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.program import Block


@dataclass(frozen=True)
class Role:
    """warps: their numbers in a block. share: of a warp, in the executions of each basic block of
    PTX by the warps of a block."""

    warps: tuple[int, ...]
    share: np.ndarray

    def of(self, tally: Tally, blocks: Sequence[Block]) -> Tally:
        """The part of a tally that the role's warps have executed. blocks: of PTX. The counts of
        memory accesses stay those of all warps."""
        part = self.share * len(self.warps)
        each = np.repeat(part, [block.last - block.first for block in blocks])
        shares = (part, part, each, each)
        counts = (tally.warps, tally.lanes, tally.guarded_off, tally.divergent)
        warps, lanes, off, divergent = (
            np.rint(x * share).astype(np.int64) for x, share in zip(counts, shares, strict=True)
        )
        return Tally(warps, lanes, tally.sites, off, divergent)


def everyone(warps: int, blocks: int) -> list[Role]:
    """All warps of a block in one role."""
    return [Role(tuple(range(warps)), np.full(blocks, 1 / warps))]


def roles(blocks: Sequence[Block], entered: np.ndarray, last: Sequence[int]) -> list[Role]:
    """Return the roles of warps, the one with the first warp first.

    entered: (warps, blocks of PTX) bool. last: the block that each warp has entered last.
    """
    untouched = ~entered.any(axis=0)
    takes = entered.copy()
    for own, at in zip(takes, last, strict=True):
        open_, waiting, seen = own | untouched, [at], {at}
        while waiting:
            ahead = {x for x in blocks[waiting.pop()].targets if x < len(blocks) and open_[x]}
            waiting += ahead - seen
            seen |= ahead
        own[list(seen)] = True
    sharers = np.maximum(1, takes.sum(axis=0))
    groups: dict[bytes, list[int]] = {}
    for warp, row in enumerate(takes):
        groups.setdefault(row.tobytes(), []).append(warp)
    return [Role(tuple(own), takes[own[0]] / sharers) for own in groups.values()]


Class = tuple[float, list[tuple[Role, list[float]]]]  # share of blocks; executions by a warp


def executions(classes: Sequence[tuple[float, Sequence[tuple[Role, list[float]]]]]) -> list[float]:
    """Return how often the warps of a block together execute each machine block, on average."""
    found = [0.0] * len(classes[0][1][0][1])
    for share, parts in classes:
        for role, times in parts:
            found = [x + share * len(role.warps) * y for x, y in zip(found, times, strict=True)]
    return found


def without_polls(code: Code, times: list[float]) -> list[float]:
    """Return executions in which each wait for an mbarrier succeeds the first time.

    How often a warp polls depends on the emulator's order. A loop that only polls is executed once
    per entry; not at all if the warp has already polled before the loop and skips it on success.
    """
    found = list(times)
    before: list[set[int]] = [set() for _ in code.blocks]
    for i, block in enumerate(code.blocks):
        for edge in block.edges:
            if edge.target != LEAVE:
                before[edge.target].add(i)
    for poll, block in enumerate(code.blocks):
        targets = {edge.target for edge in block.edges}
        if poll not in targets or not _looks(code, block):
            continue
        detour = {poll}
        for number in range(poll - 1, -1, -1):  # blocks that lead only here
            ends = {edge.target for edge in code.blocks[number].edges}
            if ends != {number + 1} or _looks(code, code.blocks[number]):
                break
            detour.add(number)
        entrances = set().union(*(before[i] for i in detour)) - detour
        after = {i for i in targets if i != poll and before[i] <= detour}
        ways = (targets - {poll}) | {e.target for i in after for e in code.blocks[i].edges}
        if entrances and all(
            _looks(code, code.blocks[i]) and ways & {e.target for e in code.blocks[i].edges}
            for i in entrances
        ):
            for i in detour | after:
                found[i] = 0.0
        else:
            found[poll] = min(times[poll], sum(times[i] for i in before[poll] - {poll}))
    return found


def _looks(code: Code, block: MachineBlock) -> bool:
    return any("PHASECHK" in one.opcode for one in code.inside(block))
