"""The path of a warp through machine code, without most iterations of long loops.

The counts of a few blocks show how often a warp enters each basic block on average. Basic blocks
are laid out in the order of execution, so a walk through the loops in the order of addresses is a
path. A basic block that only some warps enter is on the paths of that share of the warps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gemmlab.cubin.code import LEAVE, Code


@dataclass
class Loop:
    """A natural loop, or a kernel as a whole. blocks: its own, and its inner loops by their heads.

    trips: iterations per entry, on average. entries: per iteration of the loop around it.
    """

    head: int
    members: frozenset[int]
    inner: dict[int, Loop] = field(default_factory=dict)
    trips: float = 1.0
    entries: float = 1.0
    times: dict[int, float] = field(default_factory=dict)  # block -> executions per iteration


@dataclass
class Span:
    """A part of a path, by positions, and how often the kernel runs it.

    iterations: the iterations of a loop that are on the path, of `trips` that the kernel makes.
    """

    first: int
    last: int
    trips: int = 1
    head: int = -1  # the first block of the loop
    iterations: list[Span] = field(default_factory=list)
    inner: list[Span] = field(default_factory=list)


@dataclass
class Path:
    """The basic blocks of a warp in order, and the loops on the path."""

    blocks: list[int]
    whole: Span


def loops(code: Code, warps: Sequence[float], is_steady: bool = False) -> Loop:
    """Return the loops of a kernel. warps: how often a warp executes each block, on average.

    is_steady: whether a block that a warp enters in most iterations counts as entered in all,
    because only the last iterations skip it. Copies for later iterations are such blocks.
    """
    entering: dict[int, set[int]] = {i: set() for i in range(len(code.blocks))}
    for i, block in enumerate(code.blocks):
        for edge in block.edges:
            if edge.target != LEAVE and not edge.cold and warps[i] and warps[edge.target]:
                entering[edge.target].add(i)
    found: dict[int, set[int]] = {}
    for head, sources in entering.items():
        for tail in (i for i in sources if i >= head):
            body, waiting = found.setdefault(head, {head}), [tail]
            while waiting:
                member = waiting.pop()
                if member not in body and member >= head:
                    body.add(member)
                    waiting += entering[member]
    whole = Loop(0, frozenset(range(len(code.blocks))))
    for head, body in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        outer = whole
        while True:
            around = [x for x in outer.inner.values() if frozenset(body) < x.members]
            if not around:
                break
            outer = around[0]
        outer.inner[head] = Loop(head, frozenset(body))
    whole.trips = whole.entries = 1.0
    _weigh(code, whole, warps, 1.0)
    if is_steady:
        _settle(whole)
    return whole


def _settle(loop: Loop) -> None:
    loop.times = {i: max(1, round(x)) if x >= 0.5 else x for i, x in loop.times.items()}
    loop.entries = max(1, round(loop.entries)) if loop.entries >= 0.5 else loop.entries
    loop.trips = round(loop.trips)
    for inner in loop.inner.values():
        _settle(inner)


def _weigh(code: Code, loop: Loop, warps: Sequence[float], iterations: float) -> None:
    """Set how often each part of a loop runs. iterations: of the loop, in all."""
    within = {i for inner in loop.inner.values() for i in inner.members}
    loop.times = {i: warps[i] / iterations for i in loop.members - within if warps[i]}
    for inner in loop.inner.values():
        total = warps[inner.head]
        outside = sum(
            warps[i] * _share(code, i, inner.head, warps)
            for i in range(len(code.blocks))
            if i not in inner.members
            and any(e.target == inner.head and not e.cold for e in code.blocks[i].edges)
        )
        entered = min(total, outside) or min(total, iterations)
        if not total:
            inner.trips = inner.entries = 0
            continue
        inner.trips, inner.entries = total / entered, entered / iterations
        _weigh(code, inner, warps, total)


def _share(code: Code, block: int, target: int, warps: Sequence[float]) -> float:
    """The share of a block's executions that continue with a block, by how often those run."""
    targets = [e.target for e in code.blocks[block].edges if not e.cold]
    if len(targets) < 2:
        return 1.0
    others = sum(warps[t] for t in targets if t not in (target, LEAVE))
    return 1.0 if others == 0 or LEAVE in targets else min(1.0, max(0.0, 1 - others / warps[block]))


def walk(whole: Loop, number: int, most: Mapping[int, int]) -> Path:
    """Return the path of warp `number`. most: iterations on the path, by head of a loop."""
    path = Path([], Span(0, 0))
    debts: dict[int, float] = {}

    def due(key: int, times: float) -> int:
        """Spread fractions over warps and iterations."""
        if times == int(times):
            return int(times)
        start = debts.get(key, (number * 0.618034) % 1.0)
        debts[key] = (start + times) % 1.0
        return int(start + times)

    def one_pass(loop: Loop) -> list[Span]:
        spans = []
        parts = sorted([*loop.times, *(i.head for i in loop.inner.values() if i.trips)])
        for part in parts:
            if part in loop.inner:
                inner = loop.inner[part]
                if due(-1 - part, inner.entries):
                    trips = max(1, due(-1_000_000 - part, inner.trips))
                    spans.append(repeat(inner, trips))
            elif due(part, loop.times[part]):
                path.blocks.append(part)
        return spans

    def repeat(loop: Loop, trips: int) -> Span:
        span = Span(len(path.blocks), 0, trips, loop.head)
        for _ in range(min(trips, most.get(loop.head, trips))):
            one = Span(len(path.blocks), 0)
            one.inner = one_pass(loop)
            one.last = len(path.blocks)
            span.iterations.append(one)
        span.last = len(path.blocks)
        return span

    path.whole.inner = one_pass(whole)
    path.whole.last = len(path.blocks)
    return path
