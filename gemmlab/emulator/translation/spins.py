"""Detects spin loops, which wait for other threads to change memory.

Whether such a loop ends depends on a value read from memory: a flag, a lock, a counter of arrived
blocks. A warp in the loop makes no progress until other threads do.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemmlab.emulator.program import Block
from gemmlab.ptx.ir import Instruction, registers
from gemmlab.ptx.opcodes import FETCHES

ORDERED = {"volatile", "relaxed", "acquire", "mmio"}  # loads that observe stores of other threads


def is_poll(i: Instruction) -> bool:
    """Return whether an instruction reads memory that other threads may be changing."""
    return i.root in FETCHES or (i.root == "ld" and bool(ORDERED & {*i.modifiers}))


def takes_lock(i: Instruction) -> bool:
    return i.root in FETCHES and bool({"cas", "exch"} & {*i.modifiers})


def mark_spins(code: Sequence[Instruction], blocks: Sequence[Block]) -> None:
    """Set `spins` and `locks` of blocks that end in the back edge of a loop."""
    polls = [k for k, i in enumerate(code) if is_poll(i)]
    for number, block in enumerate(blocks):
        if block.terminator != "branch" or block.targets[0] > number:
            continue
        first, last = blocks[block.targets[0]].first, block.last
        if any(first <= k < last for k in polls):
            block.locks = any(map(takes_lock, code[first:last]))
            block.spins = _ends_by_a_poll(code[first:last], blocks, block.targets[0], number)


def _ends_by_a_poll(
    body: Sequence[Instruction], blocks: Sequence[Block], first: int, last: int
) -> bool:
    """Return whether the exit condition of the loop of blocks `first` to `last` depends on a
    poll."""
    start = blocks[first].first
    deciding: set[str] = set()
    for block in blocks[first : last + 1]:
        branch = body[block.last - 1 - start]
        leaves = not first <= block.targets[0] <= last or block is blocks[last]
        if block.terminator in ("branch", "exit") and leaves and branch.guard is not None:
            deciding.add(branch.guard.reg.name)
    while True:
        before = len(deciding)
        for i in body:
            if deciding & {*registers(i.operands[:1])}:
                if is_poll(i):
                    return True
                deciding |= {*registers(i.operands[1:])}
        if len(deciding) == before:
            return False
