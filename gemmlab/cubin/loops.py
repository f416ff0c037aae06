"""Loops of machine code, and the one in which a kernel spends its time."""

from __future__ import annotations

from collections.abc import Iterator

from gemmlab.cubin.code import LEAVE, Code, Instruction


def hot_loop(code: Code) -> list[Instruction]:
    """Return the instructions of the innermost loop with the most FFMAs, in order of address.

    Among loops with equally many, that with the fewest instructions: kernels have a second loop for
    matrices at whose edges accesses are guarded. A loop without FFMAs inside this loop, such as a
    wait for a barrier, is left out. A kernel without a loop is returned as a whole.
    """
    ffmas = [sum(one.root == "FFMA" for one in code.inside(block)) for block in code.blocks]
    sizes = [len(code.inside(block)) for block in code.blocks]
    loops = list(natural_loops(code))
    busy = [loop for loop in loops if any(ffmas[i] for i in loop)] or loops
    innermost = [loop for loop in busy if not any(other < loop for other in busy)]
    if not innermost:
        return [one for block in code.blocks for one in code.inside(block)]
    chosen = max(innermost, key=lambda loop: (sum(ffmas[i] for i in loop), -_size(loop, sizes)))
    idle = [loop for loop in loops if loop < chosen and not any(ffmas[i] for i in loop)]
    kept = chosen.difference(*idle) or chosen
    return [one for i in sorted(kept) for one in code.inside(code.blocks[i])]


def _size(loop: frozenset[int], sizes: list[int]) -> int:
    return sum(sizes[i] for i in loop)


def natural_loops(code: Code) -> Iterator[frozenset[int]]:
    """Yield the natural loops: for each backward edge, the blocks that reach it from its target."""
    entering: dict[int, set[int]] = {i: set() for i in range(len(code.blocks))}
    for i, block in enumerate(code.blocks):
        for edge in block.edges:
            if edge.target != LEAVE and not edge.cold:
                entering[edge.target].add(i)
    for head, sources in entering.items():
        for tail in (i for i in sources if i >= head):
            loop, waiting = {head}, [tail]
            while waiting:
                member = waiting.pop()
                if member not in loop:
                    loop.add(member)
                    waiting += entering[member]
            if min(loop) == head:
                yield frozenset(loop)
