"""Estimates how many warps execute each block, given the number of threads.

A warp that diverges continues as several groups, each of which counts as a warp until they
reconverge at a BSYNC. The emulator reconverges lanes wherever their paths join. Machine code does
so only at a BSYNC, which every group executes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gemmlab.cubin.code import LEAVE, Block, Code
from gemmlab.sass.lines import Executed, Lines

Arc = tuple[int, int]  # a block, and the index of one of its edges


def warps(
    code: Code,
    lines: Lines,
    votes: Sequence[Counter[Executed]],
    threads: Sequence[int],
    edge_threads: Sequence[Sequence[int]],
    launched: Executed,
) -> list[int]:
    """Return the warps of each block.

    votes: of each block's instructions. threads, edge_threads: thread counts of blocks and edges.
    """
    converged = _warps_of_ptx(code, lines, votes, threads, launched)
    groups = _Groups(code, lines, converged, threads, edge_threads, launched)
    return [count if some else 0 for count, some in zip(groups.executed, threads, strict=True)]


def _warps_of_ptx(
    code: Code,
    lines: Lines,
    votes: Sequence[Counter[Executed]],
    threads: Sequence[int],
    launched: Executed,
) -> list[int]:
    """Return the warps of PTX code with the same number of threads: that of a vote if one agrees,
    then that of an adjacent block, then that of any line."""
    found: dict[int, int] = {}
    for i, vote in enumerate(votes):
        agreeing = {e: weight for e, weight in vote.items() if e.threads == threads[i]}
        if agreeing:
            found[i] = max(agreeing, key=lambda e: agreeing[e]).warps
    arcs, before = [*_adjacent(code)], -1
    while len(found) > before:
        before = len(found)
        for i, j in arcs:
            if i in found and j not in found and threads[i] == threads[j]:
                found[j] = found[i]
    everywhere = {line.executed.threads: line.executed.warps for line in lines.values()}
    for i, vote in enumerate(votes):
        if i not in found:
            like = max(vote, key=lambda e: (vote[e], e.threads), default=launched)
            like = like if like.threads else launched
            scaled = round(threads[i] * like.warps / like.threads) if like.threads else 0
            found[i] = everywhere.get(threads[i], scaled)
    return [found[i] for i in range(len(votes))]


def _adjacent(code: Code) -> Iterator[Arc]:
    for i, block in enumerate(code.blocks):
        for edge in block.edges:
            if edge.target != LEAVE:
                yield i, edge.target
                yield edge.target, i


class _Groups:
    """Groups of threads along each edge, as far as they can be derived: a block passes on as many
    groups as arrive, plus one each time its branch splits a group."""

    def __init__(
        self,
        code: Code,
        lines: Lines,
        converged: Sequence[int],
        threads: Sequence[int],
        edge_threads: Sequence[Sequence[int]],
        launched: Executed,
    ) -> None:
        self.code, self.converged, self.threads, self.edge_threads = (
            code,
            converged,
            threads,
            edge_threads,
        )
        self.executed = list(converged)
        self.launched = launched.warps
        self.divergences = _divergences(code, lines)
        self.known: dict[Arc, int] = {}
        self.into: list[list[Arc]] = [[] for _ in code.blocks]
        for i, block in enumerate(code.blocks):
            for k, edge in enumerate(block.edges):
                if edge.target != LEAVE:
                    self.into[edge.target].append((i, k))
        self._follow()
        for i, block in enumerate(code.blocks):
            if self._reconverges(block):
                for arc in self.into[i]:
                    # Each group of a warp may send one along this edge.
                    flow = edge_threads[arc[0]][arc[1]]
                    self.known.setdefault(arc, min(flow, self._groups_leaving(arc[0])))
        self._follow()

    def _follow(self) -> None:
        before = -1
        while len(self.known) > before:
            before = len(self.known)
            for i in range(len(self.code.blocks)):
                self._leaving(i)
            for i in range(len(self.code.blocks)):
                self._arriving(i)

    def _groups_leaving(self, i: int) -> int:
        """The number of groups that leave a block."""
        return self.converged[i] if self._reconverges(self.code.blocks[i]) else self.executed[i]

    def _reconverges(self, block: Block) -> bool:
        return self.code.instructions[block.last - 1].root == "BSYNC"

    def _leaving(self, i: int) -> None:
        block, here = self.code.blocks[i], self._groups_leaving(i)
        taken = [(i, k) for k, flow in enumerate(self.edge_threads[i]) if flow]
        self.known |= {(i, k): 0 for k, flow in enumerate(self.edge_threads[i]) if not flow}
        if len(taken) == 1:
            self.known[taken[0]] = here
        elif self.code.instructions[block.last - 1].root == "RET":
            for arc in taken:
                share = self.edge_threads[i][arc[1]] / self.threads[i]
                self.known[arc] = round(here * share)
        elif i in self.divergences:
            unknown = [arc for arc in taken if arc not in self.known]
            if len(unknown) == 1:
                others = sum(self.known[arc] for arc in taken if arc in self.known)
                self._record(unknown[0], here + self.divergences[i] - others)

    def _arriving(self, i: int) -> None:
        reconverges = self._reconverges(self.code.blocks[i])
        unknown = [arc for arc in self.into[i] if arc not in self.known]
        came = sum(self.known.get(arc, 0) for arc in self.into[i])
        came += self.launched if i == 0 else 0
        if len(unknown) == 1 and not reconverges:
            self._record(unknown[0], self.executed[i] - came)
        elif not unknown and (reconverges or len(self.into[i]) > 1):
            self.executed[i] = came

    def _record(self, arc: Arc, groups: int) -> None:
        """Record a count, limited to between the number of full warps and the number of threads."""
        flow = self.edge_threads[arc[0]][arc[1]]
        self.known[arc] = min(max(groups, -(-flow // 32)), flow)


def _divergences(code: Code, lines: Lines) -> Mapping[int, int]:
    """Return, for each block, how often its branch split a group. Omits branches without a PTX
    line, and those whose line diverged warps and has other branches, too."""
    lasts = [code.instructions[block.last - 1] for block in code.blocks]
    branches = Counter(one.line for one in lasts if one.conditional)
    return {
        i: lines[one.line].divergent
        for i, one in enumerate(lasts)
        if one.conditional and one.line and one.line in lines
        if branches[one.line] == 1 or not lines[one.line].divergent
    }
