"""Loops of machine code, and the one in which a kernel spends its time."""

from __future__ import annotations

from collections.abc import Iterator

from gemmlab.cubin.code import LEAVE, Code, Instruction

# Instructions that multiply matrices on tensor cores.
MATRIX_PRODUCTS = frozenset(
    {"HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA"}
)


def hot_loop(code: Code) -> list[Instruction]:
    """Return the instructions of the innermost loop that multiplies most, in order of address.

    That is the loop with the most products on tensor cores; among equals, that with the most FFMAs,
    then that with the fewest instructions: kernels have a second loop for matrices at whose edges
    accesses are guarded. A loop inside it that does not multiply, such as a wait for a barrier, is
    left out. If no loop multiplies, all count. A kernel without a loop is returned as a whole.
    """
    work = {
        loop: (
            sum(one.root in MATRIX_PRODUCTS for one in inside),
            sum(one.root == "FFMA" for one in inside),
            -len(inside),
        )
        for loop in natural_loops(code)
        for inside in [[one for i in loop for one in code.inside(code.blocks[i])]]
    }
    busy = [loop for loop, (matrices, ffmas, _) in work.items() if matrices or ffmas]
    candidates = busy or list(work)
    innermost = [loop for loop in candidates if not any(other < loop for other in candidates)]
    if not innermost:
        return [one for block in code.blocks for one in code.inside(block)]
    chosen = max(innermost, key=work.__getitem__)
    idle = [loop for loop in work if loop < chosen and loop not in busy]
    kept = chosen.difference(*idle) or chosen
    return [one for i in sorted(kept) for one in code.inside(code.blocks[i])]


def natural_loops(code: Code) -> Iterator[frozenset[int]]:
    """Yield the natural loops whose first block is their head: for each backward edge, the blocks
    that reach it from its target."""
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
